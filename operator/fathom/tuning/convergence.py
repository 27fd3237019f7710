"""Whether the engines run the depths that the document asks for: they themselves say so."""

from dataclasses import dataclass
from typing import Final

from fathom.engine.depth import DepthDocument
from fathom.measurement.counters import PodCounters
from fathom.tuning.interface import TunedPod, TuningSnapshot
from fathom.tuning.learned_state import Behind, TuningState
from fathom.tuning.learning import is_stale

POKE_AFTER_S: Final = 30.0
"""A document not in force for so long: its engines are notified again, in case the kubelet is
slow."""
DEADLINE_S: Final = 120.0
"""And for so long: the pod does not obey. A kubelet takes less."""
LOST_SHARE: Final = 0.5
"""Share of the pods that can be judged: if so many do not obey, nothing can be tuned."""


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
    stepped = dict(state.stepped)
    waiting: list[str] = []
    late: list[str] = []
    behind: list[str] = []
    unplugged: list[str] = []
    unseen: list[str] = []
    still: list[Behind] = []
    judged = 0
    for pod in snapshot.pods:
        counters = _present(pod, snapshot)
        if not pod.ready or counters is None:
            continue
        judged += 1
        if not counters.live_depth:
            if pod.ready_for_s > DEADLINE_S:
                (unplugged if counters.counters_shown else unseen).append(pod.name)
            continue
        if counters.depth_generation == document.generation:
            continue
        since = _behind(pod, counters, snapshot, state)
        still.append(since)
        if pod.name in state.disobeying:
            behind.append(pod.name)
            continue
        waited = min(snapshot.now_s - since.since_s, pod.ready_for_s)
        if stepped.get(pod.name, 0.0) < snapshot.now_s - waited:
            continue
        if waited > DEADLINE_S:
            behind.append(pod.name)
            continue
        waiting.append(pod.name)
        if waited > POKE_AFTER_S:
            late.append(pod.name)
    unread = _unread(snapshot, state)
    return Convergence(
        judged=judged,
        waiting=tuple(waiting),
        late=tuple(late),
        disobeying=(*behind, *unplugged, *unseen, *unread),
        unread=unread,
        behind=tuple(still),
        sentence=_sentence(document.generation, behind, unplugged, unseen),
    )


def _unread(snapshot: TuningSnapshot, state: TuningState) -> tuple[str, ...]:
    """Who did not obey, and cannot be read: that is no sign that it does by now."""
    return tuple(
        pod.name
        for pod in snapshot.pods
        if pod.ready and pod.name in state.disobeying and _present(pod, snapshot) is None
    )


def _present(pod: TunedPod, snapshot: TuningSnapshot) -> PodCounters | None:
    """What it counts; None: it cannot be read, or what was read is of the past."""
    counters = pod.counters
    return None if counters is None or is_stale(counters, snapshot) else counters


def _behind(
    pod: TunedPod, counters: PodCounters, snapshot: TuningSnapshot, state: TuningState
) -> Behind:
    """It is no less behind for a newer document that it does not read either."""
    before = next((each for each in state.behind if each.pod == pod.name), None)
    if before is not None and before.generation == counters.depth_generation:
        return before
    return Behind(pod.name, counters.depth_generation, snapshot.document_written_at_s)


def _sentence(generation: int, behind: list[str], unplugged: list[str], unseen: list[str]) -> str:
    parts: list[str] = []
    if behind:
        parts.append(
            f"{', '.join(behind)} step, but do not run generation {generation} of the depth "
            f"document after {DEADLINE_S:.0f} s. Check the pod's log for 'fathom' and that "
            "the depth ConfigMap is mounted as a directory."
        )
    if unplugged:
        parts.append(
            f"{', '.join(unplugged)} cannot change depth live: the engine shows no live plugin. "
            "Check the pod's log for 'fathom', and that PYTHONPATH and --scheduler-cls are as "
            "rendered."
        )
    if unseen:
        parts.append(
            f"{', '.join(unseen)} run the plugin, but its counters do not reach /metrics: most "
            "often /dev/shm was full when the engine started. The pod's log says why (look for "
            "'fathom'); make space there, then replace the pod."
        )
    return " ".join(parts)
