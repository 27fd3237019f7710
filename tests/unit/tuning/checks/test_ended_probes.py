"""Probes that the pod itself ends: nobody has to be there, and nobody is taken for disobedient."""

from dataclasses import replace

import pytest

from fathom.engine.depth import DepthDocument
from fathom.tuning.checks.probing import ends_after_s
from fathom.tuning.interface import Action
from unit.tuning.plant import EASY, HARD, SETTINGS, Fleet, Pod


def in_a_probe(fleet: Fleet) -> Pod:
    """Until a probe is in force; its pod."""
    while fleet.state.probe is None or not fleet.state.probe.in_force_at_s:
        fleet.run(1)
    probe = fleet.state.probe
    return next(pod for pod in fleet.pods if pod.name == probe.pod)


def alone(fleet: Fleet, seconds: float) -> Fleet:
    """Time in which nobody decides."""
    fleet.wake_at_s = fleet.now_s + seconds
    return fleet.run(seconds)


def document(fleet: Fleet) -> DepthDocument:
    assert fleet.document is not None
    return fleet.document


def test_each_probe_has_an_end_and_a_pin_has_none() -> None:
    fleet = Fleet(acceptance=EASY)
    pod = in_a_probe(fleet)
    assert document(fleet).ends == {pod.name: ends_after_s(SETTINGS)}
    pod.pinned_depth = 2
    fleet.step()
    assert pod.name in document(fleet).pods
    assert document(fleet).ends == {}


@pytest.mark.parametrize("window_s", [5.0, 30.0, 600.0])
def test_an_operator_that_works_ends_a_probe_before_its_pod_does(window_s: float) -> None:
    settings = replace(SETTINGS, window_seconds=window_s)
    for silent in (False, True):
        fleet = Fleet(acceptance=EASY, settings=settings, tick_s=max(1.0, window_s / 30))
        pod = in_a_probe(fleet)
        since_s = fleet.now_s
        pod.readable = not silent
        while pod.own_ends is not None and not pod.ended:
            fleet.run(fleet.tick_s)
        assert pod.ended == []
        assert fleet.now_s - since_s < ends_after_s(settings) / 2


def steps_at(pod: Pod, pairs: set[tuple[int, int]]) -> float:
    counted = pod.cells.items()
    return sum(counts.steps for cell, counts in counted if (cell.batch_le, cell.depth) in pairs)


def test_a_pod_ends_its_probe_while_nobody_decides_and_has_disobeyed_nothing() -> None:
    fleet = Fleet(acceptance=EASY)
    pod = in_a_probe(fleet)
    own, common = pod.schedule, document(fleet).schedule
    alone(fleet, ends_after_s(SETTINGS) + 200)
    assert pod.ended
    assert pod.schedule == common != own

    decision = fleet.step()
    assert decision.not_obeyed == ()
    assert document(fleet).pods == {}
    assert pod.name not in fleet.run(60).state.disobeying
    assert not [each for each in fleet.decisions if each[1].not_obeyed]


def test_steps_after_the_end_are_none_of_the_probe() -> None:
    fleet = Fleet(acceptance=EASY)
    pod = in_a_probe(fleet)
    assert fleet.state.probe is not None
    tried = set(fleet.state.probe.depths)
    pod.own_ends = (fleet.now_s + 1, document(fleet).schedule)
    seen = 0.0
    while fleet.state.probe is not None:
        seen = fleet.state.probe.steps
        fleet.run(1)
    assert pod.ended
    assert 0 < seen <= steps_at(pod, tried)
    assert not [each for each in fleet.decisions if each[1].not_obeyed]


def test_one_that_ended_before_it_was_seen_is_given_up() -> None:
    fleet = Fleet(acceptance=EASY)
    while not fleet.actions(Action.PROBE):
        fleet.run(1)
    alone(fleet, ends_after_s(SETTINGS) + 5)
    assert any(pod.ended for pod in fleet.pods)
    fleet.step()
    assert document(fleet).pods == {}


def test_a_probe_of_an_earlier_fathom_goes_on_without_an_end() -> None:
    fleet = Fleet(acceptance=EASY)
    in_a_probe(fleet)
    assert fleet.state.probe is not None
    fleet.state = replace(fleet.state, probe=replace(fleet.state.probe, ends_after_s=0))
    before = fleet.document = replace(document(fleet), ends={})
    assert fleet.step().action is Action.HOLD
    assert fleet.document is before


def test_engines_that_do_not_know_their_name_are_never_probed_and_the_reason_is_said() -> None:
    fleet = Fleet(acceptance=EASY, replicas=2)
    for pod in fleet.pods:
        pod.named = False
    fleet.run(300)
    assert all(document.pods == {} for _, document in fleet.writes)
    assert not fleet.actions(Action.PROBE)
    told = [each.message for _, each in fleet.decisions if "FATHOM_POD_NAME" in each.message]
    assert told, fleet.log()
    assert "cannot be tried: depth" in told[0]
    assert "Of pod-0, pod-1 the engine does not know its pod's name" in told[0]


def test_one_that_knows_its_name_is_probed_for_all() -> None:
    fleet = Fleet(acceptance=HARD, replicas=3)
    for pod in fleet.pods[1:]:
        pod.named = False
    fleet.run(200)
    assert {pod for _, document in fleet.writes for pod in document.pods} == {"pod-0"}


def test_a_pin_that_its_engine_would_not_find_is_not_written() -> None:
    fleet = Fleet(acceptance=EASY).run(60)
    fleet.pods[0].pinned_depth = fleet.pods[1].pinned_depth = 1
    fleet.pods[1].named = False
    fleet.run(30)
    assert document(fleet).pods.keys() == {"pod-0"}
    assert not fleet.run(200).decisions[-1][1].not_obeyed
