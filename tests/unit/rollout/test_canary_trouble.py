"""What ends a canary before it is judged, to the second and to the restart."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fathom.api.conditions import Reason
from fathom.cluster.observed_pods import ContainerState, ObservedPod, Terminated
from fathom.engine.depth import DepthDocument, flat
from fathom.measurement.counters import EngineCounts, PodCounters
from fathom.rollout.canary_health import Failure, failure_of, seen_obeying
from fathom.rollout.input import RolloutInput
from fathom.rollout.rollout import CanaryWatch, Rollout, Stage
from unit.rollout.inputs import NOW_S, PATIENCE_S, deployment, given, group, pod

ROLLOUT = Rollout(
    revision="new",
    stable="old",
    stage=Stage.CANARY,
    began_at_s=NOW_S,
    reason=Reason.CANARY_STARTING,
)
STARTING = CanaryWatch(pod="canary", unready_since_s=NOW_S)
BAKING = CanaryWatch(pod="canary", ready_since_s=NOW_S, restarts=1)


def ended(watch: CanaryWatch, canary: ObservedPod | None, seen: RolloutInput) -> Failure | None:
    return failure_of(ROLLOUT, watch, canary, seen)


def test_two_restarts_before_it_is_ready_can_be_bad_luck_and_three_cannot() -> None:
    assert ended(STARTING, pod(restarts=2), given()) is None
    assert ended(STARTING, pod(restarts=1, fetch_restarts=1), given()) is None
    for third in (pod(restarts=3), pod(restarts=1, fetch_restarts=2)):
        assert ended(STARTING, third, given()) == Failure(
            Reason.CANARY_CRASHED, "pod canary crashed 3 times before it was ready."
        )


def test_one_restart_after_it_was_ready_is_enough() -> None:
    assert ended(BAKING, pod(ready=True, restarts=1), given()) is None
    assert ended(BAKING, pod(ready=True, restarts=2), given()) == Failure(
        Reason.CANARY_CRASHED, "pod canary crashed after it had become ready."
    )


def test_a_sidecar_that_restarts_is_no_crash_of_the_engine() -> None:
    for restarts in (0, 2):
        beside = pod(restarts=restarts, sidecar_restarts=9)
        assert ended(STARTING, beside, given()) is None
    assert ended(BAKING, pod(ready=True, restarts=1, sidecar_restarts=9), given()) is None


def test_a_sidecar_that_runs_again_is_not_why_the_engine_crashes() -> None:
    found = ended(STARTING, pod(restarts=3, sidecar_restarts=1), given())
    assert found == Failure(
        Reason.CANARY_CRASHED, "pod canary crashed 3 times before it was ready."
    )


@pytest.mark.parametrize(("replaced", "crashed"), [(2, False), (3, True)])
def test_a_group_may_come_back_twice(replaced: int, *, crashed: bool) -> None:
    watch = CanaryWatch(pod="canary", unready_since_s=NOW_S, replaced=replaced)
    assert (ended(watch, pod(), given()) is not None) is crashed


@pytest.mark.parametrize(("after_s", "failed"), [(599, False), (600, True)])
def test_an_image_may_fail_to_be_pulled_for_ten_minutes(after_s: float, *, failed: bool) -> None:
    found = ended(STARTING, pod(waiting="ImagePullBackOff"), given(after_s))
    assert (found is not None) is failed
    if found is not None:
        assert found.reason is Reason.IMAGE_UNAVAILABLE
    # What else keeps it waiting has the time that an engine has.
    assert ended(STARTING, pod(waiting="ContainerCreating"), given(after_s)) is None


def obeying(
    after_s: float, generation: int, *, written_s: float = 0, live: bool = True, watch: CanaryWatch
) -> Failure | None:
    counters = PodCounters(
        pod="canary",
        at_s=NOW_S,
        started_at_s=NOW_S,
        engine=EngineCounts(),
        live_depth=live,
        depth_generation=generation,
    )
    seen = given(
        after_s,
        live=live,
        counters={"canary": counters},
        document=DepthDocument(generation=7, schedule=flat(3, 256)),
        document_written_at_s=NOW_S + written_s,
    )
    return ended(seen_obeying(watch, seen), pod(ready=True, restarts=1), seen)


def test_it_has_five_minutes_to_obey() -> None:
    assert obeying(299, 6, watch=BAKING) is None
    found = obeying(300, 6, watch=BAKING)
    assert found is not None
    assert found.reason is Reason.DEPTH_NOT_OBEYED
    assert "written for it 5 minutes ago" in found.message
    late = obeying(3600, 6, watch=BAKING)
    assert late is not None
    assert "written for it 60 minutes ago" in late.message


def test_what_it_has_in_force_is_compared_with_what_was_written_last() -> None:
    assert obeying(300, 7, watch=BAKING) is None
    assert obeying(300, 8, watch=BAKING) is None
    assert obeying(300, 6, written_s=1, watch=BAKING) is None
    assert obeying(301, 6, written_s=1, watch=BAKING) is not None


def test_a_newer_document_does_not_begin_its_patience_anew() -> None:
    """Depth is written each minute, as where the tuner probes; what it has in force stays."""
    watch = BAKING

    def minute(number: int, generation: int) -> Failure | None:
        nonlocal watch
        seen = given(
            60 * number,
            live=True,
            counters={"canary": counted(generation)},
            document=DepthDocument(generation=number + 7, schedule=flat(3, 256)),
            document_written_at_s=NOW_S + 60 * number,
        )
        watch = seen_obeying(watch, seen)
        return ended(watch, pod(ready=True, restarts=1), seen)

    assert [minute(number, 6) is not None for number in range(7)] == [False] * 5 + [True] * 2
    watch = BAKING
    assert not any(minute(number, 6 + number // 3) for number in range(20))
    assert minute(20, 27) is None
    assert watch.behind_since_s is None


def counted(generation: int) -> PodCounters:
    return PodCounters(
        pod="canary",
        at_s=NOW_S,
        started_at_s=NOW_S,
        engine=EngineCounts(),
        live_depth=True,
        depth_generation=generation,
    )


def test_what_is_not_told_is_not_held_against_it() -> None:
    seen = given(400, live=True, document=DepthDocument(generation=7, schedule=flat(3, 256)))
    behind = replace(BAKING, generation=6, behind_since_s=NOW_S)
    assert seen_obeying(BAKING, seen) == BAKING
    assert seen_obeying(behind, seen) == behind


def test_neither_a_static_engine_nor_one_that_is_not_ready_need_obey() -> None:
    assert obeying(300, 6, live=False, watch=BAKING) is None
    assert obeying(300, 6, watch=STARTING) is None


def test_it_has_as_long_as_drain_start_and_a_node_take() -> None:
    assert ended(STARTING, pod(), given(PATIENCE_S - 1)) is None
    assert ended(STARTING, pod(), given(PATIENCE_S)) == Failure(
        Reason.CANARY_NOT_READY,
        "pod canary did not become ready within 71 minutes: see its log, or raise "
        "spec.engine.startupMinutes.",
    )
    assert ended(STARTING, None, given(PATIENCE_S)) == Failure(
        Reason.CANARY_NOT_READY, "its pod did not come into being within 71 minutes."
    )
    troubled = ended(STARTING, pod(waiting="RunContainerError"), given(PATIENCE_S))
    assert troubled is not None
    assert troubled.reason is Reason.POD_FAILING
    assert troubled.message.startswith("not ready within 71 minutes: container vllm of pod canary")


QUOTA = 'pods "kimi" is forbidden: exceeded quota: gpus'
MEND = "Fix what refuses them (a quota, a policy, a webhook) before it is tried again."


def test_pods_that_the_cluster_refuses_are_what_it_goes_back_for() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": QUOTA}
    refused = deployment("new", 1, conditions=[failure])
    waiting = {"workloads": (deployment("old", 2), refused)}
    assert ended(STARTING, None, given(PATIENCE_S - 1, **waiting)) is None
    assert ended(STARTING, None, given(PATIENCE_S, **waiting)) == Failure(
        Reason.CHILD_REFUSED,
        "not ready within 71 minutes: the cluster refuses pods of Deployment kimi-new: "
        f"{QUOTA}. {MEND}",
    )


def test_refused_pods_of_another_revision_are_not_the_canarys() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": QUOTA}
    refused = deployment("old", 3, conditions=[failure])
    found = ended(STARTING, None, given(PATIENCE_S, workloads=(refused, deployment("new", 1))))
    assert found is not None
    assert found.reason is Reason.CANARY_NOT_READY


def test_refused_workers_are_why_their_leader_fails() -> None:
    groups = {"workloads": (group("old"), group("new")), "refused_pods": {"kimi-new": QUOTA}}
    cause = f"the cluster refuses pods of LeaderWorkerSet kimi-new: {QUOTA}. {MEND}"
    assert ended(STARTING, pod(waiting="RunContainerError"), given(PATIENCE_S, **groups)) == (
        Failure(Reason.CHILD_REFUSED, f"not ready within 71 minutes: {cause}")
    )
    assert ended(STARTING, pod(restarts=3), given(**groups)) == Failure(
        Reason.CANARY_CRASHED, f"pod canary crashed 3 times before it was ready: {cause}"
    )


def test_pods_that_come_and_go_are_given_up_in_the_end() -> None:
    longest_s = 3 * (PATIENCE_S + 1200.0)
    assert ended(BAKING, pod(ready=True, restarts=1), given(longest_s - 1)) is None
    assert ended(BAKING, pod(ready=True, restarts=1), given(longest_s)) == Failure(
        Reason.CANARY_NOT_READY,
        "after 4.5 hours no canary has stayed long enough to be judged: its pods come and go.",
    )


def ended_at(each: ObservedPod, at_s: float | None) -> ObservedPod:
    """The same pod, whose engine has ended then."""
    if at_s is None:
        return each
    ended = Terminated(exit_code=137, finished_at=datetime.fromtimestamp(at_s, UTC))
    statuses = tuple(
        status.model_copy(update={"last_state": ContainerState(terminated=ended)})
        if status.name == "vllm"
        else status
        for status in each.status.container_statuses
    )
    status = each.status.model_copy(update={"container_statuses": statuses})
    return each.model_copy(update={"status": status})


@pytest.mark.parametrize(
    ("restarts", "stable_ended_s", "fails"),
    [
        (2, (10.0, -200.0), False),
        (2, (10.0, None), True),
        (2, (10.0, -400.0), True),
        (2, (), True),
        # By itself, after all were ended once.
        (3, (10.0, -200.0), True),
    ],
)
def test_what_has_ended_all_engines_at_once_is_no_fault_of_the_canary(
    restarts: int, stable_ended_s: tuple[float | None, ...], *, fails: bool
) -> None:
    canary = ended_at(pod(ready=True, restarts=restarts), NOW_S)
    stable = tuple(
        ended_at(pod("old", f"old-{at}", ready=True, restarts=1), NOW_S + s if s is not None else s)
        for at, s in enumerate(stable_ended_s)
    )
    found = ended(BAKING, canary, given(60, pods=(canary, *stable)))
    assert (found is not None) is fails
