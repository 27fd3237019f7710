"""Cuts what a canary and the stable replicas count into windows of the same minute."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from fathom.core.measurement import PodCounters, PodDelta, delta
from fathom.rollout.input import CanaryWindow

WINDOW_S: Final = 60.0
"""A scrape a minute is common."""
SHORTEST_S: Final = 5.0
WINDOWS: Final = 20
"""That a short bake is cut into."""
LONGEST_WINDOW: Final = 3
"""Times a window's length, after which a pod without a new sample is taken for unreadable."""


@dataclass(frozen=True, slots=True)
class CanaryWindows:
    """Of one rollout. Losing it costs the window that is open."""

    since: Mapping[str, PodCounters] = field(default_factory=dict)
    """What each pod had counted when the open window began."""
    began_s: float | None = None
    """Unix seconds; None: none is open."""

    def next(
        self,
        canary: Collection[str],
        stable: Collection[str],
        counters: Mapping[str, PodCounters],
        now_s: float,
        length_s: float,
    ) -> "tuple[CanaryWindows, CanaryWindow | None]":
        """What comes next, and the window that ends now; None: it is not over.

        Args:
            canary: names of the canary's pod, or of none.
            stable: names of the pods it is compared with.
            counters: latest look at each pod; what could not be read is absent.
            now_s: Unix seconds.
            length_s: of a window.
        """
        # One that began later than now began before a clock was set back.
        begun = CanaryWindows(dict(counters), now_s)
        if self.began_s is None or self.began_s > now_s or not canary:
            return begun, None
        if now_s - self.began_s < length_s:
            return self, None
        window = CanaryWindow(self._deltas(canary, counters), self._deltas(stable, counters))
        complete = window.canary and window.stable
        if not complete and now_s - self.began_s < LONGEST_WINDOW * length_s:
            return self, None
        return begun, window

    def _deltas(
        self, pods: Collection[str], counters: Mapping[str, PodCounters]
    ) -> tuple[PodDelta, ...]:
        pairs = ((self.since.get(pod), counters.get(pod)) for pod in sorted(pods))
        found = (delta(before, after) for before, after in pairs if before and after)
        return tuple(each for each in found if each is not None)


def window_length_s(bake_s: float) -> float:
    """Seconds."""
    return min(WINDOW_S, max(SHORTEST_S, bake_s / WINDOWS))
