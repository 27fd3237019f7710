"""An alarm as people meet it: a condition, an event, a metric."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fathom.api.conditions import AlarmKind, Reason
from fathom.cluster.kinds import SPECULATIVE_DEPLOYMENT
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.interface import TuningDecision, TuningSnapshot
from support.loop_harness import LoopHarness, holding

CLIFF = Alarm(
    kind=AlarmKind.DRAFT_MISMATCH,
    reason=Reason.ACCEPTANCE_CLIFF,
    message="The first draft token is accepted 30% of the time; it was 90%.",
    recommendation=Reason.ACCEPTANCE_CLIFF.advice,
    since_s=1_800_000_000.0,
)
ONE_POD = replace(CLIFF, reason=Reason.ONE_POD_DIFFERS, message="pod-2 accepts 40%.")
NEVER = replace(
    CLIFF, kind=AlarmKind.SPECULATION_NEVER_PAYS, reason=Reason.SPECULATION_SLOWER, message="No."
)

Raise = Callable[..., None]


@pytest.fixture
def alarmed(harness: LoopHarness) -> Raise:
    """Lets exactly these alarms stand."""

    def set_to(*alarms: Alarm) -> None:
        def decide(snapshot: TuningSnapshot) -> TuningDecision:
            return replace(holding(snapshot), alarms=alarms)

        harness.decide = decide

    return set_to


def kinds(harness: LoopHarness) -> set[str]:
    return {each["type"] for each in harness.status["conditions"]} & set(AlarmKind)


def events(harness: LoopHarness) -> list[tuple[str, str, str]]:
    return [
        (each.body["type"], each.body["reason"], each.body["message"])
        for each in harness.kube.written("Event")
    ]


def metric(harness: LoopHarness, kind: AlarmKind) -> float | None:
    labels = {
        "resource": "SpeculativeDeployment",
        "namespace": "llm",
        "name": "kimi",
        "alarm": kind.value,
    }
    return harness.world.telemetry.registry.get_sample_value("fathom_alarm", labels)


async def test_what_was_never_raised_is_no_condition(harness: LoopHarness) -> None:
    await harness.tick()
    assert kinds(harness) == set()


async def test_a_raised_alarm_is_a_condition_at_once(harness: LoopHarness, alarmed: Raise) -> None:
    alarmed(CLIFF)
    await harness.tick()

    found = harness.condition("DraftMismatch")
    assert kinds(harness) == {"DraftMismatch"}
    assert (found["status"], found["reason"]) == ("True", "AcceptanceCliff")
    assert found["message"] == f"{CLIFF.message} {CLIFF.recommendation}"


async def test_what_is_over_stays_as_a_condition_that_is_false(
    harness: LoopHarness, alarmed: Raise
) -> None:
    alarmed(CLIFF)
    await harness.tick()
    raised_at = harness.condition("DraftMismatch")["lastTransitionTime"]
    alarmed()
    harness.clock.at_s += 5
    await harness.tick()

    found = harness.condition("DraftMismatch")
    assert (found["status"], found["reason"]) == ("False", "Cleared")
    assert found["lastTransitionTime"] > raised_at
    # What it was and since when stays in sight, without asking for anything.
    was = f"Far fewer drafts are accepted than before (AcceptanceCliff) since {raised_at}: "
    assert found["message"] == f"{was}{CLIFF.message}"
    harness.clock.at_s += 3600
    await harness.tick()
    assert harness.condition("DraftMismatch") == found


async def test_each_turn_is_one_event(harness: LoopHarness, alarmed: Raise) -> None:
    alarmed(CLIFF)
    await harness.run_for(300)
    warned = ("Warning", "DraftMismatch", f"{CLIFF.message} {CLIFF.recommendation}")
    assert events(harness) == [warned]

    alarmed()
    await harness.run_for(300)
    assert [each[:2] for each in events(harness)[1:]] == [("Normal", "DraftMismatchOver")]


async def test_another_cause_is_another_event(harness: LoopHarness, alarmed: Raise) -> None:
    alarmed(CLIFF)
    await harness.tick()
    alarmed(ONE_POD)
    await harness.tick()
    assert [each[2].split()[0] for each in events(harness)] == ["The", "pod-2"]


async def test_new_numbers_alone_are_no_event_and_wait_a_minute(
    harness: LoopHarness, alarmed: Raise
) -> None:
    alarmed(CLIFF)
    await harness.tick()
    harness.kube.writes.clear()
    alarmed(replace(CLIFF, message="The first draft token is accepted 31% of the time."))
    harness.clock.at_s += 5
    await harness.tick()
    assert harness.kube.writes == []

    harness.clock.at_s += 60
    await harness.tick()
    assert "31%" in harness.condition("DraftMismatch")["message"]
    assert events(harness) == []


async def test_a_restarted_operator_does_not_raise_it_anew(
    harness: LoopHarness, alarmed: Raise
) -> None:
    alarmed(CLIFF)
    await harness.tick()
    harness.kube.writes.clear()
    harness.restart()
    await harness.run_for(300)
    assert harness.kube.writes == []


async def test_alarms_stand_side_by_side(harness: LoopHarness, alarmed: Raise) -> None:
    alarmed(CLIFF, NEVER)
    await harness.tick()
    alarmed(NEVER)
    await harness.tick()

    assert harness.condition("DraftMismatch")["status"] == "False"
    assert harness.condition("SpeculationNeverPays")["status"] == "True"


async def test_an_alarm_does_not_degrade(harness: LoopHarness, alarmed: Raise) -> None:
    alarmed(CLIFF)
    await harness.tick()
    assert harness.condition("Degraded")["reason"] == "AsExpected"
    assert harness.condition("Ready")["status"] == "True"


async def test_the_metric_is_1_while_it_stands(harness: LoopHarness, alarmed: Raise) -> None:
    alarmed(CLIFF)
    await harness.tick()
    assert metric(harness, AlarmKind.DRAFT_MISMATCH) == 1
    assert metric(harness, AlarmKind.SPECULATION_NEVER_PAYS) == 0

    alarmed()
    await harness.tick()
    assert metric(harness, AlarmKind.DRAFT_MISMATCH) == 0


async def test_the_metric_goes_with_its_resource(harness: LoopHarness, alarmed: Raise) -> None:
    alarmed(CLIFF)
    await harness.tick()
    harness.kube.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
    await harness.tick()
    assert metric(harness, AlarmKind.DRAFT_MISMATCH) is None


async def test_a_spec_that_cannot_be_carried_out_clears_nothing(
    harness: LoopHarness, alarmed: Raise
) -> None:
    alarmed(CLIFF)
    await harness.tick()
    changes: dict[str, Any] = {"draft.method": "telepathy"}
    harness.edit(changes)
    await harness.tick()
    assert harness.condition("Degraded")["reason"] == "InvalidSpec"
    assert harness.condition("DraftMismatch")["status"] == "True"
