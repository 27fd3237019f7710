"""Times: as Kubernetes writes them (RFC 3339, UTC, whole seconds), and how long ago they are."""

from datetime import UTC, datetime


def rfc3339(at_s: float) -> str:
    """Unix seconds as text."""
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def unix_seconds(text: str) -> float | None:
    """Text as Unix seconds; None: it is not a time."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def is_over(since_s: float, lasts_s: float, now_s: float) -> bool:
    """Whether so many seconds went by. A clock that was set back must not make it longer.

    Args:
        since_s: Unix seconds; minus infinity: it never began.
        lasts_s: seconds.
        now_s: Unix seconds.
    """
    return not 0 <= now_s - since_s < lasts_s
