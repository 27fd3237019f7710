"""An alarm as people meet it: a condition, an event, a metric."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fathom.api.conditions import AlarmKind, Reason
from fathom.core.cluster.kinds import SPECULATIVE_DEPLOYMENT
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.interface import TuningDecision, TuningSnapshot
from support.bench import Bench, holding

CLIFF = Alarm(
    kind=AlarmKind.DRAFT_MISMATCH,
    reason=Reason.ACCEPTANCE_CLIFF,
    message="The first draft token is accepted 30% of the time; it was 90%.",
    recommendation="Check that the draft belongs to the target.",
    since_s=1_800_000_000.0,
)
ONE_POD = replace(CLIFF, reason=Reason.ONE_POD_DIFFERS, message="pod-2 accepts 40%.")
NEVER = replace(
    CLIFF, kind=AlarmKind.SPECULATION_NEVER_PAYS, reason=Reason.SLOWER_THAN_WITHOUT, message="No."
)

Raise = Callable[..., None]


@pytest.fixture
def alarmed(bench: Bench) -> Raise:
    """Lets exactly these alarms stand."""

    def set_to(*alarms: Alarm) -> None:
        def decide(snapshot: TuningSnapshot) -> TuningDecision:
            return replace(holding(snapshot), alarms=alarms)

        bench.decide = decide

    return set_to


def kinds(bench: Bench) -> set[str]:
    return {each["type"] for each in bench.status["conditions"]} & set(AlarmKind)


def events(bench: Bench) -> list[tuple[str, str, str]]:
    return [
        (each.body["type"], each.body["reason"], each.body["message"])
        for each in bench.kube.written("Event")
    ]


def metric(bench: Bench, kind: AlarmKind) -> float | None:
    labels = {"namespace": "llm", "name": "kimi", "alarm": kind.value}
    return bench.world.telemetry.registry.get_sample_value("fathom_alarm", labels)


async def test_what_was_never_raised_is_no_condition(bench: Bench) -> None:
    await bench.tick()
    assert kinds(bench) == set()


async def test_a_raised_alarm_is_a_condition_at_once(bench: Bench, alarmed: Raise) -> None:
    alarmed(CLIFF)
    await bench.tick()

    found = bench.condition("DraftMismatch")
    assert kinds(bench) == {"DraftMismatch"}
    assert (found["status"], found["reason"]) == ("True", "AcceptanceCliff")
    assert found["message"] == f"{CLIFF.message} {CLIFF.recommendation}"


async def test_what_is_over_stays_as_a_condition_that_is_false(
    bench: Bench, alarmed: Raise
) -> None:
    alarmed(CLIFF)
    await bench.tick()
    raised_at = bench.condition("DraftMismatch")["lastTransitionTime"]
    alarmed()
    bench.clock.at_s += 5
    await bench.tick()

    found = bench.condition("DraftMismatch")
    assert (found["status"], found["reason"]) == ("False", "Cleared")
    assert found["lastTransitionTime"] > raised_at


async def test_each_turn_is_one_event(bench: Bench, alarmed: Raise) -> None:
    alarmed(CLIFF)
    await bench.run_for(300)
    warned = ("Warning", "DraftMismatch", f"{CLIFF.message} {CLIFF.recommendation}")
    assert events(bench) == [warned]

    alarmed()
    await bench.run_for(300)
    assert [each[:2] for each in events(bench)[1:]] == [("Normal", "DraftMismatchOver")]


async def test_another_cause_is_another_event(bench: Bench, alarmed: Raise) -> None:
    alarmed(CLIFF)
    await bench.tick()
    alarmed(ONE_POD)
    await bench.tick()
    assert [each[2].split()[0] for each in events(bench)] == ["The", "pod-2"]


async def test_new_numbers_alone_are_no_event_and_wait_a_minute(
    bench: Bench, alarmed: Raise
) -> None:
    alarmed(CLIFF)
    await bench.tick()
    bench.kube.writes.clear()
    alarmed(replace(CLIFF, message="The first draft token is accepted 31% of the time."))
    bench.clock.at_s += 5
    await bench.tick()
    assert bench.kube.writes == []

    bench.clock.at_s += 60
    await bench.tick()
    assert "31%" in bench.condition("DraftMismatch")["message"]
    assert events(bench) == []


async def test_a_restarted_operator_does_not_raise_it_anew(bench: Bench, alarmed: Raise) -> None:
    alarmed(CLIFF)
    await bench.tick()
    bench.kube.writes.clear()
    bench.restart()
    await bench.run_for(300)
    assert bench.kube.writes == []


async def test_alarms_stand_side_by_side(bench: Bench, alarmed: Raise) -> None:
    alarmed(CLIFF, NEVER)
    await bench.tick()
    alarmed(NEVER)
    await bench.tick()

    assert bench.condition("DraftMismatch")["status"] == "False"
    assert bench.condition("SpeculationNeverPays")["status"] == "True"


async def test_an_alarm_does_not_degrade(bench: Bench, alarmed: Raise) -> None:
    alarmed(CLIFF)
    await bench.tick()
    assert bench.condition("Degraded")["reason"] == "AsExpected"
    assert bench.condition("Ready")["status"] == "True"


async def test_the_metric_is_1_while_it_stands(bench: Bench, alarmed: Raise) -> None:
    alarmed(CLIFF)
    await bench.tick()
    assert metric(bench, AlarmKind.DRAFT_MISMATCH) == 1
    assert metric(bench, AlarmKind.SPECULATION_NEVER_PAYS) == 0

    alarmed()
    await bench.tick()
    assert metric(bench, AlarmKind.DRAFT_MISMATCH) == 0


async def test_the_metric_goes_with_its_resource(bench: Bench, alarmed: Raise) -> None:
    alarmed(CLIFF)
    await bench.tick()
    bench.kube.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
    await bench.tick()
    assert metric(bench, AlarmKind.DRAFT_MISMATCH) is None


async def test_a_spec_that_cannot_be_carried_out_clears_nothing(
    bench: Bench, alarmed: Raise
) -> None:
    alarmed(CLIFF)
    await bench.tick()
    changes: dict[str, Any] = {"draft.method": "telepathy"}
    bench.edit(changes)
    await bench.tick()
    assert bench.condition("Degraded")["reason"] == "InvalidSpec"
    assert bench.condition("DraftMismatch")["status"] == "True"
