"""Pods whose requests have other text for good are tuned apart."""

from collections.abc import Iterable

import pytest

from fathom.api.conditions import AlarmKind, Reason
from fathom.engine.depth import depth_at, flat
from fathom.tuning.cohorts import OTHER_TEXT_S, by_text
from fathom.tuning.interface import TunedPod
from fathom.tuning.learned_state import Cohort, Misplaced, TuningState
from unit.tuning.plant import EASY, HARD, MIDDLE, WINDOW_30, Fleet, Pod, best_depth

MINUTE_S = 60.0
APART_S = OTHER_TEXT_S + 5 * MINUTE_S
"""In which a pod is put apart, and tuned."""


def fleet_of(*texts: tuple[float, ...], seed: int = 1) -> Fleet:
    """A pod for each, which gets such text alone."""
    fleet = Fleet(settings=WINDOW_30, replicas=len(texts), acceptance=MIDDLE, tick_s=3.0, seed=seed)
    for pod, text in zip(fleet.pods, texts, strict=True):
        pod.speed, pod.other_acceptance = 0.0, text
    return fleet


def asked_of(fleet: Fleet, pod: Pod) -> int:
    assert fleet.document is not None
    return depth_at(fleet.document.for_pod(pod.name), fleet.concurrency)


def are_near_their_best(fleet: Fleet, pods: Iterable[Pod]) -> bool:
    return all(
        abs(
            asked_of(fleet, pod)
            - best_depth(pod.hardware, pod.other_acceptance or MIDDLE, fleet.concurrency)
        )
        <= 1
        for pod in pods
    )


def apart(fleet: Fleet) -> set[tuple[str, ...]]:
    return {each.pods for each in fleet.state.cohorts}


@pytest.mark.parametrize("seed", [1, 2])
def test_each_gets_the_depth_that_is_best_for_its_text(seed: int) -> None:
    fleet = fleet_of(HARD, EASY, seed=seed).run(2 * APART_S)

    assert apart(fleet) in ({("pod-0",)}, {("pod-1",)})
    assert are_near_their_best(fleet, fleet.pods)
    notable = [each for _, each in fleet.decisions if each.reason is Reason.TUNED_APART]
    assert [each.notable for each in notable] == [True]


def test_pods_with_the_same_other_text_are_tuned_together() -> None:
    fleet = fleet_of(HARD, EASY, HARD, EASY, EASY).run(2 * APART_S)

    assert apart(fleet) == {("pod-0", "pod-2")}
    assert are_near_their_best(fleet, fleet.pods)


def test_three_texts_are_three_cohorts() -> None:
    fleet = fleet_of(HARD, MIDDLE, EASY, EASY).run(3 * APART_S)

    assert apart(fleet) == {("pod-0",), ("pod-1",)}
    assert are_near_their_best(fleet, fleet.pods)


@pytest.mark.parametrize("seed", [1, 2])
def test_pods_with_one_text_are_never_put_apart(seed: int) -> None:
    fleet = Fleet(settings=WINDOW_30, replicas=3, acceptance=MIDDLE, tick_s=5.0, seed=seed)
    fleet.between = _without_cohorts
    for text in (EASY, MIDDLE, HARD, MIDDLE) * 2:
        fleet.acceptance = text
        fleet.run(1200)


def _without_cohorts(state: TuningState) -> TuningState:
    assert not state.cohorts
    return state


def test_some_minutes_of_other_text_are_no_reason() -> None:
    fleet = fleet_of(EASY, EASY).run(10 * MINUTE_S)
    for _ in range(4):
        fleet.pods[0].other_acceptance = HARD
        fleet.run(4 * MINUTE_S)
        assert not fleet.state.cohorts
        fleet.pods[0].other_acceptance = EASY
        fleet.run(10 * MINUTE_S)
        assert not fleet.state.cohorts


def test_who_gets_the_same_text_again_is_tuned_with_the_others_again() -> None:
    fleet = fleet_of(HARD, EASY, EASY).run(APART_S)
    assert apart(fleet) == {("pod-0",)}
    fleet.pods[0].other_acceptance = EASY
    fleet.run(2 * APART_S)

    assert not fleet.state.cohorts
    assert fleet.document is not None
    assert not fleet.document.pods
    assert are_near_their_best(fleet, fleet.pods)


def test_the_alarm_of_a_pod_that_accepts_less_stands_though_it_is_tuned_apart() -> None:
    """A broken draft looks just like other text."""
    fleet = fleet_of(HARD, EASY, EASY).run(2 * APART_S)

    assert apart(fleet) == {("pod-0",)}
    alarm = fleet.alarm(AlarmKind.DRAFT_MISMATCH)
    assert alarm is not None
    assert alarm.reason is Reason.ONE_POD_DIFFERS


def test_a_pod_that_is_pinned_is_not_put_apart() -> None:
    fleet = fleet_of(HARD, EASY)
    for pod in fleet.pods:
        pod.pinned_depth = 3
    fleet.run(2 * APART_S)

    assert not fleet.state.cohorts


def test_a_pod_of_a_cohort_that_is_pinned_stays_what_it_was() -> None:
    schedule = flat(3, 16)
    cohort = Cohort(device="", pods=("pod-0", "pod-1"), schedule=schedule, state=TuningState())
    like = Misplaced("pod-1", 40.0)
    pods = tuple(
        TunedPod(name=f"pod-{number}", ready=True, ready_for_s=1e4, pinned_depth=depth)
        for number, depth in enumerate((3, 3, None))
    )

    found = by_text(TuningState(cohorts=(cohort,), misplaced=(like,)), schedule, pods, 50.0)

    assert found.misplaced == (like,)


def test_the_last_pods_left_are_no_longer_unlike_anything() -> None:
    fleet = fleet_of(HARD, EASY).run(2 * APART_S)
    (alone,) = (each.pods for each in fleet.state.cohorts)
    fleet.pods = [pod for pod in fleet.pods if pod.name in alone]
    fleet.run(10 * MINUTE_S)

    assert not fleet.state.cohorts
    assert are_near_their_best(fleet, fleet.pods)


def test_pods_that_serve_nothing_are_not_put_apart() -> None:
    fleet = fleet_of(HARD, EASY).run(4 * MINUTE_S)
    fleet.concurrency = 0
    fleet.run(2 * APART_S)

    assert not fleet.state.cohorts


def test_a_pause_holds_cohorts_as_they_are() -> None:
    fleet = fleet_of(HARD, EASY, EASY).run(APART_S)
    assert apart(fleet) == {("pod-0",)}
    fleet.pods[0].other_acceptance = EASY
    fleet.run(OTHER_TEXT_S - MINUTE_S)
    document = fleet.document
    fleet.paused = "Paused by Bob."
    fleet.run(2 * APART_S)

    assert apart(fleet) == {("pod-0",)}
    assert fleet.document == document


def test_a_pod_that_does_not_obey_is_not_said_to_obey_since_it_is_put_apart() -> None:
    fleet = fleet_of(HARD, EASY, EASY).run(MINUTE_S)
    fleet.pods[0].deaf = True
    fleet.run(2 * APART_S)

    assert apart(fleet) == {("pod-0",)}
    assert fleet.decisions[-1][1].not_obeyed == ("pod-0",)
    assert not any("obey again" in each.message for _, each in fleet.decisions)


def test_a_pod_of_a_cohort_that_goes_takes_its_schedule_along_and_no_other_changes() -> None:
    fleet = fleet_of(HARD, EASY, EASY).run(2 * APART_S)
    kept = [asked_of(fleet, pod) for pod in fleet.pods[1:]]
    del fleet.pods[0]
    fleet.run(MINUTE_S)

    assert fleet.document is not None
    assert not fleet.document.pods
    assert [asked_of(fleet, pod) for pod in fleet.pods] == kept


def test_a_pod_that_comes_back_on_another_gpu_is_in_one_cohort() -> None:
    fleet = fleet_of(HARD, EASY, EASY)
    for pod in fleet.pods:
        pod.device = "one"
    fleet.run(APART_S)
    assert apart(fleet) == {("pod-0",)}
    fleet.pods[0].device = "other"
    fleet.run(MINUTE_S)

    assert [(each.device, each.pods) for each in fleet.state.cohorts] == [("other", ("pod-0",))]


def test_one_of_several_that_are_apart_comes_back_alone() -> None:
    fleet = fleet_of(HARD, HARD, EASY, EASY, EASY).run(2 * APART_S)
    assert apart(fleet) == {("pod-0", "pod-1")}
    fleet.pods[0].other_acceptance = EASY
    fleet.run(2 * APART_S)

    assert apart(fleet) == {("pod-1",)}
    assert are_near_their_best(fleet, fleet.pods)


def test_text_of_which_nothing_is_accepted_is_other_text() -> None:
    fleet = fleet_of((0.0,) * 16, EASY, EASY).run(2 * APART_S)

    assert apart(fleet) == {("pod-0",)}
    assert asked_of(fleet, fleet.pods[0]) == 1
