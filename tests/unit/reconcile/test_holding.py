"""What tells of the past: refusals, generations that were acted upon, revisions that run."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fathom.api import names
from fathom.api.conditions import ConditionStatus, ConditionType, Reason
from fathom.api.status import Condition, SpeculativeDeploymentStatus
from fathom.cluster.manifest import Meta
from fathom.cluster.observed import ObservedDeployment
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.snapshot import Objects
from fathom.reconcile.checkpoint import Checkpoint, SeenGeneration
from fathom.reconcile.holding import acted_upon, at_rest, refused_before, running_revisions
from unit.rollout.inputs import deployment, pod

GENERATION = 5


def objects(
    *,
    status: Mapping[str, Any] | None = None,
    workloads: tuple[ObservedDeployment, ...] = (),
    pods: tuple[ObservedPod, ...] = (),
) -> Objects:
    return Objects(
        read_at_s=0.0,
        resource={},
        metadata=Meta(name="kimi", namespace="llm", uid="uid", generation=GENERATION),
        status=SpeculativeDeploymentStatus.model_validate(status) if status else None,
        workloads=workloads,
        pods=pods,
        config_maps=(),
        depth=None,
        tuning={},
        live={},
    )


def written_for(generation: int) -> ObservedDeployment:
    found = deployment("new", 1)
    annotations = {names.ANNOTATION_GENERATION: str(generation)}
    metadata = found.metadata.model_copy(update={"annotations": annotations})
    return found.model_copy(update={"metadata": metadata})


def test_the_newest_of_all_witnesses_counts() -> None:
    nothing, checkpoint = objects(), Checkpoint()
    assert acted_upon(nothing, checkpoint, 0) == 0
    assert acted_upon(nothing, checkpoint, 4) == 4
    assert acted_upon(nothing, Checkpoint(seen=SeenGeneration("uid", 4)), 3) == 4
    assert acted_upon(objects(status={"observedGeneration": 4}), checkpoint, 3) == 4
    assert acted_upon(objects(workloads=(written_for(3), written_for(4))), checkpoint, 2) == 4


def told(**reasons: str) -> list[dict[str, str]]:
    since = {"status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return [{"type": each, "reason": reason, **since} for each, reason in reasons.items()]


WELL = told(Degraded="AsExpected", Progressing="UpToDate")


@pytest.mark.parametrize(
    ("status", "rests"),
    [
        (None, False),
        ({"observedGeneration": GENERATION}, False),
        ({"observedGeneration": GENERATION, "conditions": WELL}, True),
        ({"observedGeneration": GENERATION - 1, "conditions": WELL}, False),
        *(
            (
                {
                    "observedGeneration": GENERATION,
                    "conditions": WELL,
                    "rollout": {"stage": stage},
                },
                stage in {"Complete", "Offered"},
            )
            for stage in ("Complete", "Offered", "Settling", "Canary", "Promoted", "RolledBack")
        ),
        *(
            (
                {
                    "observedGeneration": GENERATION,
                    "conditions": told(Degraded=degraded, Progressing=progressing),
                },
                rests,
            )
            for degraded, progressing, rests in (
                ("PodFailing", "Scaling", True),
                ("InvalidSpec", "UpToDate", False),
                ("ApiMissing", "UpToDate", False),
                ("StateUnreadable", "StateUnreadable", False),
            )
        ),
    ],
)
def test_what_runs_is_what_is_asked_for_where_the_status_says_so(
    status: dict[str, Any] | None, *, rests: bool
) -> None:
    assert at_rest(objects(status=status)) is rests


@pytest.mark.parametrize("uid", ["another", "zzz"])
def test_what_was_seen_of_another_resource_of_its_name_does_not_count(uid: str) -> None:
    assert acted_upon(objects(), Checkpoint(seen=SeenGeneration(uid, 4)), 0) == 0


def refusal(**changes: Any) -> Objects:
    condition = Condition(
        type=ConditionType.DRAFT_COMPATIBLE,
        status=ConditionStatus.FALSE,
        observed_generation=GENERATION,
        last_transition_time="2027-01-15T08:00:00Z",
        reason=Reason.INCOMPATIBLE,
        message="it does not fit.",
    )
    status = SpeculativeDeploymentStatus(conditions=(condition.model_copy(update=changes),))
    return replace(objects(), status=status)


def test_a_refusal_of_this_very_generation_stands() -> None:
    verdict = refused_before(refusal())
    assert verdict is not None
    assert (verdict.refused, verdict.reason) == (True, Reason.INCOMPATIBLE)
    assert verdict.message == "it does not fit."


@pytest.mark.parametrize(
    "changes",
    [
        {"observed_generation": GENERATION - 1},
        {"observed_generation": GENERATION + 1},
        {"status": ConditionStatus.UNKNOWN},
        {"reason": Reason.NOT_CHECKED},
        {"type": ConditionType.DEGRADED},
    ],
    ids=str,
)
def test_what_is_told_of_another_generation_or_is_no_refusal_does_not(
    changes: dict[str, Any],
) -> None:
    assert refused_before(refusal(**changes)) is None
    assert refused_before(objects()) is None


def test_a_revision_runs_while_it_is_asked_for_or_still_has_pods() -> None:
    leaving = pod("gone", "b")
    metadata = leaving.metadata.model_copy(update={"deletion_timestamp": "2027-01-15T08:00:00Z"})
    found = objects(
        workloads=(deployment("asked", 2), deployment("both", 1), deployment("none", 0)),
        pods=(
            pod("both", "a"),
            pod("left", "c"),
            leaving.model_copy(update={"metadata": metadata}),
        ),
    )
    assert running_revisions(found).keys() == {"asked", "both", "left"}
