"""What an alarm is, and what is suspected before. `table` lists all there are."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fathom.api.conditions import AlarmKind, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Something a person should look at. It says what was seen, and what to do."""

    kind: AlarmKind
    reason: Reason
    """Which of the kind's causes."""
    message: str
    recommendation: str
    since_s: float
    """Since when it stands (Unix seconds)."""
    older_than_s: float | None = None
    """Age of the engines that it is about; None: it is not about age."""

    def __str__(self) -> str:
        return f"{self.kind}/{self.reason}: {self.message} {self.recommendation}"


_LOW: Final = frozenset({Reason.ACCEPTANCE_CLIFF, Reason.ACCEPTANCE_BELOW_REFERENCE})
NORMAL_AFTER_S: Final = 3600.0
"""How long acceptance must be low before that is learned as normal."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One run of a pod's engine: the next one may have another draft."""

    pod: str
    started_at_s: float
    """Unix seconds; 0: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One alarm in the making, or one that stands."""

    kind: AlarmKind
    reason: Reason
    message: str
    recommendation: str
    first_seen_s: float
    last_seen_s: float
    raised_at_s: float = 0.0
    """Since when it stands; 0: not yet."""
    older_than_s: float | None = None
    engine: Engine | None = None
    """The only one that it is about; None: it is about several."""

    def alarm(self) -> Alarm:
        return Alarm(
            kind=self.kind,
            reason=self.reason,
            message=self.message,
            recommendation=self.recommendation,
            since_s=self.raised_at_s,
            older_than_s=self.older_than_s,
        )


def is_normal(watches: Iterable[Watch]) -> bool:
    """Whether acceptance may be learned as normal.

    Not while the draft is suspected; but what lasts is what people live with.
    """
    return all(
        each.kind is not AlarmKind.DRAFT_MISMATCH
        # Of long contexts alone: what is accepted of all drafts is as it was.
        or each.reason is Reason.LONG_CONTEXT_REJECTED
        or each.last_seen_s - each.first_seen_s > NORMAL_AFTER_S
        for each in watches
    )


def is_cliff(watches: Iterable[Watch]) -> bool:
    """Whether the alarm stands that acceptance fell off a cliff."""
    return any(each.reason is Reason.ACCEPTANCE_CLIFF and each.raised_at_s for each in watches)


def is_mismatch(watches: Iterable[Watch]) -> bool:
    """Whether an alarm stands that the draft does not fit."""
    return any(each.kind is AlarmKind.DRAFT_MISMATCH and each.raised_at_s for each in watches)


def is_low(watches: Iterable[Watch]) -> bool:
    """Whether an alarm stands that acceptance is lower than before."""
    return any(each.reason in _LOW and each.raised_at_s for each in watches)


def without_low(watches: Iterable[Watch]) -> tuple[Watch, ...]:
    """Without what was seen of acceptance that was higher before."""
    return tuple(each for each in watches if each.reason not in _LOW)
