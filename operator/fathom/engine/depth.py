"""The depth document: what the operator writes and every engine reads.

`{"generation": 12, "schedule": [[1,4,5],[5,16,3],[17,256,1]], "pods": {"<pod>": [[1,256,4]]}}`.
Ranges are `[first batch, last batch, depth]`, inclusive; batch is the number of requests scheduled
in a step. `pods` replaces the schedule for one pod: a probe, a canary, or a pin.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fathom_vllm.schedule import LAST_GENERATION, schedule_hash

BUDGET_SHARE: Final = 0.5
"""Most of the tokens that a step may hold, for all requests' drafts and the token after them: no
depth beyond `tokens` is chosen that takes more, since prompts need the rest."""


@dataclass(frozen=True, slots=True, order=True)
class DepthRange:
    """Depth for batches from `first` to `last`, inclusive."""

    first: int
    last: int
    depth: int


Schedule = tuple[DepthRange, ...]
"""Ascending ranges without gaps; the first starts at batch 1."""


def flat(depth: int, max_batch: int) -> Schedule:
    """One depth at every batch up to `max_batch`."""
    return (DepthRange(1, max_batch, depth),)


def depth_at(schedule: Schedule, batch: int) -> int:
    """Depth at a batch; the last range carries on beyond its end, as in vLLM.

    Raises:
        ValueError: the schedule is empty or the batch is below 1.
    """
    if not schedule or batch < 1:
        raise ValueError(f"no depth for batch {batch} in {schedule}")
    return next((r.depth for r in schedule if batch <= r.last), schedule[-1].depth)


def nearest_depth(depth: int, among: Sequence[int]) -> int:
    """Of these depths the one that is nearest to another; of two the shallower.

    Args:
        depth: any depth.
        among: one at least.
    """
    return depth if depth in among else min(among, key=lambda each: (abs(each - depth), each))


def merged(schedule: Schedule) -> Schedule:
    """The same schedule with neighbouring ranges of equal depth joined."""
    result: list[DepthRange] = []
    for part in schedule:
        if result and result[-1].depth == part.depth:
            result[-1] = DepthRange(result[-1].first, part.last, part.depth)
        else:
            result.append(part)
    return tuple(result)


def same_depths(one: Schedule, other: Schedule) -> bool:
    """Whether both mean the same at every batch: the last range carries on, wherever it ends."""
    starts = ([(part.first, part.depth) for part in merged(each)] for each in (one, other))
    return next(starts) == next(starts)


def summary(schedule: Schedule) -> str:
    """Depths from the smallest batch to the largest, such as `5/3/1`."""
    return "/".join(str(part.depth) for part in merged(schedule))


@dataclass(frozen=True, slots=True)
class DepthDocument:
    """What one version of the depth ConfigMap says."""

    generation: int
    schedule: Schedule
    pods: Mapping[str, Schedule] = field(default_factory=dict)

    def for_pod(self, pod: str) -> Schedule:
        """The schedule one pod obeys."""
        return self.pods.get(pod, self.schedule)

    def hash_for_pod(self, pod: str) -> int:
        """What the engine of a pod shows once it obeys this."""
        return schedule_hash(_ranges(self.for_pod(pod)))

    def same_depths(self, other: Self) -> bool:
        """Whether both ask for the same depths, whatever their generations."""
        return self.schedule == other.schedule and dict(self.pods) == dict(other.pods)

    def to_json(self) -> str:
        """Canonical text: equal documents are equal strings."""
        return json.dumps(
            {
                "generation": self.generation,
                "schedule": _ranges(self.schedule),
                "pods": {pod: _ranges(self.pods[pod]) for pod in sorted(self.pods)},
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> Self | None:
        """Read a document; None if it is not one."""
        try:
            wire = _Wire.model_validate_json(text)
        except ValidationError:
            return None
        return cls(
            generation=wire.generation,
            schedule=_schedule(wire.schedule),
            pods={pod: _schedule(ranges) for pod, ranges in wire.pods.items()},
        )


_Size = Annotated[int, Field(ge=1, le=1 << 31)]
_WireRange = tuple[_Size, _Size, Annotated[int, Field(ge=0, le=1 << 31)]]
_WireSchedule = Annotated[tuple[_WireRange, ...], Field(min_length=1)]


class _Wire(BaseModel):
    # As the engines read it: what they refuse must not be taken for what they obey, and they obey
    # the rest of a document with a key that they do not know.
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    generation: Annotated[int, Field(ge=1, le=LAST_GENERATION)]
    schedule: _WireSchedule
    pods: dict[str, _WireSchedule] = {}


def _ranges(schedule: Schedule) -> list[list[int]]:
    return [[part.first, part.last, part.depth] for part in schedule]


def _schedule(ranges: tuple[tuple[int, int, int], ...]) -> Schedule:
    return tuple(DepthRange(*part) for part in ranges)
