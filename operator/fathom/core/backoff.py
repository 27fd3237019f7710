"""How long to wait before the next try. Pure."""

from dataclasses import dataclass
from typing import Final

_MOST_DOUBLINGS: Final = 10
"""Beyond any longest wait; a number of failures has no end, and a power of two no float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Each failure in a row doubles the wait."""

    first_s: float = 1.0
    longest_s: float

    def after(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row, of which there is one at least."""
        return min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))
