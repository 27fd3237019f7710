"""How many resources of which lot there are, and how long each part takes. Pure."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Final

PER_NAMESPACE: Final = 10
"""Resources that share a namespace, unless all do."""
MOST_UNFINISHED: Final = 100
"""Resources that were created and have not all of their children yet: nobody creates hundreds in
the same second."""
GPUS_PER_NODE: Final = 8
"""Each pod takes one."""


class Lot(StrEnum):
    """How a resource fares; its name begins with it."""

    STEADY = "steady"
    ROLLING = "rolling"
    """Its new revision has a pod that never becomes ready."""
    UNSCHEDULABLE = "unschedulable"
    """No node has room for its pods."""
    REFUSED = "refused"
    """The API server takes its spec, the operator does not."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of all resources; the rest are steady."""

    rolling: float = 0.05
    unschedulable: float = 0.02
    refused: float = 0.02

    def lots(self, size: int) -> Iterator[Lot]:
        """The lot of each of so many resources: one at least of each lot that has a share."""
        yield from [Lot.ROLLING] * ceil(self.rolling * size)
        yield from [Lot.UNSCHEDULABLE] * ceil(self.unschedulable * size)
        yield from [Lot.REFUSED] * ceil(self.refused * size)


@dataclass(frozen=True, slots=True)
class Planned:
    """One SpeculativeDeployment that is to be."""

    namespace: str
    name: str
    lot: Lot


def planned(size: int, shares: Shares, *, one_namespace: bool) -> tuple[Planned, ...]:
    """So many resources, the lots in a mixed order that is always the same."""
    lots = [*shares.lots(size)][:size]
    lots += [Lot.STEADY] * (size - len(lots))
    random.Random(size).shuffle(lots)  # noqa: S311 - for spreading, not for secrets
    return tuple(
        Planned(
            namespace="scale" if one_namespace else f"scale-{number // PER_NAMESPACE:03d}",
            name=f"{lot}-{number:04d}",
            lot=lot,
        )
        for number, lot in enumerate(lots)
    )


def lot_of(name: str) -> Lot:
    """Lot of a resource, by its name."""
    return Lot(name.partition("-")[0])


@dataclass(frozen=True, slots=True)
class Timing:
    """Lengths in seconds, and how often. Creating, building and starting come on top."""

    start_seconds: float = 300.0
    """For which a cold start is waited for."""
    settle_seconds: float = 15.0
    """From the end of a start, or of edits, to the window that follows."""
    rest_seconds: float = 65.0
    """Longer than the minute after which the operator looks again without a sign."""
    edits: int = 20
    """Resources that are edited, twice each: one replica less, and back."""
    edit_gap_seconds: float = 0.5
    warm_seconds: float = 75.0
    """Seconds of traffic before it counts: the tuner's first windows, and what it writes then."""
    traffic_seconds: float = 60.0
    """Two of the tuner's windows."""
    steady_seconds: float = 0.0
    """Seconds of more traffic, after which it is watched once more; 0: it is not."""
    per_resource_seconds: float = 0.5
    """What creating and building are expected to take on two processors."""

    def size_seconds(self, size: int) -> float:
        """What one size is expected to take."""
        edits = 2 * 2 * min(self.edits, size) * self.edit_gap_seconds
        windows = self.rest_seconds + self.warm_seconds + self.traffic_seconds
        settling = 4 * self.settle_seconds
        if self.steady_seconds:
            windows += self.steady_seconds + self.traffic_seconds
            edits += edits / 2
            settling += 2 * self.settle_seconds
        return size * self.per_resource_seconds + settling + edits + windows


QUICK: Final = Timing(
    settle_seconds=3.0,
    rest_seconds=10.0,
    edits=3,
    warm_seconds=10.0,
    traffic_seconds=15.0,
)


@dataclass(frozen=True, slots=True)
class ScaleRequest:
    """What is to be measured."""

    sizes: tuple[int, ...]
    pods_each: int
    shares: Shares
    one_namespace: bool
    timing: Timing
    quick: bool
    profiled: bool
