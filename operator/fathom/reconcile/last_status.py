"""What the status said last, and when it may say something else. Pure."""

from dataclasses import dataclass
from typing import Final

from fathom.api.status import ReportedStatus
from fathom.reconcile.status import essence, only_readiness_moved, same
from fathom.reconcile.write_retries import Retry
from fathom.times import NEVER_S, is_over, unix_seconds

QUIET_S: Final = 60.0
"""Least time between two writes that nobody waits for."""
WATCHED_S: Final = 600.0
"""Longest time without a write, so that anybody sees that somebody watches."""
HOUR_S: Final = 3600.0
RETURNS_AN_HOUR: Final = 12
"""Changes in an hour that are told at once even if they only lead back to what was told before."""
NEWS_AN_HOUR: Final = 60
"""Changes in an hour that are told at once where they lead to what that hour did not tell yet."""
COMING_AND_GOING_S: Final = 300.0
"""Least time between two writes of a readiness that comes and goes."""


@dataclass(frozen=True, slots=True)
class Told:
    """A change that was told at once."""

    at_s: float
    """Unix seconds."""
    essence: int
    """A hash of what it was: states of a thousand resources would take their memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The last write of the status.

    What is there afterwards need not be what was written: an older CRD drops what it does not know,
    and others may have fields in it. To write the same again would change nothing.
    """

    at_s: float
    """Unix seconds; minus infinity: there was none."""
    written: ReportedStatus | None = None
    """None: this operator has written none."""
    kept: ReportedStatus | None = None
    """What the API server made of it; None: nothing that can be read."""
    version: str | None = None
    """Version of the resource, with it; None: this operator has written none."""
    refused: Retry | None = None
    """None: the API server takes it."""
    told: tuple[Told, ...] = ()
    """What people waited for in the hour before the last write."""

    def stands(self, new: ReportedStatus, live: ReportedStatus | None) -> bool:
        """Whether there is nothing to write.

        Args:
            new: what should be said.
            live: what is there; None: nothing that can be read.
        """
        return same(new, live) or (same(new, self.written) and live == self.kept)

    def rest_s(self, live: ReportedStatus | None, now_s: float) -> float:
        """Seconds until it is written though it says nothing new; infinity: never.

        An older CRD drops the time, and then there is nothing to keep up to date.
        """
        if self.written is not None and not (self.kept and self.kept.last_reconcile_time):
            return NEVER_S
        at_s = unix_seconds((live and live.last_reconcile_time) or "")
        if at_s is not None and not is_over(at_s, WATCHED_S, now_s):
            return at_s + WATCHED_S - now_s
        return self.refused.left_s(now_s) if self.refused else 0.0

    def wait_s(
        self,
        new: ReportedStatus,
        live: ReportedStatus | None,
        now_s: float,
    ) -> float:
        """Seconds until it may be written."""
        if self.refused is not None:
            return self.refused.left_s(now_s)
        pause_s, before = QUIET_S, self.written or live
        if before is None:
            return 0.0
        if (now := essence(new)) != essence(before):
            lately = self._told_lately(now_s)
            returns = any(each.essence == hash(now) for each in lately)
            if len(lately) < (RETURNS_AN_HOUR if returns else NEWS_AN_HOUR):
                return 0.0
            if returns and only_readiness_moved(new, before):
                pause_s = COMING_AND_GOING_S
        return 0.0 if is_over(self.at_s, pause_s, now_s) else self.at_s + pause_s - now_s

    def after(
        self,
        new: ReportedStatus,
        *,
        kept: ReportedStatus | None,
        version: str,
        now_s: float,
    ) -> "Said":
        """After a write.

        Args:
            new: what was written.
            kept: what the API server made of it; None: nothing that can be read.
            version: of the resource, with it.
            now_s: Unix seconds.
        """
        told, now = self._told_lately(now_s), essence(new)
        if self.written is None or now != essence(self.written):
            told = (*told, Told(now_s, hash(now)))
        return Said(at_s=now_s, written=new, kept=kept, version=version, told=told)

    def _told_lately(self, now_s: float) -> tuple[Told, ...]:
        return tuple(each for each in self.told if not is_over(each.at_s, HOUR_S, now_s))
