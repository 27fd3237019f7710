"""Pods on another kind of GPU are tuned apart."""

from dataclasses import replace

from fathom.engine.depth import depth_at
from fathom.tuning.learned_state import TuningState
from unit.tuning.plant import EASY, WINDOW_30, Fleet, Hardware, Pod, best_depth, value

FAST = Hardware(per_token_s=0.0001, per_token_request_s=0.00001)
SLOW = Hardware(per_token_s=0.006, per_token_request_s=0.001)


def two_kinds(*, told: bool = True) -> Fleet:
    """One fast pod, and two slow ones."""
    fleet = Fleet(settings=WINDOW_30, replicas=3, acceptance=EASY, tick_s=1.0)
    for at, pod in enumerate(fleet.pods):
        of_kind(pod, FAST if at == 0 else SLOW, told=told)
    return fleet


def of_kind(pod: Pod, hardware: Hardware, *, told: bool = True) -> None:
    pod.hardware, pod.speed = hardware, 0.0
    if told:
        pod.device = "fast" if hardware is FAST else "slow"


def asked_of(fleet: Fleet, pod: Pod) -> int:
    assert fleet.document is not None
    return depth_at(fleet.document.for_pod(pod.name), fleet.concurrency)


def best_of(fleet: Fleet, pod: Pod) -> int:
    return best_depth(pod.hardware, fleet.acceptance, fleet.concurrency)


def shortfall(fleet: Fleet, pod: Pod) -> float:
    """How much slower a pod is than it could be, relative."""
    best, asked = (
        value(pod.hardware, fleet.acceptance, fleet.concurrency, depth)
        for depth in (best_of(fleet, pod), asked_of(fleet, pod))
    )
    return 1 - asked / best


def test_each_kind_gets_the_depth_that_is_best_for_it_and_the_gain_is_known() -> None:
    fleet = two_kinds().run(900)

    assert best_of(fleet, fleet.pods[0]) >= best_of(fleet, fleet.pods[1]) + 3
    for pod in fleet.pods:
        assert shortfall(fleet, pod) <= 0.03
    measured = fleet.decisions[-1][1].measured
    assert measured is not None
    assert measured.gain is not None
    assert measured.gain > 0.01


def test_where_engines_do_not_tell_what_they_run_on_all_share_one_schedule() -> None:
    fleet = two_kinds(told=False).run(900)

    assert not fleet.state.cohorts
    assert len({asked_of(fleet, pod) for pod in fleet.pods}) == 1


def test_who_is_apart_is_said_once_and_each_speaks_for_itself() -> None:
    fleet = two_kinds().run(60)

    said = [decision for _, decision in fleet.decisions if "tuned apart" in decision.message]
    assert len(said) == 1
    assert said[0].notable
    assert "From now on pod-0 on fast is tuned apart." in said[0].message
    assert "pod-0 on fast: " in fleet.decisions[-1][1].message


def test_a_pod_that_cannot_be_read_stays_where_it_was() -> None:
    fleet = two_kinds().run(600)
    before = asked_of(fleet, fleet.pods[0])
    fleet.pods[0].readable = False
    fleet.run(600)

    assert [each.pods for each in fleet.state.cohorts] == [("pod-0",)]
    assert asked_of(fleet, fleet.pods[0]) == before


def test_a_new_pod_gets_the_depths_of_its_kind() -> None:
    fleet = two_kinds().run(900)
    pod = fleet.add_pod()
    of_kind(pod, FAST)
    fleet.run(60)

    assert asked_of(fleet, pod) == asked_of(fleet, fleet.pods[0])
    assert asked_of(fleet, pod) != asked_of(fleet, fleet.pods[1])


def test_what_is_known_of_a_kind_outlives_its_pods_and_a_restart_of_the_operator() -> None:
    fleet = two_kinds().run(900)
    deep, gone = asked_of(fleet, fleet.pods[0]), fleet.pods.pop(0)
    fleet.run(120)
    assert gone.name not in fleet.document.pods if fleet.document else False
    fleet.state = TuningState.from_json(fleet.state.to_json())
    pod = fleet.add_pod()
    of_kind(pod, FAST)
    fleet.run(60)

    assert asked_of(fleet, pod) == deep


def test_a_fleet_that_goes_over_to_other_gpus_keeps_the_depths_that_run_there() -> None:
    fleet = two_kinds().run(900)
    deep = asked_of(fleet, fleet.pods[0])
    assert fleet.document is not None
    assert depth_at(fleet.document.schedule, fleet.concurrency) != deep
    del fleet.pods[1:]
    fleet.run(60)

    assert fleet.state.device == "fast"
    assert depth_at(fleet.document.schedule, fleet.concurrency) == deep
    assert not fleet.document.pods
    assert [each.device for each in fleet.state.cohorts] == ["slow"]


def test_at_rest_nothing_is_written() -> None:
    fleet = two_kinds().run(900)
    fleet.concurrency = 0
    fleet.run(600)
    document, state = fleet.document, fleet.state.to_json()
    fleet.run(600)

    assert fleet.document == document
    assert fleet.state.to_json() == state


def test_a_probe_of_one_kind_is_no_business_of_the_other() -> None:
    fleet = two_kinds()
    fast = fleet.pods[0]
    while not any(each.state.probe for each in fleet.state.cohorts):
        fleet.run(0.5)
    probe = next(each.state.probe for each in fleet.state.cohorts if each.state.probe)

    assert probe.pod == fast.name
    others = {asked_of(fleet, pod) for pod in fleet.pods[1:]} - {asked_of(fleet, fast)}
    assert others


def test_pins_hold_in_a_cohort() -> None:
    fleet = two_kinds().run(300)
    fleet.pods[0].pinned_depth = 2
    fleet.run(300)
    assert asked_of(fleet, fleet.pods[0]) == 2

    fleet.pods[0].pinned_depth = None
    fleet.run(300)
    assert asked_of(fleet, fleet.pods[0]) >= 5


def test_what_does_not_fit_is_left_out_of_what_is_kept() -> None:
    fleet = two_kinds().run(300)
    (cohort,) = fleet.state.cohorts
    wide = replace(cohort, pods=tuple(f"{at:063}" for at in range(4096)))
    state = replace(fleet.state, cohorts=(wide,))

    kept = TuningState.from_json(state.to_json())
    assert kept.step_times == state.step_times
    assert not kept.cohorts


def test_while_pods_of_the_rest_cannot_be_read_after_a_restart_nobody_moves() -> None:
    fleet = two_kinds().run(900)
    before = [asked_of(fleet, pod) for pod in fleet.pods]
    fleet.state = TuningState.from_json(fleet.state.to_json())
    for pod in fleet.pods[1:]:
        pod.readable = False
    fleet.run(120)

    assert [asked_of(fleet, pod) for pod in fleet.pods] == before
    assert fleet.state.device == "slow"


def test_in_a_pause_a_new_pod_gets_the_depths_of_its_kind_and_one_that_went_is_forgotten() -> None:
    fleet = two_kinds().run(900)
    deep = asked_of(fleet, fleet.pods[0])
    fleet.paused = "Paused by Bob."
    del fleet.pods[0]
    pod = fleet.add_pod()
    of_kind(pod, FAST)
    fleet.run(60)

    assert asked_of(fleet, pod) == deep
    assert fleet.document is not None
    assert list(fleet.document.pods) == [pod.name]
