"""Whether the engines run the depths that the document asks for: they themselves say so.

By the hash of their schedule, since a file from elsewhere may bear the document's number. A pod
whose own entry has ended by itself does as the document says.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from fathom.engine.depth import DepthDocument
from fathom.measurement.counters import PodCounters
from fathom.tuning.interface import TunedPod, TuningSnapshot
from fathom.tuning.learned_state import Behind, TuningState

POKE_AFTER_S: Final = 30.0
"""A document not in force for so long: its engines are notified again, in case the kubelet is
slow."""
DEADLINE_S: Final = 120.0
"""And for so long: the pod does not obey. A kubelet takes less."""
LOST_SHARE: Final = 0.5
"""Share of the pods that can be judged: if so many do not obey, nothing can be tuned."""


class _Found(Enum):
    """What is found of a pod that does not run the document's depths."""

    WAITING = auto()
    """Within the deadline."""
    BEHIND = auto()
    """It steps by an older document."""
    FOREIGN = auto()
    """It read a document of this number that says something else."""
    GONE = auto()
    """The document that it had is gone, and it went back to the user's depth."""
    UNSEEN = auto()
    """It never had a document."""
    UNPLUGGED = auto()
    """It has no plugin that changes depth."""
    UNCOUNTED = auto()
    """It has the plugin, whose counters do not reach its metrics."""
    UNREAD = auto()
    """It did not obey, and cannot be read any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convergence:
    """Pods that step, but not (yet) by the document."""

    judged: int
    """Pods that could be judged."""
    waiting: tuple[str, ...]
    """Not yet in force, but within the deadline; the kubelet may still bring it."""
    late: tuple[str, ...]
    """Waiting pods that have waited long enough to be notified again."""
    disobeying: tuple[str, ...]
    """Not in force after the deadline."""
    unread: tuple[str, ...]
    """Disobeying pods that cannot be read any more, and did not obey when they could."""
    behind: tuple[Behind, ...]
    """Who has an older document in force than was written."""
    sentence: str
    """Why, for a person."""

    @property
    def is_lost(self) -> bool:
        """Whether so many do not obey that nothing can be tuned.

        One pod that is behind must not hold a large fleet at yesterday's depth.
        """
        found = len(self.disobeying) - len(self.unread)
        return found >= LOST_SHARE * self.judged > 0 and found > 0


def convergence(
    snapshot: TuningSnapshot, document: DepthDocument, state: TuningState
) -> Convergence:
    """Judge ready pods.

    An engine puts a document in force when it schedules, so one that has not stepped since it was
    written has disobeyed nothing.
    """
    stepped, asked = dict(state.stepped), snapshot.whole or document
    found: dict[_Found, list[str]] = {each: [] for each in _Found}
    late: list[str] = []
    still: list[Behind] = []
    ready = [(pod, snapshot.present(pod)) for pod in snapshot.pods if pod.ready]
    for pod, counters in ready:
        if counters is None:
            # It cannot be read: that is no sign that it obeys by now.
            if pod.name in state.disobeying:
                found[_Found.UNREAD].append(pod.name)
            continue
        if not counters.live_depth:
            if pod.ready_for_s > DEADLINE_S:
                shown = counters.counters_shown
                found[_Found.UNPLUGGED if shown else _Found.UNCOUNTED].append(pod.name)
            continue
        if counters.follows(asked):
            continue
        since = _behind(pod, counters, state.behind, snapshot.document_written_at_s)
        still.append(since)
        waited = min(snapshot.now_s - since.since_s, pod.ready_for_s)
        how = _how_behind(counters, asked)
        # Idle or not, an engine knows whether it found a document, and which.
        idle = how is _Found.BEHIND and stepped.get(pod.name, 0.0) < snapshot.now_s - waited
        if pod.name in state.disobeying or (waited > DEADLINE_S and not idle):
            found[how].append(pod.name)
        elif not idle:
            found[_Found.WAITING].append(pod.name)
            late += [pod.name] * (waited > POKE_AFTER_S)
    unread = tuple(found[_Found.UNREAD])
    disobeying = [each for each in _Found if each is not _Found.WAITING]
    return Convergence(
        judged=sum(counters is not None for _, counters in ready),
        waiting=tuple(found[_Found.WAITING]),
        late=tuple(late),
        disobeying=tuple(pod for each in disobeying for pod in found[each]),
        unread=unread,
        behind=tuple(still),
        sentence=_sentence(document.generation, found),
    )


def _how_behind(counters: PodCounters, document: DepthDocument) -> _Found:
    if counters.depth_generation == document.generation:
        return _Found.FOREIGN
    if counters.document_gone:
        return _Found.GONE
    return _Found.BEHIND if counters.document_seen else _Found.UNSEEN


def _behind(
    pod: TunedPod, counters: PodCounters, known: Iterable[Behind], written_at_s: float
) -> Behind:
    """It is no less behind for a newer document that it does not read either."""
    before = next((each for each in known if each.pod == pod.name), None)
    if before is not None and before.generation == counters.depth_generation:
        return before
    return Behind(pod.name, counters.depth_generation, written_at_s)


def _sentence(generation: int, found: Mapping[_Found, list[str]]) -> str:
    parts: list[str] = []
    if behind := found[_Found.BEHIND]:
        parts.append(
            f"{', '.join(behind)} step, but do not run generation {generation} of the depth "
            f"document after {DEADLINE_S:.0f} s. Check the pod's log for 'fathom' and that "
            "the depth ConfigMap is mounted as a directory."
        )
    if foreign := found[_Found.FOREIGN]:
        parts.append(
            f"{', '.join(foreign)} run a depth document that is not this one, though it is of "
            f"generation {generation}, too: check what is mounted at FATHOM_DEPTH_FILE, and who "
            "else writes it."
        )
    if gone := found[_Found.GONE]:
        parts.append(
            f"{', '.join(gone)} find no depth document any more, and went back to tokens: the "
            "depth ConfigMap was deleted, or its kubelet does not bring the one that is there."
        )
    if unseen := found[_Found.UNSEEN]:
        parts.append(
            f"{', '.join(unseen)} never found a depth document they can obey: check that the depth "
            "ConfigMap is mounted as a directory, and the pod's log for 'fathom'."
        )
    if unplugged := found[_Found.UNPLUGGED]:
        parts.append(
            f"{', '.join(unplugged)} cannot change depth live: the engine shows no live plugin. "
            "Check the pod's log for 'fathom', and that PYTHONPATH and --scheduler-cls are as "
            "rendered."
        )
    if uncounted := found[_Found.UNCOUNTED]:
        parts.append(
            f"{', '.join(uncounted)} run the plugin, but its counters do not reach /metrics: most "
            "often /dev/shm was full when the engine started. The pod's log says why (look for "
            "'fathom'); make space there, then replace the pod."
        )
    return " ".join(parts)
