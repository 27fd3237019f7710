"""Times as Kubernetes writes them, back-off after failures, and work spread over time. Pure."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final
from zlib import crc32

from pydantic import Field

NEVER_S: Final = float("inf")
"""Seconds until what does not come."""
_MOST_DOUBLINGS: Final = 10
"""Beyond any longest wait; a number of failures has no end, and a power of two no float."""
_SHARE: Final = 0.2
_YEAR_2100_S: Final = 4.1e9
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_TWO_DAYS_S: Final = 172800
UnixSeconds = Annotated[float, Field(ge=0, le=_YEAR_2100_S, allow_inf_nan=False)]


def rfc3339(at_s: float) -> str:
    """Unix seconds as text."""
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def unix_seconds(text: str) -> float | None:
    """Text as Unix seconds; None: it is not a time."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def duration(seconds: float) -> str:
    """How long, in the unit that fits: `40 s`, `6 min`, `1.4 h`, `3 d`."""
    if seconds < _MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    if seconds < _TWO_DAYS_S:
        return f"{seconds / _HOUR_S:.1f} h"
    return f"{seconds / _TWO_DAYS_S * 2:.0f} d"


def ago(text: str, now_s: float) -> str:
    """How long ago a time was, such as `12 s ago`; what is no time stays as it is.

    Args:
        text: RFC 3339.
        now_s: Unix seconds; a time that is later was now, as clocks differ.
    """
    at_s = unix_seconds(text)
    return text if at_s is None else f"{duration(max(0.0, now_s - at_s))} ago"


def lasting(since: str, now_s: float) -> str:
    """For how long something holds, such as `for 6 min`.

    Args:
        since: as for `ago`.
        now_s: Unix seconds.
    """
    return f"for {ago(since, now_s).removesuffix(' ago')}"


def is_over(since_s: float, lasts_s: float, now_s: float) -> bool:
    """Whether so many seconds went by. A clock that was set back must not make it longer.

    Args:
        since_s: Unix seconds; minus infinity: it never began.
        lasts_s: seconds.
        now_s: Unix seconds.
    """
    return not 0 <= now_s - since_s < lasts_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Each failure in a row doubles the wait."""

    first_s: float = 1.0
    longest_s: float

    def after(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row, of which there is one at least."""
        return min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))


def spread(seconds: float, who: str) -> float:
    """Up to a fifth less, always the same for one of them.

    Args:
        seconds: that all of them would wait.
        who: the one that waits.
    """
    return seconds * (1 - _SHARE * crc32(who.encode()) / 2**32)
