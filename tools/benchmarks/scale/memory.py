"""What the operator holds as time goes on. Pure."""

from collections.abc import Sequence
from statistics import linear_regression
from typing import Final

from pydantic import BaseModel, ConfigDict

_SHORTEST_S: Final = 300.0
"""Length of a stretch for which it is stated whether memory grows: caches fill at first."""
_HOUR_S: Final = 3600.0


class MemoryLook(BaseModel):
    """What the operator held at one moment."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    seconds: float
    """Since its process began."""
    mib: float
    """Resident."""


def gained_per_hour(looks: Sequence[MemoryLook]) -> float | None:
    """MiB an hour, by least squares over the second half of the time.

    None: that is too short to tell.
    """
    if not looks:
        return None
    half = [each for each in looks if each.seconds >= looks[-1].seconds / 2]
    if half[-1].seconds - half[0].seconds < _SHORTEST_S:
        return None
    slope, _ = linear_regression([each.seconds for each in half], [each.mib for each in half])
    return slope * _HOUR_S
