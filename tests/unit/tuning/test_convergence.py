"""Pods that do not run what the document asks: few do not hold the others, half of them do."""

from dataclasses import replace

import pytest

from fathom.api.conditions import Reason
from fathom.engine.depth import flat
from fathom.tuning.convergence import convergence
from fathom.tuning.interface import Action
from unit.tuning.plant import EASY, HARD, Fleet


def deaf(replicas: int, count: int) -> Fleet:
    """Some pods stop reading the document, and the traffic changes."""
    fleet = Fleet(acceptance=HARD, replicas=replicas, jitter=0).run(200)
    assert fleet.depth() == 1
    for pod in fleet.pods[:count]:
        pod.deaf = True
    fleet.acceptance = EASY
    return fleet.run(600)


def test_one_deaf_pod_of_four_does_not_hold_the_others() -> None:
    fleet = deaf(4, 1)
    assert fleet.depth() == 7, fleet.log()
    assert all(pod.schedule[0].depth == 7 for pod in fleet.pods[1:])

    decision = fleet.decisions[-1][1]
    assert decision.not_obeyed == ("pod-0",)
    assert decision.reason is not Reason.DEPTH_NOT_OBEYED


def test_a_deaf_pod_is_named_and_told_again() -> None:
    fleet = deaf(4, 1)
    said = [d for _, d in fleet.decisions if d.reason is Reason.DEPTH_NOT_OBEYED]
    assert said
    assert all("pod-0" in d.message for d in said)
    assert said[0].notable
    assert "The other pods are tuned meanwhile." in said[0].message
    assert any("pod-0" in d.message for d in fleet.actions(Action.POKE))


def test_a_document_that_is_written_each_minute_gives_a_deaf_pod_no_more_time() -> None:
    fleet = Fleet(acceptance=HARD, replicas=2, jitter=0).run(200)
    snapshot, found = fleet.snapshot(), []
    assert fleet.document is not None
    state = snapshot.state
    for minute in range(1, 5):
        now_s = snapshot.now_s + 60 * minute
        pods = tuple(
            replace(pod, counters=replace(pod.counters, at_s=now_s))
            for pod in snapshot.pods
            if pod.counters is not None
        )
        written = replace(fleet.document, generation=fleet.document.generation + minute)
        judged = convergence(
            replace(snapshot, now_s=now_s, pods=pods, document_written_at_s=now_s - 1),
            written,
            replace(state, stepped=tuple((pod.name, now_s) for pod in pods)),
        )
        state = replace(state, behind=judged.behind, disobeying=judged.disobeying)
        found.append(judged.disobeying)
    assert found == [(), (), ("pod-0", "pod-1"), ("pod-0", "pod-1")]


def test_a_deaf_pod_carries_no_probe() -> None:
    fleet = deaf(4, 1)
    since_s = next(at_s for at_s, d in fleet.decisions if d.not_obeyed)
    probed = {pod for at_s, document in fleet.writes if at_s > since_s for pod in document.pods}
    assert "pod-0" not in probed


def test_half_of_the_pods_deaf_holds_all() -> None:
    fleet = deaf(4, 2)
    refused = [(at_s, d) for at_s, d in fleet.decisions if d.reason is Reason.DEPTH_NOT_OBEYED]
    assert refused
    assert fleet.decisions[-1][1].reason is Reason.DEPTH_NOT_OBEYED
    assert fleet.decisions[-1][1].not_obeyed == ("pod-0", "pod-1")
    assert fleet.decisions[-1][1].message.endswith("Depth is held.")
    written_s = [at_s for at_s, _ in fleet.writes]
    assert max(written_s) < refused[0][0]


def test_pods_that_hear_again_are_said_to() -> None:
    fleet = deaf(4, 2)
    for pod in fleet.pods:
        pod.deaf = False
    since_s = fleet.now_s
    fleet.run(60)
    told = [d for at_s, d in fleet.decisions if at_s >= since_s and d.notable]
    assert any("pod-0, pod-1 obey again, or serve no more." in d.message for d in told)
    fleet.run(300)
    assert fleet.shortfall() <= 0.03


def test_pods_whose_counters_reach_nobody_are_told_from_those_without_the_plugin() -> None:
    fleet = Fleet(acceptance=HARD, replicas=2, jitter=0).run(200)
    fleet.pods[0].shown = False
    fleet.pods[1].live = False
    decision = fleet.run(300).decisions[-1][1]
    assert decision.reason is Reason.DEPTH_NOT_OBEYED
    assert "pod-1 cannot change depth live" in decision.message
    assert "pod-0 run the plugin, but its counters do not reach /metrics" in decision.message


def obeying(replicas: int = 3) -> Fleet:
    return Fleet(acceptance=HARD, replicas=replicas, jitter=0).run(200)


def test_a_document_from_elsewhere_with_our_number_is_not_ours() -> None:
    fleet = obeying()
    fleet.pods[0].told_hash = 99
    decision = fleet.run(130).decisions[-1][1]
    assert decision.not_obeyed == ("pod-0",)
    told = [d.message for _, d in fleet.decisions if d.reason is Reason.DEPTH_NOT_OBEYED]
    assert told
    assert "pod-0 run a depth document that is not this one, though it is of generation" in told[0]


def test_an_engine_that_tells_no_hash_is_taken_at_its_number() -> None:
    fleet = obeying()
    for pod in fleet.pods:
        pod.told_hash = 0
    assert fleet.run(300).decisions[-1][1].not_obeyed == ()


@pytest.mark.parametrize(
    ("seen", "gone", "sentence"),
    [
        (True, True, "pod-0 find no depth document any more, and went back to tokens"),
        (False, False, "pod-0 never found a depth document they can obey"),
        (True, False, "pod-0 step, but do not run generation"),
    ],
)
def test_it_is_said_why_an_engine_runs_no_document(seen: bool, gone: bool, sentence: str) -> None:  # noqa: FBT001 - the columns of the table above
    fleet = obeying()
    pod = fleet.pods[0]
    pod.deaf, pod.generation, pod.told_hash = True, 0, 0
    pod.document_seen, pod.document_gone = seen, gone
    fleet.acceptance = EASY
    fleet.run(300)
    told = [d.message for _, d in fleet.decisions if d.reason is Reason.DEPTH_NOT_OBEYED]
    assert told
    assert told[0].startswith(sentence)
    assert fleet.decisions[-1][1].not_obeyed == ("pod-0",)


def test_an_idle_engine_whose_document_is_gone_is_told_of_all_the_same() -> None:
    fleet = obeying(1)
    fleet.concurrency = 0
    pod = fleet.pods[0]
    pod.generation, pod.told_hash, pod.document_gone = 0, 0, True
    fleet.run(300)
    assert fleet.decisions[-1][1].reason is Reason.DEPTH_NOT_OBEYED


def test_a_pod_is_held_against_what_it_reads_and_not_against_what_its_cohort_shall_have() -> None:
    fleet = obeying()
    document = fleet.document
    assert document is not None
    for pod in fleet.pods:
        pod.told_hash = document.hash_for_pod(pod.name)
    cohort = replace(document, schedule=flat(6, 16))
    snapshot = replace(fleet.snapshot(), document=cohort)
    assert convergence(replace(snapshot, whole=document), cohort, fleet.state).behind == ()
    assert len(convergence(snapshot, cohort, fleet.state).behind) == 3
