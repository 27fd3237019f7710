"""What was seen of one resource over time, and the lines that a chart draws of it. In memory.

All of it is told by the status, so whoever has a status has the newest moments without a history.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite, nan
from typing import Final

from fathom.api.conditions import AlarmKind, ConditionType, title_of
from fathom.api.status import (
    ComparisonStatus,
    GainedStatus,
    ReportedStatus,
    RolloutStatus,
    SpeculativeDeploymentStatus,
)
from fathom.engine.depth import DepthRange, depths_of
from fathom.health import cause_of, holds, is_measured_now
from fathom.text import shortened
from fathom.times import unix_seconds

KEPT_S: Final = 24 * 3600.0
MOST_POINTS: Final = 360
"""Every four minutes of a day; a younger history has them closer together."""
MOST_MOMENTS: Final = 32
"""More than a status tells of at once, which is 19."""
LONGEST_MESSAGE: Final = 512
"""Characters of a moment's sentence; the status has all of it."""
QUIET_S: Final = 60.0
"""From point to point while nothing is measured."""


_GOOD: Final = frozenset({ConditionType.READY, ConditionType.ATTACHED})
"""Conditions that should be True."""
_TOLD: Final = _GOOD | {ConditionType.DEGRADED}


class MomentKind(StrEnum):
    DECISION = "Decision"
    ROLLOUT = "Rollout"
    COMPARISON = "Comparison"
    ALARM = "Alarm"
    CONDITION = "Condition"
    QUALITY = "Quality"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something that was decided, judged, raised or found."""

    at_s: float
    """Unix seconds."""
    kind: MomentKind
    what: str
    """In one word or two, such as Move, Canary or DraftMismatch over."""
    reason: str
    message: str
    bad: bool = False
    """Whether somebody should look at it."""

    @property
    def title(self) -> str:
        """In plain words, where its reason has any."""
        return title_of(self.reason) or self.what

    @property
    def identity(self) -> tuple[float, MomentKind, str]:
        """What stays when the sentence gets other numbers."""
        return self.at_s, self.kind, self.what


def moments_of(status: ReportedStatus) -> tuple[Moment, ...]:
    """What a status tells with its time, newest first."""
    found = [*_decisions(status), *_rollouts(status), *_conditions(status)]
    return tuple(sorted(found, key=lambda each: -each.at_s))


def _decisions(status: ReportedStatus) -> Iterator[Moment]:
    for each in status.tuning.history:
        yield from _moment(each.at, MomentKind.DECISION, each.action, each.reason, each.message)


def _rollouts(status: ReportedStatus) -> Iterator[Moment]:
    if not isinstance(status, SpeculativeDeploymentStatus):
        return
    if (rollout := status.rollout) is not None:
        yield from _moment(
            rollout.since,
            MomentKind.ROLLOUT,
            rollout.stage,
            rollout.reason,
            rollout_in_words(rollout),
            bad=rollout.stage == "RolledBack",
        )
    if (compared := status.comparison) is not None:
        what, message = compared.result or compared.state, comparison_in_words(compared)
        yield from _moment(compared.since, MomentKind.COMPARISON, what, compared.reason, message)
    if (quality := status.quality) is not None:
        yield from _moment(quality.at, MomentKind.QUALITY, quality.result, "", quality.message)


def rollout_in_words(rollout: RolloutStatus) -> str:
    """Why it came to its stage, and what is otherwise in its pods."""
    changed = f"First difference: {rollout.why}." if rollout.why else ""
    return " ".join(each for each in (rollout.message, changed) if each)


def comparison_in_words(compared: ComparisonStatus) -> str:
    """What was measured, and what follows."""
    percent, interval = compared.percent, compared.interval_percent
    measured = f"{percent} %{f' ({interval})' if interval else ''}." if percent else ""
    return " ".join(each for each in (measured, compared.message) if each)


def _conditions(status: ReportedStatus) -> Iterator[Moment]:
    for each in status.conditions:
        alarm = isinstance(each.type, AlarmKind)
        if not alarm and each.type not in _TOLD:
            continue
        true = holds(each)
        yield from _moment(
            each.last_transition_time,
            MomentKind.ALARM if alarm else MomentKind.CONDITION,
            f"{each.type}{'' if true else ' over' if alarm else f'={each.status}'}",
            each.reason,
            cause_of(each),
            bad=true is not (each.type in _GOOD),
        )


def _moment(
    at: str, kind: MomentKind, what: str, reason: str, message: str, *, bad: bool = False
) -> Iterator[Moment]:
    """None where the status does not say when it was."""
    if (at_s := unix_seconds(at)) is not None:
        yield Moment(
            at_s=at_s,
            kind=kind,
            what=what,
            reason=reason,
            message=shortened(message, LONGEST_MESSAGE),
            bad=bad,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """One look. NaN: not measured, which is not zero."""

    at_s: float
    tokens_per_second: float
    mean_batch: float
    acceptance_length: float
    gain_percent: float
    gained_percent: float
    """Since the first window with traffic, as `status.gained`."""
    gained_error_percent: float
    """Half the width of its 95 % interval."""
    depths: bytes
    """Depth of each bucket of batches, ascending; empty: none is set while the engine runs."""


class History:
    """One resource's last day, or since its operator started. At most some 64 KiB."""

    def __init__(self, since_s: float, kept_s: float = KEPT_S) -> None:
        """Begin.

        Args:
            since_s: Unix seconds.
            kept_s: how far back it goes.
        """
        self.since_s = since_s
        self._kept_s = kept_s
        self._at_s = array("d")
        self._values = tuple(array("f") for _ in range(6))
        self._depths: list[bytes] = []
        self._moments: dict[tuple[float, MomentKind, str], Moment] = {}
        self._spacing_s = 0.0
        """Between points at least: grows until a day has room."""
        self._measured_at = ""

    @property
    def points(self) -> tuple[HistoryPoint, ...]:
        """In order of time."""
        rows = zip(self._at_s, *self._values, self._depths, strict=True)
        return tuple(
            HistoryPoint(
                at_s=at_s,
                tokens_per_second=tokens_per_second,
                mean_batch=mean_batch,
                acceptance_length=acceptance_length,
                gain_percent=gain_percent,
                gained_percent=gained_percent,
                gained_error_percent=gained_error_percent,
                depths=depths,
            )
            for (
                at_s,
                tokens_per_second,
                mean_batch,
                acceptance_length,
                gain_percent,
                gained_percent,
                gained_error_percent,
                depths,
            ) in rows
        )

    @property
    def moments(self) -> tuple[Moment, ...]:
        """Newest first."""
        return tuple(sorted(self._moments.values(), key=lambda each: -each.at_s))

    def saw(self, status: ReportedStatus, now_s: float) -> None:
        """Take in what one pass has to say.

        Args:
            status: what it reports.
            now_s: Unix seconds.
        """
        told = {each.identity: each for each in moments_of(status)}
        self._moments.update(told)
        past = sorted(self._moments.keys() - told.keys())
        for each in past[: max(0, len(self._moments) - MOST_MOMENTS)]:
            del self._moments[each]
        self._note(status, now_s)

    def _note(self, status: ReportedStatus, now_s: float) -> None:
        measured, depths = status.measured, _depths(status)
        fresh = measured.at != self._measured_at
        quiet = not fresh and not is_measured_now(status, now_s)
        moved = bool(self._depths) and depths != self._depths[-1]
        if not (fresh or quiet or moved):
            return
        least_s = max(self._spacing_s, QUIET_S if quiet and not moved else 0.0)
        if self._at_s and now_s - self._at_s[-1] < least_s:
            return
        self._measured_at = measured.at
        self._make_room(now_s)
        self._at_s.append(now_s)
        # One object for as long as nothing moves.
        self._depths.append(depths if moved or not self._depths else self._depths[-1])
        gained = status.gained or GainedStatus(since="")
        values = (
            _number(str(measured.tokens_per_second)) if measured.at else nan,
            _number(measured.mean_batch),
            _number(measured.acceptance_length),
            _number(measured.gain_percent),
            _number(gained.percent),
            _number(gained.error_percent),
        )
        for column, value in zip(self._values, values, strict=True):
            column.append(nan if quiet else value)

    def _make_room(self, now_s: float) -> None:
        while self._at_s and self._at_s[0] < now_s - self._kept_s:
            self._keep(slice(1, None))
        if len(self._at_s) == MOST_POINTS:
            self._spacing_s = 2 * (now_s - self._at_s[0]) / MOST_POINTS
            self._keep(slice(None, None, 2))

    def _keep(self, part: slice) -> None:
        self._at_s = self._at_s[part]
        self._values = tuple(column[part] for column in self._values)
        self._depths = self._depths[part]


def _depths(status: ReportedStatus) -> bytes:
    schedule = tuple(DepthRange(*each) for each in status.depth.schedule)
    if not schedule:
        return b""
    # Somebody may have written the depth document by hand.
    return bytes(min(each, 255) for each in depths_of(schedule, schedule[-1].last).values())


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return nan
    return number if isfinite(number) else nan
