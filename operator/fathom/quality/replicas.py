"""The replicas as a quality check sees them, and which of them it takes. Pure."""

from dataclasses import dataclass
from itertools import combinations

from fathom.core.counted import counted
from fathom.engine.depth import DepthDocument


@dataclass(frozen=True, slots=True)
class Replica:
    """A ready replica, as a check sees it."""

    name: str
    revision: str = ""
    pinned: bool = False
    """A person holds it at a depth."""
    live: bool = True
    """Its metrics were read, and show that its depth can be changed live."""
    generation: int = 0
    """Of the depth document that its engine reports to be in force."""


@dataclass(frozen=True, slots=True)
class QualityFleet:
    """What a check may know of the replicas at one moment."""

    now_s: float
    replicas: tuple[Replica, ...]
    """The ready ones."""
    document: DepthDocument | None
    """As the cluster has it; None: none yet."""
    refusal: str = ""
    """Why depth cannot be changed live; empty: it can."""

    def replica(self, name: str) -> Replica | None:
        return next((each for each in self.replicas if each.name == name), None)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Who plays which part."""

    reference: str
    """The pod at depth 0."""
    speculating: str
    """The pod at `depth`; may be the same one."""
    depth: int


def chosen(fleet: QualityFleet) -> Chosen | str:
    """Two replicas of one revision, or one for both parts; or the sentence why there are none."""
    document = fleet.document
    if fleet.refusal:
        return fleet.refusal
    if document is None:
        return "No depth document was written yet. Ask again in a minute."
    if not (depth := max((part.depth for part in document.schedule), default=0)):
        return "Depth is 0 at every batch: nothing is speculated, so there is nothing to compare."
    if not fleet.replicas:
        return "No replica is ready: see the condition Ready."
    free = [each for each in fleet.replicas if each.live and not each.pinned]
    if not free:
        return (
            f"Of {counted(len(fleet.replicas), 'ready replica')} none can be held at a depth: "
            "pinned by a person, or metrics that cannot be read or show no live depth."
        )
    # A replica with depths of its own is in the middle of a probe, which need not be cut short.
    free.sort(key=lambda each: (each.name in document.pods, each.name))
    alike = (pair for pair in combinations(free, 2) if pair[0].revision == pair[1].revision)
    reference, speculating = next(alike, (free[0], free[0]))
    return Chosen(reference.name, speculating.name, depth)
