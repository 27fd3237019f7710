"""A canary that is a group: its crashes show as a leader that comes back under its name."""

from typing import Any

from fathom.api import names
from fathom.api.conditions import Reason
from fathom.cluster.observed import ObservedLeaderWorkerSet
from fathom.cluster.observed_pods import ObservedPod
from fathom.rollout.input import RolloutInput, RolloutSettings
from fathom.rollout.rollout import Rollout, Stage
from fathom.rollout.steps import next_step


def leader(revision: str, uid: str, *, ready: bool) -> ObservedPod:
    labels = {names.LABEL_REVISION: revision, names.LABEL_ROLE: names.ROLE_LEADER}
    return ObservedPod.model_validate(
        {
            "metadata": {"name": f"kimi-{revision}-0", "uid": uid, "labels": labels},
            "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
        }
    )


def workload(revision: str) -> ObservedLeaderWorkerSet:
    metadata = {"name": f"kimi-{revision}", "labels": {names.LABEL_REVISION: revision}}
    return ObservedLeaderWorkerSet.model_validate({"metadata": metadata, "spec": {"replicas": 1}})


SETTINGS = RolloutSettings(
    replicas=2,
    max_unavailable=1,
    max_surge=0,
    bake_s=1200.0,
    startup_s=3600.0,
    drain_s=60.0,
    paused=False,
)


def given(now_s: float, *canary: ObservedPod) -> RolloutInput:
    given: dict[str, Any] = {"counters": {}, "document": None, "window": None}
    return RolloutInput(
        now_s=now_s,
        revision="new",
        settings=SETTINGS,
        workloads=(workload("old"), workload("new")),
        pods=(leader("old", "o", ready=True), *canary),
        document_written_at_s=0.0,
        stable_spec_known=True,
        live=True,
        **given,
    )


def canary_after(*uids: str, ready: bool) -> Rollout:
    """The rollout after the canary's leader was seen with each uid, gone in between."""
    rollout = Rollout(
        revision="new",
        stable="old",
        stage=Stage.CANARY,
        began_at_s=0.0,
        reason=Reason.CANARY_STARTING,
    )
    now_s = 0.0
    for uid in uids:
        for seen in ((leader("new", uid, ready=ready),), ()):
            now_s += 30.0
            after = next_step(rollout, given(now_s, *seen)).rollout
            assert after is not None
            rollout = after
    return rollout


def test_a_group_that_comes_back_bakes_anew() -> None:
    rollout = canary_after("a", "b", ready=True)
    assert rollout.stage is Stage.CANARY
    assert rollout.watch is not None
    assert rollout.watch.replaced == 1
    assert rollout.watch.ready_since_s is None


def test_a_group_that_keeps_coming_back_is_a_crashed_canary() -> None:
    rollout = canary_after("a", "b", "c", "d", ready=False)
    assert rollout.stage is Stage.ROLLED_BACK
    assert rollout.reason is Reason.CANARY_CRASHED
    assert "restarted 3 times" in rollout.message
