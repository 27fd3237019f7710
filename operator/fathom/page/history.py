"""What was seen of one resource over time, and the lines that a chart draws of it. In memory.

All of it is told by the status, so whoever has a status has the newest moments without a history.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, zip_longest
from math import isfinite, nan
from typing import Final

from fathom.api.conditions import AlarmKind, ConditionType, title_of
from fathom.api.status import (
    ComparisonStatus,
    GainedStatus,
    RolloutStatus,
    SpeculativeDeploymentStatus,
)
from fathom.engine.depth import DepthRange, depths_of
from fathom.health import cause_of, holds, is_measured_now
from fathom.text import shortened
from fathom.times import unix_seconds
from fathom_vllm.buckets import first_batch, last_batch

KEPT_S: Final = 24 * 3600.0
MOST_POINTS: Final = 360
"""Every four minutes of a day; a younger history has them closer together."""
MOST_MOMENTS: Final = 32
"""More than a status tells of at once, which is 19."""
LONGEST_MESSAGE: Final = 512
"""Characters of a moment's sentence; the status has all of it."""
QUIET_S: Final = 60.0
"""From point to point while nothing is measured."""


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


def moments_of(status: SpeculativeDeploymentStatus) -> tuple[Moment, ...]:
    """What a status tells with its time, newest first."""
    found = [*_decisions(status), *_rollouts(status), *_conditions(status)]
    return tuple(sorted(found, key=lambda each: -each.at_s))


def _decisions(status: SpeculativeDeploymentStatus) -> Iterator[Moment]:
    for each in status.tuning.history:
        yield from _moment(each.at, MomentKind.DECISION, each.action, each.reason, each.message)


def _rollouts(status: SpeculativeDeploymentStatus) -> Iterator[Moment]:
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


def _conditions(status: SpeculativeDeploymentStatus) -> Iterator[Moment]:
    for each in status.conditions:
        alarm = isinstance(each.type, AlarmKind)
        if not alarm and each.type not in {ConditionType.READY, ConditionType.DEGRADED}:
            continue
        true = holds(each)
        yield from _moment(
            each.last_transition_time,
            MomentKind.ALARM if alarm else MomentKind.CONDITION,
            f"{each.type}{'' if true else ' over' if alarm else f'={each.status}'}",
            each.reason,
            cause_of(each),
            bad=true is not (each.type is ConditionType.READY),
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

    def saw(self, status: SpeculativeDeploymentStatus, now_s: float) -> None:
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

    def _note(self, status: SpeculativeDeploymentStatus, now_s: float) -> None:
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


def _depths(status: SpeculativeDeploymentStatus) -> bytes:
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


@dataclass(frozen=True, slots=True)
class DepthRow:
    """The depth of a range of batches over time."""

    batches: str
    """Such as `5-8`, `9+` for 9 and more, or `all`."""
    depths: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Charts:
    """Columns of equal length, in order of time. None: not measured."""

    at_s: tuple[int, ...]
    """Unix seconds."""
    depths: tuple[DepthRow, ...]
    tokens_per_second: tuple[float | None, ...]
    mean_batch: tuple[float | None, ...]
    acceptance_length: tuple[float | None, ...]
    gain_percent: tuple[float | None, ...]
    gained_percent: tuple[float | None, ...]
    gained_error_percent: tuple[float | None, ...]


def charts_of(points: Sequence[HistoryPoint]) -> Charts:
    """Columns from points, which are in order of time."""
    return Charts(
        at_s=tuple(round(each.at_s) for each in points),
        depths=tuple(_depth_rows(points)),
        tokens_per_second=_known((each.tokens_per_second for each in points), 0),
        mean_batch=_known((each.mean_batch for each in points), 1),
        acceptance_length=_known((each.acceptance_length for each in points), 2),
        gain_percent=_known((each.gain_percent for each in points), 1),
        gained_percent=_known((each.gained_percent for each in points), 1),
        gained_error_percent=_known((each.gained_error_percent for each in points), 1),
    )


def _depth_rows(points: Sequence[HistoryPoint]) -> Iterator[DepthRow]:
    """A row for each run of buckets that had the same depth at all times."""
    columns = list(enumerate(zip_longest(*(each.depths for each in points))))
    for depths, run in groupby(columns, key=lambda column: column[1]):
        indices = [index for index, _ in run]
        last = last_batch(indices[-1]) if indices[-1] + 1 < len(columns) else None
        yield DepthRow(_label(first_batch(indices[0]), last), depths)


def _label(first: int, last: int | None) -> str:
    """Batches in short; the last depth of a schedule carries on, wherever that ends."""
    if last is None:
        return "all" if first == 1 else f"{first}+"
    return f"{first}" if first == last else f"{first}-{last}"


def _known(values: Iterable[float], digits: int) -> tuple[float | None, ...]:
    return tuple(round(each, digits) + 0.0 if isfinite(each) else None for each in values)
