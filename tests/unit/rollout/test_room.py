"""A canary asks for room beside all replicas; where there is none, the spec decides."""

from dataclasses import replace
from typing import Any

from fathom.api.choices import Compares
from fathom.api.conditions import Reason
from fathom.cluster.missing_pods import Unplaced
from fathom.cluster.pod_failures import Trouble
from fathom.rollout.canary_step import RolloutStep
from fathom.rollout.input import RolloutInput
from fathom.rollout.rollout import Rollout, Stage
from fathom.rollout.steps import next_step
from unit.rollout.inputs import NOW_S, PATIENCE_S, SETTINGS, deployment, given, pod

CAPACITY_S = 600.0
SETTLING = Rollout(
    revision="new", stable="old", stage=Stage.SETTLING, began_at_s=NOW_S, reason=Reason.SETTLING
)
CANARY = replace(SETTLING, stage=Stage.CANARY, reason=Reason.CANARY_STARTING)
SAID = Trouble(Reason.POD_UNSCHEDULABLE, "pod canary finds no node: 3 Insufficient nvidia.com/gpu.")


def asks(after_s: float, *, unplaced: bool = True, **settings: Any) -> RolloutInput:
    """At two replicas, a surge of one, and a canary that has found no node since `NOW_S`."""
    surge = {"replicas": 2, "max_surge": 1, "capacity_s": CAPACITY_S, **settings}
    found = {"new": Unplaced(SAID, NOW_S)} if unplaced else {}
    changed = replace(SETTINGS, **surge)
    return given(after_s, pod(), settings=changed, unplaced=found, start_s=3_580.0)


def step(before: Rollout, seen: RolloutInput) -> tuple[Rollout, RolloutStep]:
    found = next_step(before, seen)
    assert found.rollout is not None
    return found.rollout, found


def test_meanwhile_progressing_says_what_the_scheduler_says_and_what_it_will_cost() -> None:
    found, told = step(CANARY, asks(60))
    assert (found.stage, found.reason, found.no_room) == (
        Stage.CANARY,
        Reason.AWAITING_CAPACITY,
        False,
    )
    assert found.message == (
        "the canary asks for capacity in addition to all replicas. pod canary finds no node: 3 "
        "Insufficient nvidia.com/gpu. If that is so until 2027-01-15T08:10:00Z, it takes the "
        "place of a replica: capacity 1 of 2 for about 60 minutes."
    )
    assert told.events == ()


def test_then_it_takes_the_place_of_a_replica() -> None:
    waiting, _ = step(CANARY, asks(60))
    found, told = step(waiting, asks(CAPACITY_S))
    assert (found.stage, found.no_room) == (Stage.CANARY, True)
    (event,) = told.events
    assert event.reason == "TakesReplica"
    assert "capacity 1 of 2 for about 60 minutes" in event.message
    # It takes it once, and its patience begins now.
    later, again = step(found, asks(CAPACITY_S + 60))
    assert (later.no_room, again.events) == (True, ())
    assert step(later, asks(CAPACITY_S + PATIENCE_S - 60))[0].stage is Stage.CANARY


def test_where_a_node_has_room_it_is_a_canary_like_any() -> None:
    waiting, _ = step(CANARY, asks(60))
    found, _ = step(waiting, asks(300, unplaced=False))
    assert (found.reason, found.no_room) == (Reason.CANARY_STARTING, False)
    assert found.paused_at_s is None


def test_who_wants_it_to_wait_waits_as_long_as_it_takes() -> None:
    found, _ = step(CANARY, asks(60, waits=True))
    assert found.reason is Reason.AWAITING_CAPACITY
    assert "It waits for capacity, since rollout.whenNoCapacity is Wait." in found.message
    later, told = step(found, asks(10 * PATIENCE_S, waits=True))
    assert (later.stage, later.reason, later.no_room) == (Stage.CANARY, Reason.NO_CAPACITY, False)
    assert told.events == ()
    # Neither the message nor the time of its stage moves: nothing is written meanwhile.
    much_later, _ = step(later, asks(20 * PATIENCE_S, waits=True))
    assert much_later == later


def test_at_zero_minutes_the_first_answer_decides() -> None:
    assert step(CANARY, asks(1, capacity_s=0.0))[0].no_room


def test_where_no_replica_may_be_missing_it_is_given_up_in_time_as_ever() -> None:
    found, _ = step(CANARY, asks(60, max_unavailable=0))
    assert (found.reason, found.paused_at_s) == (Reason.CANARY_STARTING, None)
    assert step(found, asks(60 + PATIENCE_S, max_unavailable=0))[0].stage is Stage.ROLLED_BACK


def test_once_no_replica_may_be_missing_any_more_what_is_added_is_asked_for_again() -> None:
    """Without a surge, and with nothing that may be missing, nothing would ever move again."""
    for stage in (Stage.CANARY, Stage.PROMOTED):
        taking = replace(CANARY, stage=stage, no_room=True)
        assert step(taking, asks(60))[0].no_room
        assert not step(taking, asks(60, max_unavailable=0))[0].no_room


def test_of_a_comparison_one_has_to_stay() -> None:
    arm = replace(CANARY, arm=True)
    for replicas in (1, 2):
        compares = Compares.ADAPTIVE_VERIFICATION
        seen = replace(asks(CAPACITY_S, replicas=replicas), compares=compares)
        assert step(arm, seen)[0].no_room is (replicas == 2)


def test_without_a_surge_the_price_is_said_before_it_goes() -> None:
    settings = replace(SETTINGS, replicas=2)
    workloads = (deployment("old", 2),)
    settling, _ = step(SETTLING, given(1, settings=settings, workloads=workloads))
    begun = next_step(None, given(settings=settings, workloads=workloads)).rollout
    assert begun is not None
    assert begun.message.endswith(
        " It takes the place of a replica: capacity 1 of 2 while it starts "
        "(spec.engine.startupMinutes allows 60 minutes)."
    )
    assert settling.stage is Stage.SETTLING
    surge = replace(settings, max_surge=1)
    asking = next_step(None, given(settings=surge, workloads=workloads)).rollout
    assert asking is not None
    assert "takes the place" not in asking.message
