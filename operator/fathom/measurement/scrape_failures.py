"""Which pods' counters cannot be read, and why, in words that do not change with every look."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from fathom.text import counted

FORGOTTEN_AFTER_S: Final = 180.0
"""Looks are a minute apart at most: a pod that was read for so long is well again."""
_TOLD_AFTER: Final = 2
"""Looks that fail: the first may be an accident, and would write a status twice."""
_MOST_PODS: Final = 3
_MOST_CAUSES: Final = 3


@dataclass(frozen=True, slots=True, order=True)
class Unread:
    """A pod whose counters could not be read at one look."""

    pod: str
    cause: str
    """A sentence's second half, and nothing that a server said."""


@dataclass(frozen=True, slots=True)
class _Seen:
    looks: int
    last_s: float


@dataclass(frozen=True, slots=True)
class UnreadPods:
    """What could not be read lately."""

    _seen: Mapping[Unread, _Seen] = field(default_factory=dict)

    def after(
        self, failures: Iterable[Unread], pods: Collection[str], now_s: float
    ) -> "UnreadPods":
        """After one more look.

        A pod that fails at every other look stays told, so that the words stand still.

        Args:
            failures: of this look.
            pods: that there are; of others nothing is told any more.
            now_s: Unix seconds.
        """
        fresh = {each: _Seen(1, now_s) for each in failures}
        kept = {
            each: seen
            for each, seen in self._seen.items()
            if now_s - seen.last_s < FORGOTTEN_AFTER_S
        }
        for each in fresh.keys() & kept.keys():
            fresh[each] = _Seen(kept[each].looks + 1, now_s)
        merged = {**kept, **fresh}
        return UnreadPods({each: seen for each, seen in merged.items() if each.pod in pods})

    @property
    def sentence(self) -> str:
        """Pods and causes, the first of each and a count of the rest; empty: all can be read."""
        pods: defaultdict[str, list[str]] = defaultdict(list)
        for each in sorted(each for each, seen in self._seen.items() if seen.looks >= _TOLD_AFTER):
            pods[each.cause].append(each.pod)
        if not pods:
            return ""
        told = [f"{_listed(names)} ({cause})" for cause, names in sorted(pods.items())]
        rest = len(told) - _MOST_CAUSES
        more = f"; others for {counted(rest, 'more reason')}" if rest > 0 else ""
        return f"Metrics not read: {'; '.join(told[:_MOST_CAUSES])}{more}."


def _listed(names: list[str]) -> str:
    if len(names) <= _MOST_PODS:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_PODS])} and {len(names) - _MOST_PODS} more"
