"""What a person should read first: whether it holds, since when, why, and what to do."""

from fathom.api.conditions import AlarmKind, ConditionType
from fathom.api.status import Condition, SpeculativeDeploymentStatus
from fathom.page.history import KEPT_S
from fathom.page.overview import Health, Notice, notices_in
from fathom.times import rfc3339
from support.page_subjects import condition
from unit.tuning.plant import START_S

READY = condition(ConditionType.READY, "AllReplicasReady")


def noticed(*conditions: Condition, after_s: float = 60) -> tuple[Notice, ...]:
    status = SpeculativeDeploymentStatus(conditions=conditions)
    return notices_in(status, "kimi", START_S + after_s)


def test_an_alarm_says_since_when_why_and_what_to_do() -> None:
    told = "pod-2 accepts 40%. Compare the draft and its revision in that pod's log with another "
    told += "pod's; delete the pod to load it again."
    (alarm,) = noticed(READY, condition(AlarmKind.DRAFT_MISMATCH, "OnePodDiffers", told))

    assert (alarm.health, alarm.over, alarm.since) == (Health.ALARMED, False, rfc3339(START_S))
    assert alarm.title == "One pod accepts far fewer drafts than the others"
    assert alarm.code == "DraftMismatch/OnePodDiffers"
    # The cause first, and what to do apart from it.
    assert alarm.cause == "pod-2 accepts 40%."
    assert alarm.advice.startswith("Compare the draft")


def test_one_that_is_over_says_when_it_ended_for_a_day_and_asks_for_nothing() -> None:
    over = condition(AlarmKind.DRAFT_MISMATCH, "Cleared", "It was low.", holds=False)
    (found,) = noticed(READY, over)

    assert (found.over, found.since, found.advice) == (True, rfc3339(START_S), "")
    assert (found.title, found.cause) == ("The alarm is over", "It was low.")
    assert noticed(READY, over, after_s=KEPT_S) == ()


def test_the_worst_is_first_and_what_is_over_last() -> None:
    found = noticed(
        condition(AlarmKind.SUSPICIOUS_ACCEPTANCE, "Cleared", holds=False),
        condition(AlarmKind.ACCEPTANCE_DECAY, "OlderReplicasAcceptLess"),
        condition(ConditionType.DEGRADED, "PodFailing"),
        condition(ConditionType.PROGRESSING, "RollingOut"),
    )
    assert [each.health for each in found] == [
        *(Health.NOT_WELL, Health.ALARMED, Health.UNDER_WAY, Health.WELL),
    ]


def test_nobody_waits_for_what_is_under_way_while_something_is_wrong() -> None:
    starting = condition(ConditionType.PROGRESSING, "Starting")
    (alone,) = noticed(starting)
    _, beside = noticed(starting, condition(ConditionType.DEGRADED, "PodFailing"))
    assert alone.advice.startswith("Wait")
    assert beside.advice == ""


def test_a_name_is_filled_in_and_no_time_is_told_that_is_not_known() -> None:
    (paused,) = noticed(READY, condition(ConditionType.PROGRESSING, "Paused", holds=False))
    assert paused.health is Health.PAUSED
    assert paused.advice == "`kubectl fathom resume kimi` ends the pause."
    # It was False before: when that began says nothing of the pause.
    assert paused.since == ""


def test_why_nothing_is_tuned_is_told_unless_the_spec_or_another_condition_does() -> None:
    def tuning(reason: str) -> tuple[Notice, ...]:
        return noticed(READY, condition(ConditionType.TUNING, reason, holds=False))

    (refused,) = tuning("MetricsRefused")
    assert refused.title == "The Prometheus refuses the operator"
    assert tuning("Static") == tuning("PodsNotReady") == tuning("Paused") == ()


def test_replicas_that_are_not_ready_are_told_where_nothing_says_why() -> None:
    missing = condition(ConditionType.READY, "ReplicasNotReady", "0 of 2.", holds=False)
    (found,) = noticed(missing)
    assert (found.health, found.code) == (Health.NOT_WELL, "Ready/ReplicasNotReady")
    (why,) = noticed(missing, condition(ConditionType.PROGRESSING, "Starting"))
    assert why.code == "Progressing/Starting"
    assert noticed(condition(ConditionType.READY, "ScaledToZero", holds=False)) == ()


def test_a_reason_of_another_release_is_its_own_title() -> None:
    (found,) = noticed(condition(ConditionType.DEGRADED, "FluxInverted", "by 3."))
    assert (found.title, found.advice, found.cause) == ("FluxInverted", "", "by 3.")
