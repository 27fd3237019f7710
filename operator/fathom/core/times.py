"""Times as Kubernetes writes them: RFC 3339, UTC, whole seconds."""

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
