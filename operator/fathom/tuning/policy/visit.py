from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Visit:
    """A depth that was tried in one bucket; when, and under which traffic."""

    bucket: int
    depth: int
    at_s: float
    epoch: int
    times: int = 1
    failed: bool = False
    """It was slower than what it replaced: left alone for a while (`policy.FAILED_S`)."""
