"""Pods that try another draft are tuned apart, and what they show is held against nobody."""

from dataclasses import replace

import pytest

from fathom.engine.depth import depth_at, flat
from fathom.tuning.learned_state import TuningState
from unit.tuning.plant import EASY, HARD, MIDDLE, SETTINGS, Fleet, Hardware, Pod, best_depth

DRAFT = "someone/another"
NOTHING = (0.0,) * 16
ALLOWS_NONE = replace(SETTINGS, min_tokens=0)


def trying(acceptance: tuple[float, ...], *, of_others: tuple[float, ...]) -> tuple[Fleet, Pod]:
    """Two pods that have found their depth, and one more with another draft."""
    fleet = Fleet(settings=ALLOWS_NONE, acceptance=of_others).run(600)
    pod = fleet.add_pod()
    pod.other_acceptance, pod.tries_draft = acceptance, True
    fleet.draft_on_trial = DRAFT
    return fleet, pod


def depth_of(fleet: Fleet, pod: Pod | None = None) -> int:
    assert fleet.document is not None
    asked = fleet.document.schedule if pod is None else fleet.document.for_pod(pod.name)
    return depth_at(asked, fleet.concurrency)


@pytest.mark.parametrize(("others", "own"), [(NOTHING, EASY), (MIDDLE, EASY), (EASY, HARD)])
def test_it_has_a_depth_of_its_own_and_the_others_keep_theirs(
    others: tuple[float, ...], own: tuple[float, ...]
) -> None:
    fleet, pod = trying(own, of_others=others)
    before = depth_of(fleet)
    fleet.run(600)
    batch = fleet.concurrency
    assert abs(depth_of(fleet, pod) - best_depth(pod.hardware, own, batch, ALLOWS_NONE)) <= 1
    assert depth_of(fleet) == before
    assert fleet.document is not None
    assert {*fleet.document.pods} - {pod.name} <= {each.name for each in fleet.pods[:2]}


def test_it_begins_at_the_users_own_depth() -> None:
    fleet, pod = trying(EASY, of_others=NOTHING)
    assert depth_of(fleet) == 0
    decision = fleet.step()
    assert decision.document.for_pod(pod.name) == flat(SETTINGS.tokens, SETTINGS.max_batch)
    assert f"{pod.name} with draft {DRAFT} is tuned apart." in decision.message


@pytest.mark.parametrize("acceptance", [NOTHING, (1.0,) * 16])
def test_it_raises_no_alarm_and_is_counted_in_no_figure(acceptance: tuple[float, ...]) -> None:
    fleet, _ = trying(acceptance, of_others=MIDDLE)
    fleet.run(120)
    without = fleet.decisions[-1][1].measured
    fleet.run(1800)
    assert not [decision.alarms for _, decision in fleet.decisions if decision.alarms]
    measured = fleet.decisions[-1][1].measured
    assert measured is not None
    assert without is not None
    assert measured.tokens_per_second == pytest.approx(without.tokens_per_second, rel=0.1)
    assert not [each for each in fleet.state.acceptance.pods if each.pod == "pod-2"]


def test_it_has_settled_once_no_depth_is_better_whatever_comes_later() -> None:
    fleet, pod = trying(EASY, of_others=MIDDLE)
    fleet.step()
    (trial,) = fleet.state.cohorts
    assert not trial.settled
    fleet.run(600)
    before = depth_of(fleet, pod)
    pod.other_acceptance = HARD
    for _ in range(30):
        (trial,) = fleet.state.cohorts
        assert trial.settled
        fleet.run(10)
    assert depth_of(fleet, pod) < before


def test_what_it_learned_survives_the_operator_and_its_pod() -> None:
    fleet, pod = trying(EASY, of_others=NOTHING)
    fleet.run(600)
    deep = depth_of(fleet, pod)
    fleet.pods.remove(pod)
    fleet.run(60)
    fleet.state = TuningState.from_json(fleet.state.to_json())
    again = fleet.add_pod()
    again.other_acceptance, again.tries_draft = EASY, True
    fleet.step()
    assert depth_of(fleet, again) == deep


def test_once_it_is_everybodys_all_go_on_with_what_it_has_shown() -> None:
    fleet, pod = trying(EASY, of_others=NOTHING)
    fleet.run(600)
    deep = depth_of(fleet, pod)
    del fleet.pods[:2]
    pod.tries_draft, fleet.draft_on_trial, fleet.adopted_draft = False, "", DRAFT
    decision = fleet.step()
    assert depth_at(decision.document.schedule, fleet.concurrency) == deep
    assert not decision.document.pods
    assert not fleet.state.cohorts
    assert fleet.state.step_times.cells


def test_once_it_is_given_up_nothing_of_it_is_left() -> None:
    fleet, pod = trying(EASY, of_others=NOTHING)
    fleet.run(600)
    fleet.pods.remove(pod)
    fleet.draft_on_trial = ""
    decision = fleet.step()
    assert depth_at(decision.document.schedule, fleet.concurrency) == 0
    assert not decision.document.pods
    assert not fleet.state.cohorts


def test_what_another_gpu_has_shown_is_not_taken_for_the_fleets() -> None:
    fleet, pod = trying(EASY, of_others=NOTHING)
    for each in fleet.pods[:2]:
        each.device, each.hardware = "A", Hardware(per_token_s=0.004)
    pod.device, pod.hardware = "B", Hardware(per_token_s=0.0001, per_token_request_s=0.000005)
    fleet.run(900)
    (trial,) = fleet.state.cohorts
    for each in fleet.pods[:2]:
        each.other_acceptance = EASY
    pod.tries_draft, fleet.draft_on_trial, fleet.adopted_draft = False, "", DRAFT
    fleet.step()
    assert fleet.state.device == "A"
    assert trial.state.step_times.cells
    assert not fleet.state.step_times.cells
    assert fleet.state.survival.pooled().reached[0] > 1000
