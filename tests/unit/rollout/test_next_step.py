"""Single steps of a rollout, to the second and to the sentence."""

from dataclasses import replace
from typing import Any

import pytest

from fathom.api import names
from fathom.api.choices import Compares
from fathom.api.conditions import Reason
from fathom.api.status import Compared
from fathom.cluster.observed_pods import ObservedPod
from fathom.measurement.counters import EngineCounts
from fathom.measurement.deltas import PodDelta
from fathom.rollout.canary_step import RolloutStep
from fathom.rollout.comparison import ArmComparison
from fathom.rollout.input import CanaryWindow, RolloutInput
from fathom.rollout.rollout import CanaryWatch, Rollout, Stage
from fathom.rollout.steps import next_step
from unit.rollout.inputs import NOW_S, PATIENCE_S, SETTINGS, deployment, given, group, pod

SETTLING = Rollout(
    revision="new", stable="old", stage=Stage.SETTLING, began_at_s=NOW_S, reason=Reason.SETTLING
)
CANARY = replace(SETTLING, stage=Stage.CANARY, reason=Reason.CANARY_STARTING)
PROMOTED = replace(SETTLING, stage=Stage.PROMOTED, reason=Reason.CANARY_AS_GOOD)
VETOED = replace(SETTLING, stage=Stage.ROLLED_BACK, reason=Reason.CANARY_SLOWER)


def after(before: Rollout | None, seen: RolloutInput) -> Rollout:
    found = next_step(before, seen).rollout
    assert found is not None
    return found


def told(step: RolloutStep) -> list[str]:
    return [each.message for each in step.events]


def test_an_edit_settles_for_ten_seconds() -> None:
    assert after(None, given()).stage is Stage.SETTLING
    begins = after(None, given()).message
    assert begins.startswith("begins when the spec has not changed for 10 seconds.")
    assert after(SETTLING, given(9.9)).stage is Stage.SETTLING
    assert after(SETTLING, given(10)).stage is Stage.CANARY


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {},
            (
                "One replica is compared with the others for 20 min, at revision new instead of "
                "old (image: a became b)."
            ),
        ),
        (
            {"bake_s": 0},
            (
                "One replica is compared with the others, at revision new instead of old "
                "(image: a became b)."
            ),
        ),
        (
            {"replicas": 1},
            "One replica is replaced, at revision new instead of old (image: a became b).",
        ),
        (
            {"replicas": 1, "max_surge": 1},
            (
                "One replica is compared with the others for 20 min, at revision new instead of "
                "old (image: a became b)."
            ),
        ),
    ],
)
def test_what_becomes_of_one_replica_is_told(changes: dict[str, Any], message: str) -> None:
    settled = replace(SETTLING, why="image: a became b")
    step = next_step(settled, given(10, settings=replace(SETTINGS, **changes)))
    assert told(step) == [message]


def test_where_nothing_serves_nothing_is_put_at_risk() -> None:
    down = (pod("old", "a"), pod("old", "b"))
    found = after(SETTLING, given(10, pods=down))
    assert (found.stage, found.reason) == (Stage.PROMOTED, Reason.NOTHING_TO_PROTECT)
    one = (pod("old", "a", ready=True), pod("old", "b"))
    assert after(SETTLING, given(10, pods=one)).stage is Stage.CANARY


def test_what_serves_while_the_spec_is_turned_back_is_protected_from_the_next_edit() -> None:
    """Once `new` serves everywhere, the spec goes back to `old`, and on to a third at once."""
    back = replace(PROMOTED, revision="old", stable="old", reason=Reason.REVERTED)
    served = (pod("new", "c", ready=True), pod("new", "d", ready=True), pod("old", "a"))
    third = given(
        5,
        revision="third",
        pods=served,
        workloads=(deployment("old", 1), deployment("new", 2)),
        specs_known=frozenset({"old", "new"}),
    )

    # What cannot be gone back to is nothing to be tried beside.
    assert after(back, replace(third, specs_known=frozenset({"old"}))).stable == "old"
    begun = after(back, third)
    assert (begun.stage, begun.stable) == (Stage.SETTLING, "new")
    assert after(begun, replace(third, now_s=NOW_S + 100)).stage is Stage.CANARY


def test_what_is_down_for_a_moment_is_protected_all_the_same() -> None:
    """Every replica's probe fails at once, say, while the spec is edited."""

    def settled(after_s: float, *more: ObservedPod) -> Rollout:
        down = (pod("old", "a", since_s=NOW_S - 5000), pod("old", "b", since_s=NOW_S))
        return after(SETTLING, given(after_s, pods=(*down, *more)))

    assert settled(59).stage is Stage.SETTLING
    assert settled(59).message == (
        "begins when a replica of revision old serves again, or none has for 60 seconds."
    )
    assert settled(59, pod("old", "c", ready=True)).stage is Stage.CANARY
    assert settled(60).reason is Reason.NOTHING_TO_PROTECT
    flapping = pod("old", "c", since_s=NOW_S + 65)
    assert settled(69, flapping).stage is Stage.SETTLING
    assert settled(70, flapping).reason is Reason.NOTHING_TO_PROTECT


def test_what_serves_is_protected_though_another_revision_was_taken_for_it() -> None:
    """As after an API server that answered with an old state: `old` served then, and is gone."""
    others = (pod("between", "a", ready=True), pod("between", "b", ready=True))
    seen = given(
        10,
        pods=others,
        workloads=(deployment("between", 2),),
        specs_known=frozenset({"between"}),
        stable_spec_known=False,
    )
    found = after(SETTLING, seen)
    assert (found.stage, found.stable) == (Stage.SETTLING, "between")
    assert after(found, replace(seen, stable_spec_known=True)).stage is Stage.CANARY
    # What cannot be gone back to is nothing to be tried beside.
    unknown = after(SETTLING, replace(seen, specs_known=frozenset()))
    assert unknown.reason is Reason.NOTHING_TO_PROTECT


def test_what_an_operator_without_a_record_had_promoted_goes_on() -> None:
    for replicas, stage in ((1, Stage.SETTLING), (2, Stage.PROMOTED)):
        workloads = (deployment("old", 2), deployment("new", replicas))
        assert after(None, given(workloads=workloads)).stage is stage


def test_of_several_older_revisions_the_one_that_serves_most_is_stable() -> None:
    pods = (pod("a", "1", ready=True), *(pod("b", name, ready=True) for name in "23"))
    workloads = (deployment("a", 2), deployment("b", 2), deployment("new", 0))
    assert after(None, given(pods=pods, workloads=workloads)).stable == "b"


@pytest.mark.parametrize(
    ("rollout", "carried", "most_new"),
    [(SETTLING, "new", 0), (CANARY, "new", 1), (PROMOTED, "new", None), (VETOED, "old", None)],
)
def test_each_stage_carries_out_one_revision_and_bounds_the_new_one(
    rollout: Rollout, carried: str, most_new: int | None
) -> None:
    assert (rollout.carried, rollout.most_new) == (carried, most_new)
    assert rollout.on_trial is (most_new is not None)
    assert rollout.vetoes("new") is (rollout is VETOED)
    assert not rollout.vetoes("old")


def test_what_was_vetoed_is_tried_again_only_when_asked_anew() -> None:
    vetoed = replace(VETOED, retry="1")
    for retry, stage in (
        ("", Stage.ROLLED_BACK),
        ("1", Stage.ROLLED_BACK),
        ("2", Stage.SETTLING),
    ):
        assert after(vetoed, given(100, retry=retry)).stage is stage
    assert after(CANARY, given(10, retry="2")).stage is Stage.CANARY


def test_who_asked_while_the_canary_was_watched_has_not_asked_for_another() -> None:
    late = given(PATIENCE_S, pod(), retry="2")
    vetoed = after(after(CANARY, given(0, pod())), late)
    assert vetoed.stage is Stage.ROLLED_BACK
    assert after(vetoed, replace(late, now_s=late.now_s + 1)).stage is Stage.ROLLED_BACK


@pytest.mark.parametrize(
    ("before", "stable", "is_told"),
    [(SETTLING, "old", False), (CANARY, "old", True), (PROMOTED, "new", True)],
)
def test_a_newer_spec_goes_on_from_what_served_last(
    before: Rollout, stable: str, *, is_told: bool
) -> None:
    step = next_step(before, given(20, pod(ready=True), revision="newer"))
    assert step.rollout is not None
    assert (step.rollout.stage, step.rollout.stable) == (Stage.SETTLING, stable)
    message = "The rollout to revision new ends: the spec asks for newer now."
    assert told(step) == ([message] if is_told else [])


def test_a_newer_spec_is_tried_beside_what_serves_though_another_was_promoted() -> None:
    """As after a promotion that went wrong: the mending is a change like any other."""
    settling = after(PROMOTED, given(20, pod(), revision="newer"))
    assert settling.stable == "old"
    assert after(settling, given(30, pod(), revision="newer")).stage is Stage.CANARY
    down = (pod("old", "a"), pod())
    assert after(PROMOTED, given(20, revision="newer", pods=down)).stable == "new"


@pytest.mark.parametrize(("before", "is_told"), [(CANARY, True), (VETOED, False)])
def test_a_revert_is_over_at_once_and_told_unless_it_had_gone_back(
    before: Rollout, *, is_told: bool
) -> None:
    step = next_step(before, given(20, revision="old"))
    assert step.rollout is not None
    assert (step.rollout.stage, step.rollout.reason) == (Stage.PROMOTED, Reason.REVERTED)
    message = "The rollout to revision new ends: the spec is back at old."
    assert told(step) == ([message] if is_told else [])


def test_a_pause_stops_every_clock() -> None:
    watch = CanaryWatch(pod="canary", ready_since_s=NOW_S + 5, restarts=0, uid="uid of canary")
    baking = replace(CANARY, watch=watch)
    canary = pod(ready=True)
    paused = replace(SETTINGS, paused=True)
    held = after(baking, given(100, canary, settings=paused))
    assert held == replace(baking, paused_at_s=NOW_S + 100)
    assert after(held, given(500, canary, settings=paused)) == held
    resumed = after(held, given(600, canary))
    assert (resumed.paused_at_s, resumed.began_at_s) == (None, NOW_S + 500)
    assert resumed.watch == replace(watch, ready_since_s=NOW_S + 505)


def test_what_our_own_plan_makes_no_room_for_costs_no_patience() -> None:
    """However long it takes until somebody decides."""
    waits = after(CANARY, given(100))
    held = after(waits, given(PATIENCE_S, blocked="Group kimi-old-0 does not serve."))
    assert (held.stage, held.reason) == (Stage.CANARY, Reason.ROLLOUT_BLOCKED)
    assert held.message == "Group kimi-old-0 does not serve."
    assert after(held, given(9 * PATIENCE_S, blocked=held.message)) == held
    freed = after(held, given(10 * PATIENCE_S))
    assert (freed.stage, freed.reason) == (Stage.CANARY, Reason.CANARY_STARTING)
    assert freed.watch is not None
    assert freed.watch.unready_since_s == NOW_S + 100 + 9 * PATIENCE_S


def test_a_pause_does_not_use_up_the_time_to_become_ready() -> None:
    watch = CanaryWatch(pod="canary", unready_since_s=NOW_S, uid="uid of canary")
    held = replace(CANARY, watch=watch, paused_at_s=NOW_S + 100)
    resumed = after(held, given(600, pod()))
    assert resumed.watch == replace(watch, unready_since_s=NOW_S + 500)


def test_a_canary_that_is_scaled_to_zero_neither_passes_nor_fails() -> None:
    watch = CanaryWatch(pod="canary", ready_since_s=NOW_S, uid="uid of canary")
    zero = replace(SETTINGS, replicas=0)
    held = after(replace(CANARY, watch=watch), given(100, pod(ready=True), settings=zero))
    assert (held.stage, held.watch, held.paused_at_s) == (Stage.CANARY, watch, NOW_S + 100)
    assert held.message == "the canary comes back with the others: spec.replicas is 0."
    assert after(held, given(90_000, settings=zero)) == held
    resumed = after(held, given(90_000, pod(name="another")))
    assert (resumed.stage, resumed.paused_at_s) == (Stage.CANARY, None)
    assert resumed.watch == CanaryWatch(
        pod="another", unready_since_s=NOW_S + 90_000, uid="uid of another"
    )


BAKING = replace(CANARY, watch=CanaryWatch(pod="canary", ready_since_s=NOW_S, uid="uid of canary"))


@pytest.mark.parametrize("looked_after_s", [None, 0.0, 60.0])
def test_what_nobody_watched_stops_every_clock_soon_after_the_last_look(
    looked_after_s: float | None,
) -> None:
    """What an earlier Fathom kept tells only when something was seen to begin."""
    looked_at_s = None if looked_after_s is None else NOW_S + looked_after_s
    until_s = (looked_after_s or 0.0) + 180

    def seen(after_s: float) -> Rollout:
        return after(BAKING, given(after_s, pod(ready=True), looked_at_s=looked_at_s))

    assert (seen(until_s).began_at_s, seen(until_s).watch) == (NOW_S, BAKING.watch)
    later = seen(until_s + 7000)
    assert (later.began_at_s, later.paused_at_s) == (NOW_S + 7000, None)
    assert later.watch == replace(BAKING.watch or CanaryWatch(pod=""), ready_since_s=NOW_S + 7000)


@pytest.mark.parametrize("ready_s", [None, NOW_S - 5])
def test_and_of_its_patience_while_it_does_not_serve(ready_s: float | None) -> None:
    """Also where it did before, and whatever the bake is."""
    watch = replace(
        BAKING.watch or CanaryWatch(pod=""), ready_since_s=ready_s, unready_since_s=NOW_S
    )
    waiting = replace(CANARY, watch=watch)
    settings = replace(SETTINGS, bake_s=0.0)
    for away_s in (0.0, 50.0):
        at_s = PATIENCE_S * 0.15 + away_s
        found = after(waiting, given(at_s, pod(), settings=settings, looked_at_s=None)).watch
        assert found is not None
        assert found.unready_since_s == NOW_S + away_s


def test_a_pause_is_no_absence_and_a_clock_that_is_set_back_none_either() -> None:
    held = replace(BAKING, paused_at_s=NOW_S + 100)
    assert after(held, given(9000, pod(ready=True), looked_at_s=None)).began_at_s == NOW_S + 8900
    back = given(100, pod(ready=True), looked_at_s=NOW_S + 9000)
    assert after(BAKING, back).watch == BAKING.watch


def test_a_clock_that_was_set_back_makes_nobody_wait() -> None:
    assert after(replace(SETTLING, began_at_s=NOW_S + 9000), given()).began_at_s == NOW_S
    ahead = CanaryWatch(pod="canary", ready_since_s=NOW_S + 500, uid="uid of canary")
    found = after(replace(CANARY, began_at_s=NOW_S - 60, watch=ahead), given(0, pod(ready=True)))
    assert found.began_at_s == NOW_S - 60
    assert found.watch == replace(ahead, ready_since_s=NOW_S)
    late = CanaryWatch(pod="canary", unready_since_s=NOW_S + 500, uid="uid of canary")
    assert watched(late, 0, pod()).unready_since_s == NOW_S
    held = replace(CANARY, paused_at_s=NOW_S + 500, watch=replace(late, unready_since_s=NOW_S - 5))
    resumed = after(held, given(0, pod()))
    assert (resumed.began_at_s, resumed.watch) == (NOW_S, held.watch)


COUNTED = PodDelta(
    pod="p", from_s=0, to_s=60, engine=EngineCounts(generation_tokens=10), cells={}, drafts={}
)
IDLE = replace(COUNTED, engine=EngineCounts())


def window() -> CanaryWindow:
    return CanaryWindow((COUNTED,), (COUNTED,))


@pytest.mark.parametrize(
    ("bake_s", "after_s", "counts"),
    [(1200, 119, False), (1200, 120, True), (240, 59, False), (240, 60, True)],
)
def test_what_a_cold_canary_counts_is_left_out(
    bake_s: float, after_s: float, *, counts: bool
) -> None:
    watch = CanaryWatch(pod="canary", ready_since_s=NOW_S, uid="uid of canary")
    settings = replace(SETTINGS, bake_s=bake_s)
    seen = given(after_s, pod(ready=True), settings=settings, window=window())
    assert after(replace(CANARY, watch=watch), seen).evidence.looks == counts


@pytest.mark.parametrize(
    ("after_s", "found", "counts"),
    [
        (3599, "idle", True),
        (3600, "idle", False),
        (3600, "unreadable", False),
        (3600, "busy", True),
    ],
)
def test_once_the_longest_bake_is_over_idle_windows_are_not_noted_for_ever(
    after_s: float, found: str, *, counts: bool
) -> None:
    windows = {
        "idle": CanaryWindow((IDLE,), (IDLE, IDLE)),
        "unreadable": CanaryWindow((), ()),
        "busy": window(),
    }
    watch = CanaryWatch(pod="canary", ready_since_s=NOW_S, uid="uid of canary")
    arm = replace(CANARY, watch=watch, arm=True)
    seen = given(after_s, pod(ready=True), window=windows[found], compares=COMPARES)
    assert (after(arm, seen).evidence != arm.evidence) == counts


def test_what_one_counts_that_is_down_again_is_left_out() -> None:
    watch = CanaryWatch(pod="canary", ready_since_s=NOW_S, uid="uid of canary")
    seen = given(600, pod(), window=window())
    assert after(replace(CANARY, watch=watch), seen).evidence.looks == 0


def watched(before: CanaryWatch | None, after_s: float, *pods: ObservedPod) -> CanaryWatch:
    found = after(replace(CANARY, watch=before), given(after_s, *pods)).watch
    assert found is not None
    return found


def test_a_canary_that_is_down_for_a_minute_bakes_on_for_one_more() -> None:
    ready = watched(None, 100, pod(ready=True, restarts=2))
    assert ready == CanaryWatch(
        pod="canary", ready_since_s=NOW_S + 100, restarts=2, uid="uid of canary"
    )
    down = watched(ready, 200, pod(restarts=2))
    assert down == replace(ready, unready_since_s=NOW_S + 200)
    assert watched(down, 230, pod(restarts=2)) == down
    back = watched(down, 260, pod(ready=True, restarts=2))
    assert back == replace(ready, ready_since_s=NOW_S + 160)


def test_another_pod_in_its_place_bakes_anew_and_has_no_more_time_to_start() -> None:
    ready = watched(None, 100, pod(ready=True))
    gone = watched(ready, 200)
    assert gone == replace(ready, ready_since_s=None, unready_since_s=NOW_S + 200)
    other = watched(gone, 300, pod(name="other"))
    assert other == CanaryWatch(pod="other", unready_since_s=NOW_S + 200, uid="uid of other")
    assert watched(other, 400, pod(name="other", ready=True)).ready_since_s == NOW_S + 400


def test_of_two_pods_the_watched_one_stays_the_canary_and_else_the_ready_one() -> None:
    ready = watched(None, 100, pod(name="b"), pod(name="c", ready=True))
    assert ready.pod == "c"
    for other in "bd":
        assert watched(ready, 200, pod(name=other, ready=True), pod(name="c")).pod == "c"


@pytest.mark.parametrize(("changes", "others"), [({"replicas": 1}, 0), ({"bake_s": 0.0}, 2)])
def test_with_nothing_beside_it_or_no_bake_it_is_enough_to_become_ready(
    changes: dict[str, Any], others: int
) -> None:
    settings = replace(SETTINGS, **changes)
    workloads = (deployment("old", others), deployment("new", 1))

    def seen(canary: ObservedPod) -> RolloutInput:
        return given(100, canary, settings=settings, workloads=workloads)

    assert after(CANARY, seen(pod())).stage is Stage.CANARY
    step = next_step(CANARY, seen(pod(ready=True)))
    assert step.rollout is not None
    assert step.rollout.stage is Stage.PROMOTED
    assert told(step) == ["Revision new replaces old everywhere: it became ready."]


def test_at_one_replica_it_is_watched_as_long_as_another_stands_beside_it() -> None:
    found = after(CANARY, given(100, pod(ready=True), settings=replace(SETTINGS, replicas=1)))
    assert (found.stage, found.reason) == (Stage.CANARY, Reason.CANARY_BAKING)


def test_what_is_awaited_is_said() -> None:
    assert after(CANARY, given(100)).message == "the canary is starting."
    assert after(CANARY, given(100, pod())).message == "the canary, pod canary, is starting."
    assert after(SETTLING, given(10, held="its weights are fetched")).message == (
        "begins when its weights are fetched."
    )


def test_no_canary_is_started_beside_what_nobody_knows_how_to_make_again() -> None:
    unknown = given(11, workloads=(deployment("old", 2),), stable_spec_known=False)
    waits = after(SETTLING, unknown)
    assert (waits.stage, waits.reason) == (Stage.SETTLING, Reason.STABLE_SPEC_UNKNOWN)
    assert "the spec of revision old, which serves, is not known" in waits.message
    assert names.ANNOTATION_RETRY_ROLLOUT in waits.message
    later = replace(unknown, now_s=unknown.now_s + 3600)
    assert after(waits, later) == waits
    # It is known again, as when the spec of old was put back for a while.
    assert after(waits, replace(later, stable_spec_known=True)).stage is Stage.CANARY
    # What serves nobody puts nothing at risk, but a probe that fails for a moment is no such thing.
    assert after(waits, replace(later, pods=())).stage is Stage.PROMOTED
    blinks = (pod("old", "a", since_s=later.now_s - 5),)
    assert after(waits, replace(later, pods=blinks)).stage is Stage.SETTLING


def test_who_asks_for_it_all_the_same_gets_one_canary() -> None:
    unknown = given(11, workloads=(deployment("old", 2),), stable_spec_known=False)
    asked = after(SETTLING, replace(unknown, retry="now"))
    assert (asked.stage, asked.retry) == (Stage.CANARY, "now")
    vetoed = replace(VETOED, retry="before")
    again = after(vetoed, replace(unknown, now_s=NOW_S, retry="now"))
    assert again.stage is Stage.SETTLING
    canary = after(again, replace(unknown, retry="now"))
    assert (canary.stage, canary.retry) == (Stage.CANARY, "now")


def test_a_canary_goes_back_also_where_only_the_pods_of_the_others_are_known() -> None:
    found = after(CANARY, given(100, pod(restarts=3), stable_spec_known=False))
    assert (found.stage, found.reason) == (Stage.ROLLED_BACK, Reason.CANARY_CRASHED)


@pytest.mark.parametrize("pods", [(), (pod(restarts=3),), (pod(ready=True),)])
def test_where_nothing_is_left_to_go_back_to_the_canary_is_all_there_is(
    pods: tuple[ObservedPod, ...],
) -> None:
    """As after an API server that answered with an old state: held, it would be for good."""
    gone = given(100, pods=pods, workloads=(deployment("new", 1),), stable_spec_known=False)
    step = next_step(CANARY, gone)
    assert step.rollout is not None
    assert (step.rollout.stage, step.rollout.reason) == (Stage.PROMOTED, Reason.NOTHING_TO_PROTECT)
    assert told(step) == [
        "Revision new replaces old everywhere: nothing is left of revision old to go back to."
    ]
    # What was rolled back stays so: what it was rolled back to may yet come back.
    assert after(VETOED, gone).stage is Stage.ROLLED_BACK


@pytest.mark.parametrize(
    "left",
    [
        {"stable_spec_known": True},
        {"workloads": (deployment("new", 1), deployment("old", 0))},
        {"pods": (pod("old", "a"),)},
    ],
)
def test_a_spec_a_workload_or_a_pod_is_something_to_go_back_to(left: dict[str, Any]) -> None:
    gone = given(100, pods=(), workloads=(deployment("new", 1),), stable_spec_known=False)
    assert after(CANARY, replace(gone, **left)).stage is not Stage.PROMOTED


def test_what_has_replicas_in_two_workloads_was_promoted_before() -> None:
    """By an operator that kept no record: a canary has one."""
    workloads = (group("old"), group("new", "00"), group("new", "01"))
    assert after(None, given(10, workloads=workloads[:2])).stage is Stage.SETTLING
    assert after(None, given(10, workloads=workloads)).stage is Stage.PROMOTED


def test_it_is_over_when_every_replica_is_of_the_new_revision_and_ready() -> None:
    def rolled(*pods: ObservedPod, old: int = 0) -> RolloutStep:
        workloads = (deployment("old", old), deployment("new", 3))
        return next_step(PROMOTED, given(100, pods=pods, workloads=workloads))

    ready = tuple(pod(name=name, ready=True) for name in "abc")
    done = rolled(*ready)
    assert (done.rollout, told(done)) == (None, ["Every replica is of revision new."])
    assert rolled(*ready[:2], pod(name="c")).rollout == PROMOTED
    assert rolled(*ready, pod("old", "d")).rollout == PROMOTED
    assert rolled(*ready, old=1).rollout == PROMOTED


def test_what_was_reverted_before_anything_moved_ends_in_silence() -> None:
    reverted = replace(PROMOTED, reason=Reason.REVERTED)
    ready = tuple(pod(name=name, ready=True) for name in "abc")
    workloads = (deployment("old", 0), deployment("new", 3))
    step = next_step(reverted, given(100, pods=ready, workloads=workloads))
    assert (step.rollout, told(step)) == (None, [])


COMPARES = Compares.ADAPTIVE_VERIFICATION
ARM = replace(
    CANARY,
    arm=True,
    watch=CanaryWatch(pod="canary", ready_since_s=NOW_S, uid="uid of canary"),
    compared=ArmComparison(found=Compared.FASTER, at_s=NOW_S, mean=0.1, error=0.01),
)
DAYS_S = 30 * 86400.0


def test_one_that_was_compared_stays_for_as_long_as_it_is_asked_for() -> None:
    found = after(ARM, given(DAYS_S, pod(ready=True), compares=COMPARES))
    assert (found.stage, found.compared) == (Stage.CANARY, ARM.compared)
    moved = replace(ARM, watch=replace(ARM.watch or CanaryWatch(pod=""), pod="gone"))
    assert after(moved, given(DAYS_S, pod(), compares=COMPARES)).stage is Stage.CANARY


@pytest.mark.parametrize(
    ("after_s", "left"), [(0, "20 more minutes"), (610, "10 more minutes"), (1199, "1 more minute")]
)
def test_one_that_is_compared_says_for_how_long(after_s: float, left: str) -> None:
    found = after(replace(ARM, compared=None), given(after_s, pod(ready=True), compares=COMPARES))
    assert found.message.endswith(f"; compared for {left}.")


def test_one_that_never_stays_to_be_compared_is_given_up() -> None:
    found = after(replace(ARM, compared=None), given(DAYS_S, pod(ready=True), compares=COMPARES))
    assert (found.stage, found.reason) == (Stage.ROLLED_BACK, Reason.CANARY_NOT_READY)


def test_one_to_be_compared_waits_while_no_other_serves() -> None:
    down = (pod("old", "a"), pod("old", "b"))
    seen = given(10, pods=down, compares=COMPARES, workloads=(deployment("old", 3),))
    assert after(replace(SETTLING, arm=True), seen).stage is Stage.SETTLING


def test_what_was_compared_is_rolled_out_by_what_it_has_shown() -> None:
    step = next_step(ARM, given(DAYS_S, pod(ready=True)))
    assert step.rollout is not None
    assert (step.rollout.arm, step.rollout.compared) == (False, None)
    assert step.rollout.watch == ARM.watch
    assert told(step)[0].endswith("is the canary of its rollout: what it has shown counts.")


def test_a_canary_that_is_to_be_compared_from_now_on_stays() -> None:
    canary = replace(ARM, arm=False, compared=None)
    step = next_step(canary, given(DAYS_S, pod(ready=True), compares=COMPARES))
    assert step.rollout is not None
    assert (step.rollout.stage, step.rollout.arm) == (Stage.CANARY, True)
    assert told(step)[0] == "The replica of revision new stays, to be compared with the others."


def test_one_that_was_given_up_is_tried_from_the_beginning_once_all_are_to_be_like_it() -> None:
    failed = replace(ARM, stage=Stage.ROLLED_BACK, reason=Reason.CANARY_CRASHED)
    assert after(failed, given(compares=COMPARES)) == failed
    begun = after(failed, given(workloads=(deployment("old", 3),)))
    assert (begun.stage, begun.arm, begun.watch) == (Stage.SETTLING, False, None)
