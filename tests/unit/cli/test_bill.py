"""What a resource takes, before anybody pays for it."""

from typing import Any

import pytest

from fathom.cli.resources import bill
from fathom.model_facts import ModelFacts
from fathom.model_refs import ModelRef
from fathom.validation.candidate import candidate_of
from fathom_intake.model_weights import Weights
from manifest_samples import resource
from support.validated import candidate

H100 = {"nodePool.accelerator": "H100"}
START = "start: at most 90 minutes (engine.startupMinutes), about "


def gpus(**changes: Any) -> str:
    return bill(candidate(resource({**changes})))[0]


def test_gpus_are_counted_over_replicas_and_nodes() -> None:
    assert gpus() == ("GPUs: 1 replica × 4 GPUs (GB200) = 4; a rollout takes up to 4 more.")
    assert gpus(**{"replicas": 2, "engine.tensorParallelSize": 128, "rollout.maxSurge": 0}) == (
        "GPUs: 2 replicas × 32 nodes × 4 GPUs (GB200) = 256."
    )
    # One replica is compared with the other.
    assert gpus(**{**H100, "speculation.drafting": "Canary"}).startswith(
        "GPUs: 2 replicas × 4 GPUs"
    )


@pytest.mark.parametrize(
    ("changes", "needs"),
    [
        ({}, []),
        (
            {"engine.tensorParallelSize": 8},
            ["needs in the cluster: LeaderWorkerSet v1, ComputeDomain v1beta1, Kubernetes 1.31."],
        ),
        (
            {**H100, "engine.tensorParallelSize": 16},
            ["needs in the cluster: LeaderWorkerSet v1."],
        ),
    ],
    ids=str,
)
def test_apis_are_named_that_not_every_cluster_has(
    changes: dict[str, Any], needs: list[str]
) -> None:
    _, *found, start = bill(candidate(resource(changes)))

    assert found == needs
    assert start.startswith(START)
    assert start.endswith(" of them for CUDA graphs.")
    assert all(len(line) < 98 for line in (*found, start))


def test_what_the_start_takes_is_told() -> None:
    sd = resource(
        {
            "engine.startupMinutes": 30,
            "engine.args": ["--enforce-eager"],
            "cache.claimName": "weights",
        }
    )
    models = {ModelRef(sd.spec.model.id): ModelFacts(weights=Weights(total_bytes=595 << 30))}
    start = "start: at most 30 minutes (engine.startupMinutes)."

    fetch = "once: a Job fetches the weights, 595 GiB, and no pod starts before."
    assert bill(candidate_of(sd, models))[1:] == (fetch, start)
    fetch = "once: a Job fetches the weights, and no pod starts before."
    assert bill(candidate(sd))[1:] == (fetch, start)
