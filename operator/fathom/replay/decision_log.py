"""Decisions in order of time, the same ones in a row put together. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fathom.api.conditions import Reason
from fathom.engine.depth import DepthDocument, Schedule
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.interface import Action, TuningDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """A decision, or the same one several times in a row."""

    at_s: float
    """When it was first made (Unix seconds)."""
    last_at_s: float
    times: int
    action: Action
    reason: Reason
    message: str
    """As it was first put."""
    expected_gain: float | None
    schedule: Schedule
    """Schedule of the document that it asked for."""
    in_force: Schedule
    """At that time."""


@dataclass(slots=True)
class Chronicle:
    """All that the tuner decided."""

    decisions: list[Occurrence] = field(default_factory=list)
    """Those to hold are only counted."""
    _holds: Counter[Reason] = field(default_factory=Counter)
    _alarms: dict[tuple[str, float], Alarm] = field(default_factory=dict)

    @property
    def holds(self) -> Mapping[Reason, int]:
        """How often it held, by reason."""
        return dict(self._holds)

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Every alarm that was raised."""
        return tuple(self._alarms.values())

    def add(self, decision: TuningDecision, in_force: DepthDocument, at_s: float) -> None:
        """Enter a decision that was made with this document in force."""
        for alarm in decision.alarms:
            self._alarms.setdefault((alarm.kind, alarm.since_s), alarm)
        if decision.action is Action.HOLD:
            self._holds[decision.reason] += 1
            return
        made = Occurrence(
            at_s=at_s,
            last_at_s=at_s,
            times=1,
            action=decision.action,
            reason=decision.reason,
            message=decision.message,
            expected_gain=decision.expected_gain,
            schedule=decision.document.schedule,
            in_force=in_force.schedule,
        )
        before = self.decisions[-1] if self.decisions else None
        if before is not None and _what(before) == _what(made):
            self.decisions[-1] = replace(before, last_at_s=at_s, times=before.times + 1)
        else:
            self.decisions.append(made)


def _what(decision: Occurrence) -> tuple[Action, Reason, Schedule, Schedule]:
    """What was decided, whatever the numbers in its sentence."""
    return decision.action, decision.reason, decision.schedule, decision.in_force
