"""Processors of a container's own, as a kubelet with the static CPU policy gives them.

Engines that spin while they wait take each other's time where they share processors; two on two
processors were seen at half the speed, and three times the noise, of two that have one each.
"""

import os
from collections import Counter
from collections.abc import Iterable

from local_cluster.kubelet.models import Container


def whole_processors(container: Container) -> int:
    """How many a container is to have for itself: its CPU limit, if whole and asked for in full."""
    limit = container.resources.limits.get("cpu")
    request = container.resources.requests.get("cpu", limit)
    text = str(limit)
    return int(text) if request == limit and text.isdecimal() else 0


class ProcessorPool:
    """Hands out the processors that the fewest containers have."""

    def __init__(self, processors: Iterable[int] | None = None) -> None:
        self._held = Counter(dict.fromkeys(processors or os.sched_getaffinity(0), 0))

    def take(self, count: int) -> tuple[int, ...]:
        """So many processors, or all there are; empty: no choice is made.

        What is taken twice is shared: a machine smaller than it pretends to be still runs all.
        """
        chosen = sorted(self._held, key=lambda each: (self._held[each], each))[:count]
        self._held.update(chosen)
        return tuple(chosen)

    def give_back(self, processors: Iterable[int]) -> None:
        """The inverse of `take`."""
        self._held.subtract(processors)
