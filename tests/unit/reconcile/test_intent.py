"""What is carried out of a spec, and of the ones before it."""

import json
from typing import Any

import pytest

from fathom.api.bounded_json import DEEPEST
from fathom.api.spec import MAX_REPLICAS
from fathom.cluster.kinds import ServedApis
from fathom.reconcile.checkpoint import Checkpoint
from fathom.reconcile.intent import JudgedBy, wanted_revision
from fathom.reconcile.specs import earlier_spec, good_spec_text
from fathom.resource import SpeculativeDeployment, parse
from fathom.rollout.revision import revision_of
from fathom.validation.candidate import Cluster
from manifest_samples import manifest, resource

EARLIER = good_spec_text(manifest())


def replicas(asked: Any) -> int | None:
    """Replicas of the earlier spec, while the newest asks for so many."""
    found = earlier_spec(manifest({"replicas": asked}), EARLIER)
    return found.spec.replicas if found else None


@pytest.mark.parametrize("asked", [0, 1, 7, MAX_REPLICAS])
def test_an_earlier_spec_has_the_replicas_that_are_asked_for_now(asked: int) -> None:
    assert replicas(asked) == asked


@pytest.mark.parametrize("asked", [-1, MAX_REPLICAS + 1, True, "3", 2.5])
def test_nonsense_for_a_number_of_replicas_is_passed_over(asked: Any) -> None:
    assert replicas(asked) == 1


MODE = "speculation.tuning.mode"
PROBING = "speculation.tuning.probing"
UNAVAILABLE = "rollout.maxUnavailable"
SURGE = "rollout.maxSurge"


@pytest.mark.parametrize(
    ("earlier", "newest", "followed"),
    [
        ({}, {MODE: "Advise"}, {MODE: "Advise"}),
        ({MODE: "Auto", PROBING: "Disabled"}, {MODE: "Advise"}, {MODE: "Advise"}),
        ({}, {PROBING: "Disabled"}, {PROBING: "Disabled"}),
        ({"rollout.refresh": "Auto"}, {}, {"rollout.refresh": "Never"}),
        ({}, {"rollout.paused": True}, {"rollout.paused": True}),
        ({"rollout.paused": True}, {}, {"rollout.paused": False}),
        # What would set something going, or need new pods, is not taken over.
        ({MODE: "Advise"}, {MODE: "Auto"}, {}),
        ({MODE: "Static"}, {MODE: "Advise"}, {}),
        ({}, {MODE: "Static"}, {}),
        ({PROBING: "Disabled"}, {}, {}),
        ({}, {"rollout.refresh": "Auto"}, {}),
        ({}, {"speculation.minTokens": 2, "rollout.canaryMinutes": 0}, {}),
        # How many may be missing or more holds for whatever is rolled out, and back.
        ({}, {UNAVAILABLE: 0}, {UNAVAILABLE: 0}),
        ({UNAVAILABLE: 0}, {SURGE: 0}, {UNAVAILABLE: 1, SURGE: 0}),
        ({UNAVAILABLE: 3, SURGE: 2}, {}, {UNAVAILABLE: 1, SURGE: 1}),
        ({UNAVAILABLE: 3}, {UNAVAILABLE: 0, SURGE: 0}, {}),
        ({UNAVAILABLE: 3}, {SURGE: "many"}, {}),
        ({UNAVAILABLE: 3}, {"rollout": []}, {}),
        # Nor what cannot be read.
        ({}, {"speculation": "off", "rollout": []}, {}),
        ({}, {"speculation.tuning": {"mode": ["Advise"]}, "rollout.paused": "yes"}, {}),
    ],
)
def test_an_earlier_spec_is_stopped_by_what_stops_the_newest(
    earlier: dict[str, Any], newest: dict[str, Any], followed: dict[str, Any]
) -> None:
    found = earlier_spec(manifest(newest), good_spec_text(manifest(earlier)))
    expected = resource({**earlier, **followed}).spec
    assert found is not None
    assert found.spec == expected
    assert revision_of(found) == revision_of(resource(earlier))


@pytest.mark.parametrize("text", ["", "[" * 20_000, "[]", "7", json.dumps({"model": "no object"})])
def test_what_is_no_spec_is_no_earlier_one(text: str) -> None:
    assert earlier_spec(manifest(), text) is None


@pytest.mark.parametrize("lists", [True, False])
def test_whatever_spec_is_taken_can_be_read_again_once_it_is_kept(*, lists: bool) -> None:
    """One that could not would be no fallback when the next one is bad."""
    value: Any = [] if lists else {}
    taken = 0
    for _ in range(DEEPEST + 5):
        resource = manifest({"podTemplate": {"spec": {"x": value}}})
        if isinstance(parse(resource), SpeculativeDeployment):
            taken += 1
            assert earlier_spec(resource, good_spec_text(resource)) is not None
        value = [value] if lists else {"a": value}
    assert taken > 60


def judged_by(checkpoint: Checkpoint) -> JudgedBy:
    return JudgedBy(
        checkpoint=checkpoint,
        models={},
        cluster=Cluster(served=ServedApis(), usable=()),
        running={},
    )


def test_pods_that_an_earlier_fathom_started_without_counting_keep_their_revision() -> None:
    """It called their revision otherwise, since it rendered them otherwise."""
    before = {"engine.image": "vllm/vllm-openai:v0.28.0"}
    kept = Checkpoint(good_spec=good_spec_text(manifest(before)), good_revision="0ld0ld00")

    def wanted(changes: dict[str, Any]) -> str:
        return wanted_revision(resource(changes), manifest(changes), judged_by(kept))

    assert wanted(before) == "0ld0ld00"
    assert wanted({**before, "replicas": 3, "speculation.tuning.mode": "Advise"}) == "0ld0ld00"
    deeper = {**before, "speculation.tokens": 5}
    assert wanted(deeper) == revision_of(resource(deeper))
