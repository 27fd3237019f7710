"""The tuner's decision, as people read it: in the status, in the Tuning condition, as an event."""

from dataclasses import dataclass
from typing import Final

from fathom.api.choices import TuningMode
from fathom.api.conditions import ConditionStatus, Reason
from fathom.api.status import DecisionStatus, GainedStatus, MeasuredStatus, TuningStatus
from fathom.cluster.events import Event, Severity
from fathom.measurement.counters import ALL_READ, UnreadPods
from fathom.reconcile.status_input import Finding
from fathom.times import rfc3339
from fathom.tuning.gains import Gained
from fathom.tuning.interface import Action, TuningDecision
from fathom.tuning.policy.value import TWO_SIDED_Z

HISTORY_LENGTH: Final = 10

_WORKING: Final = frozenset(
    {
        Reason.ADVISING,
        Reason.MEASURING,
        Reason.PROBING,
        Reason.AT_BEST,
        Reason.MOVED,
        Reason.PINNED,
        Reason.RETURNED,
        Reason.HOLDING,
        Reason.NO_TRAFFIC,
        Reason.GAIN_TOO_SMALL,
        Reason.GAIN_UNCERTAIN,
        Reason.PROBING_DISABLED,
        Reason.TUNED_APART,
    }
)
"""Reasons of a tuner that does its work, even where that is to leave things alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningReport:
    finding: Finding
    """For the Tuning condition."""
    tuning: TuningStatus
    measured: MeasuredStatus
    events: tuple[Event, ...] = ()


def report(
    decision: TuningDecision,
    mode: TuningMode,
    now_s: float,
    before: TuningStatus,
    measured_before: MeasuredStatus,
    *,
    unread: UnreadPods = ALL_READ,
) -> TuningReport:
    """Put one decision into words; only a notable one enters the history.

    Args:
        decision: what the tuner decided.
        mode: the spec's.
        now_s: Unix seconds.
        before: status.tuning as it is.
        measured_before: status.measured as it is; it stays while nothing new was measured.
        unread: whose metrics cannot be read, and why.
    """
    reason, message = _found(decision, unread)
    works = decision.reason in _WORKING
    tuning = TuningStatus(
        summary=f"{mode}/{reason}",
        last_decision=before.last_decision,
        history=before.history,
    )
    if decision.notable:
        entry = _entry(decision, now_s)
        tuning = TuningStatus(
            summary=tuning.summary,
            last_decision=entry,
            history=(entry, *before.history)[:HISTORY_LENGTH],
        )
    return TuningReport(
        finding=Finding(
            ConditionStatus.TRUE if works else ConditionStatus.FALSE,
            reason,
            message,
        ),
        tuning=tuning,
        measured=_measured(decision) or measured_before,
        events=(_event(decision),) if decision.notable else (),
    )


def _found(decision: TuningDecision, unread: UnreadPods) -> tuple[Reason, str]:
    """Reason and message of the Tuning condition."""
    if decision.reason is not Reason.NO_METRICS:
        return decision.reason, f"{decision.message} {unread.sentence}".rstrip()
    reason = Reason.METRICS_REFUSED if unread.refused else Reason.NO_METRICS
    return reason, f"{unread.sentence} {decision.message}".lstrip()


def _entry(decision: TuningDecision, now_s: float) -> DecisionStatus:
    return DecisionStatus(
        at=rfc3339(now_s),
        action=decision.action.value,
        reason=decision.reason.value,
        message=decision.message,
        expected_gain_percent=_percent(decision.expected_gain),
        expected_gain_interval_percent=_interval(decision),
        measured_gain_percent=_percent(decision.measured_gain),
    )


def _event(decision: TuningDecision) -> Event:
    well = decision.reason in _WORKING
    reason = decision.reason if decision.action is Action.HOLD else decision.action
    severity = Severity.NORMAL if well else Severity.WARNING
    return Event(severity, f"Depth{reason}".replace("DepthDepth", "Depth"), decision.message)


def gained_status(gained: Gained, *, on_gpus: bool) -> GainedStatus | None:
    """What was gained, as the status has it; None: nothing was counted yet."""
    if not gained.since_s:
        return None
    known = gained.ratio is not None
    hours = (gained.hours, gained.half_width_hours) if known else (None, None)
    busy = (gained.measured_hours, gained.unmeasured_hours)
    gpu_hours, error, measured, unmeasured = (
        _decimal(each if on_gpus else None, 2) for each in (*hours, *busy)
    )
    return GainedStatus(
        since=rfc3339(gained.since_s),
        percent=_percent(gained.ratio),
        error_percent=_percent(gained.half_width if known else None),
        gpu_hours=gpu_hours,
        error_gpu_hours=error,
        measured_gpu_hours=measured,
        unmeasured_gpu_hours=unmeasured,
    )


def _measured(decision: TuningDecision) -> MeasuredStatus | None:
    """The last window; None: there was none."""
    measured, headroom = decision.measured, decision.headroom_tokens_per_second
    if measured is None:
        return None
    return MeasuredStatus(
        at=rfc3339(measured.at_s),
        window_seconds=round(measured.window_seconds),
        acceptance_length=_decimal(measured.acceptance_length, 2),
        acceptance_rate=_decimal(measured.acceptance_rate, 2),
        survival=tuple(_decimal(each, 3) for each in measured.survival),
        tokens_per_second=round(measured.tokens_per_second),
        mean_batch=_decimal(measured.mean_batch, 1),
        tpot_milliseconds=_decimal(
            None if measured.tpot_seconds is None else measured.tpot_seconds * 1000, 1
        ),
        gain_percent=_percent(measured.gain),
        tokens_per_step=_decimal(measured.tokens_per_step, 2),
        headroom_tokens_per_second=None if headroom is None else round(headroom),
    )


def _interval(decision: TuningDecision) -> str:
    """The 95 % interval, such as `3.1 to 9.0`."""
    mean, sd = decision.expected_gain, decision.expected_gain_sd
    if mean is None or sd is None:
        return ""
    return f"{_percent(mean - TWO_SIDED_Z * sd)} to {_percent(mean + TWO_SIDED_Z * sd)}"


def _percent(ratio: float | None) -> str:
    return _decimal(None if ratio is None else ratio * 100, 1)


def _decimal(value: float | None, digits: int) -> str:
    """Empty for what is unknown, which is not zero."""
    # No minus before a zero.
    return "" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"
