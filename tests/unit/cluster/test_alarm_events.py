"""Which turns of an alarm's condition are events, and in which words."""

import pytest

from fathom.api.conditions import AlarmKind, ConditionStatus, ConditionType, Reason
from fathom.api.status import Condition, SpeculativeDeploymentStatus
from fathom.cluster.events import transitions
from fathom.reconcile.status import essence, same


def status(
    kind: ConditionType | AlarmKind,
    state: ConditionStatus,
    reason: Reason,
    message: str = "So it is.",
) -> SpeculativeDeploymentStatus:
    condition = Condition(
        type=kind,
        status=state,
        reason=reason,
        message=message,
        last_transition_time="2027-01-15T08:00:00Z",
    )
    return SpeculativeDeploymentStatus(conditions=(condition,))


def told(
    new: SpeculativeDeploymentStatus, old: SpeculativeDeploymentStatus | None
) -> list[tuple[str, str]]:
    return [(each.severity.value, each.reason) for each in transitions(new, old)]


NEVER = SpeculativeDeploymentStatus(conditions=())


@pytest.mark.parametrize("kind", AlarmKind)
def test_raised_and_over(kind: AlarmKind) -> None:
    raised = status(kind, ConditionStatus.TRUE, Reason.ACCEPTANCE_CLIFF)
    over = status(kind, ConditionStatus.FALSE, Reason.CLEARED)

    assert told(raised, NEVER) == [("Warning", kind.value)]
    assert told(raised, None) == [("Warning", kind.value)]
    assert told(raised, raised) == []
    assert told(over, raised) == [("Normal", f"{kind.value}Over")]
    assert told(over, over) == []
    assert told(over, NEVER) == []
    assert told(raised, over) == [("Warning", kind.value)]


def test_another_cause_is_news_and_another_number_is_not() -> None:
    kind, true = AlarmKind.DRAFT_MISMATCH, ConditionStatus.TRUE
    cliff = status(kind, true, Reason.ACCEPTANCE_CLIFF, "30%.")
    worse = status(kind, true, Reason.ACCEPTANCE_CLIFF, "29%.")
    pod = status(kind, true, Reason.ONE_POD_DIFFERS)

    assert told(pod, cliff) == [("Warning", "DraftMismatch")]
    assert essence(pod) != essence(cliff)
    assert told(worse, cliff) == []
    assert essence(worse) == essence(cliff)
    assert not same(worse, cliff)
