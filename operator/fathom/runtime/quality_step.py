"""What a quality check asks of one pass."""

from collections.abc import Mapping
from dataclasses import dataclass

from fathom.api.status import QualityStatus
from fathom.core.events import Happening


@dataclass(frozen=True, slots=True)
class QualityStep:
    """What one pass has to do for a check, and what it has to say of the last one."""

    holds: Mapping[str, int]
    """The depth that each of these pods has to be held at, whatever `minTokens` says."""
    status: QualityStatus | None
    """For `status.quality`; None: none was ever asked for."""
    kept: str | None
    """What the tuning ConfigMap should hold under `QUALITY_KEY`; None: no such key."""
    happenings: tuple[Happening, ...] = ()
    wake_after_s: float = float("inf")
