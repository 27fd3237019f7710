"""Which steps of decodes the plugin takes for stalls."""

from typing import Final

STALL_FACTOR: Final = 10.0
"""Times the usual, beyond which a step stalled, …"""
LEAST_STALL_S: Final = 0.1
"""… if it took so long."""
_USUAL_AFTER: Final = 16
_MOST_IN_A_ROW: Final = 4


class StallWatch:
    """Knows what steps of decodes usually take."""

    def __init__(self) -> None:
        """Begin with nothing known: after some steps there is a usual one."""
        self._usual_s = 0.0
        self._seen = 0
        self._in_a_row = 0

    def stalled(self, seconds: float) -> bool:
        """Whether the next step did; many in a row did not, they are what is usual now."""
        longest_s = max(LEAST_STALL_S, STALL_FACTOR * self._usual_s)
        if self._seen >= _USUAL_AFTER and seconds > longest_s:
            self._in_a_row += 1
            if self._in_a_row <= _MOST_IN_A_ROW:
                return True
            self._usual_s, self._seen = 0.0, 0
        self._in_a_row = 0
        self._seen += 1
        self._usual_s += (seconds - self._usual_s) / min(self._seen, _USUAL_AFTER)
        return False
