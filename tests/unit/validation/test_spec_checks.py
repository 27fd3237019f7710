"""Variables of the engine's container: the GPUs that it sees, and where it looks for weights."""

from collections.abc import Iterable
from typing import Any

import pytest

from fathom.api.problem import Problem, Severity
from fathom.validation.cache_checks import hub_variables
from fathom.validation.spec_checks import visible_gpus
from manifest_samples import resource
from support.validated import candidate, warnings

NODE = {"nodePool.accelerator": "H100", "engine.tensorParallelSize": 2}
CLAIM = {"cache.claimName": "weights"}


def env(**variables: str) -> dict[str, Any]:
    return {"engine.env": [{"name": name, "value": text} for name, text in variables.items()]}


def only(found: Iterable[Problem]) -> Problem:
    (problem,) = found
    return problem


def gpus(**changes: Any) -> list[Problem]:
    return list(visible_gpus(candidate(resource({**NODE, **changes}))))


@pytest.mark.parametrize("value", ["all", "none", "0,1", "GPU-8a4e"])
def test_a_variable_that_overrides_the_device_plugin_is_told(value: str) -> None:
    found = only(gpus(**env(NVIDIA_VISIBLE_DEVICES=value)))

    assert found.severity is Severity.WARNING
    assert found.field == "spec.engine.env[0]"
    assert "overrides what the device plugin gives" in found.message


@pytest.mark.parametrize(
    ("value", "seen"),
    [("2", 0), ("0", 1), ("1,2", 1), ("2,0", 0), ("0,0", 1), ("", 0), ("-1", 0), ("NoDevFiles", 0)],
)
def test_fewer_gpus_than_the_engine_needs_are_refused(value: str, seen: int) -> None:
    found = only(gpus(**env(CUDA_VISIBLE_DEVICES=value)))

    assert found.severity is Severity.ERROR
    assert f"lets the engine see {seen} of its pod's 2 GPUs" in found.message


def test_a_gpu_by_its_own_name_is_told() -> None:
    found = only(gpus(**env(CUDA_VISIBLE_DEVICES="GPU-8a4e,GPU-9b5f")))
    assert found.severity is Severity.WARNING
    assert "may give to another pod" in found.message


@pytest.mark.parametrize(
    "changes",
    [
        env(CUDA_VISIBLE_DEVICES="0,1"),
        env(CUDA_VISIBLE_DEVICES="1, 0"),
        env(CUDA_VISIBLE_DEVICES="0,1,2,3,4,5,6,7"),
        # Another variable's.
        env(CUDA_VISIBLE_DEVICES="$(GPUS)"),
        {"engine.env": [{"name": "CUDA_VISIBLE_DEVICES", "valueFrom": {
            "configMapKeyRef": {"name": "gpus", "key": "visible"}}}]},
        # Where devices come through CDI, this is how the container is kept from all others.
        env(NVIDIA_VISIBLE_DEVICES="void"),
        {**env(NVIDIA_VISIBLE_DEVICES="all"), "nodePool.accelerator": "MI300X"},
        env(NVIDIA_DRIVER_CAPABILITIES="all"),
        # The last one is what the container has.
        {"engine.env": [
            {"name": "CUDA_VISIBLE_DEVICES", "value": "7"},
            {"name": "CUDA_VISIBLE_DEVICES", "value": "0,1"},
        ]},
    ],
)  # fmt: skip
def test_all_of_a_pods_gpus_are_let_be(changes: dict[str, Any]) -> None:
    assert gpus(**changes) == []


@pytest.mark.parametrize("field", ["podTemplate", "workerTemplate"])
def test_pod_templates_are_read_too(field: str) -> None:
    variable = {"name": "CUDA_VISIBLE_DEVICES", "value": "0"}
    container = {"name": "vllm", "env": [variable]}
    two_nodes = {"nodePool.accelerator": "GB200", "engine.tensorParallelSize": 8}

    found = only(gpus(**{**two_nodes, field: {"spec": {"containers": [container]}}}))

    assert found.field == f"spec.{field}.spec.containers[0].env[0]"
    assert "see 1 of its pod's 4 GPUs" in found.message


def test_a_pod_of_a_group_counts_its_own_gpus() -> None:
    two_nodes = {"nodePool.accelerator": "GB200", "engine.tensorParallelSize": 8}
    assert gpus(**two_nodes, **env(CUDA_VISIBLE_DEVICES="0,1,2,3")) == []


def hub(**changes: Any) -> list[str]:
    return [str(each) for each in hub_variables(candidate(resource(changes)))]


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
@pytest.mark.parametrize("prefetch", [False, True])
def test_who_fills_a_claim_learns_where_the_engine_looks(name: str, *, prefetch: bool) -> None:
    (found,) = hub(**CLAIM, **{"cache.prefetch": prefetch}, **env(**{name: "1"}))
    assert found.startswith("spec.engine.env[0]: ")
    assert f"with {name} the engine finds weights in /cache/huggingface/hub alone" in found
    assert "to /cache if the claim has hub/ at its root" in found


@pytest.mark.parametrize(
    "changes",
    [
        {**CLAIM, **env(HF_HUB_OFFLINE="1", HF_HOME="/cache")},
        {**CLAIM, **env(HF_HUB_OFFLINE="1", HF_HOME="/cache/huggingface")},
        {**CLAIM, **env(HF_HUB_OFFLINE="1", HF_HUB_CACHE="/cache/hub")},
        {**CLAIM, "cache.prefetch": False},
        {**CLAIM, **env(VLLM_USE_MODELSCOPE="true")},
        {**CLAIM, **env(HF_HUB_OFFLINE="0")},
        {**CLAIM, "model.id": "/models/kimi", **env(HF_HUB_OFFLINE="1")},
        env(HF_HUB_OFFLINE="1"),
        CLAIM,
    ],
)
def test_where_weights_are_found_nothing_is_told(changes: dict[str, Any]) -> None:
    assert hub(**changes) == []


@pytest.mark.parametrize(
    ("place", "mounts", "warned"),
    [
        ("/shared-model-cache", [], True),
        ("/cache", [], False),
        ("/cache/hub", [], False),
        ("/cached", [], True),
        ("/models/hub", ["/models"], False),
    ],
)
def test_a_home_of_the_hub_outside_the_claim_is_warned_of(
    place: str, mounts: list[str], *, warned: bool
) -> None:
    volumes = [{"name": "models", "mountPath": at} for at in mounts]
    sd = resource(
        {
            "cache": {"claimName": "weights", "prefetch": False},
            "engine.env": [{"name": "HF_HOME", "value": place}],
            "podTemplate": {"spec": {"containers": [{"name": "vllm", "volumeMounts": volumes}]}},
        }
    )
    found = [problem.message for problem in hub_variables(candidate(sd))]
    assert [("another place" in message) for message in found] == [True] * warned


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"draft.revision": "a b"}, ["spec.draft.revision"]),
        ({"draft.trial": {"id": "a/b", "revision": "a b"}}, ["spec.draft.trial.revision"]),
        # vLLM reads none of a directory, and nothing of a draft that is not loaded.
        ({"model.id": "/models/a", "model.revision": "as of May"}, []),
        ({"draft.revision": "a b", "speculation.drafting": "Disabled"}, []),
    ],
)
def test_a_revision_with_a_space_is_warned_of(changes: dict[str, Any], fields: list[str]) -> None:
    """It stops nothing that runs: an earlier operator took it."""
    found = [each for each in warnings(resource(changes)) if each.rule == "model-name"]
    assert [each.field for each in found] == fields
