"""The depth document, which the operator writes and every engine reads, and batch buckets. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fathom_vllm import buckets as counted
from fathom_vllm.depth_document import LAST_GENERATION, LONGEST_END_S, schedule_hash

BUDGET_SHARE: Final = 0.5
"""Most of the tokens that a step may hold, for all requests' drafts and the token after them: no
depth beyond `tokens` is chosen that takes more, since prompts need the rest."""
_NAMED_RANGES: Final = 2
"""Ranges that a summary names, before what is beyond them: a column of kubectl has a width."""
_Size = Annotated[int, Field(ge=1, le=1 << 31)]
_WireRange = tuple[_Size, _Size, Annotated[int, Field(ge=0, le=1 << 31)]]
_WireSchedule = Annotated[tuple[_WireRange, ...], Field(min_length=1)]
Depths = Mapping[int, int]
"""Depth per bucket; a bucket is named by its largest batch."""


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
    """Nearest of these depths to another; of two the shallower.

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
    """Depths for people: `7`, or by batch: `7 at 1-4, 3 beyond`.

    All that is beyond the second range is one: `7 at 1-4, 5 at 5-8, 1 to 3 beyond`.
    """
    parts = merged(schedule)
    named = parts[:-1][:_NAMED_RANGES]
    beyond = sorted({part.depth for part in parts[len(named) :]})
    span = " to ".join(str(depth) for depth in dict.fromkeys((*beyond[:1], *beyond[-1:])))
    if not named:
        return span
    return ", ".join((*map(_at, named), f"{span} beyond"))


def _at(part: DepthRange) -> str:
    batches = f"{part.first}" if part.first == part.last else f"{part.first}-{part.last}"
    return f"{part.depth} at {batches}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthDocument:
    """What one version of the depth ConfigMap says.

    A generation says which depths, and for how long. `tokens` may change within it: nothing that is
    in force changes with it.
    """

    generation: int
    schedule: Schedule
    pods: Mapping[str, Schedule] = field(default_factory=dict)
    tokens: Schedule = ()
    """The user's own depth: what engines go back to once there is no document. Empty: as started.
    An earlier Fathom writes none."""
    ends: Mapping[str, int] = field(default_factory=dict)
    """Seconds after which a pod's own entry ends by itself, and `schedule` follows; earlier plugins
    pass over it."""

    def for_pod(self, pod: str) -> Schedule:
        """The schedule one pod obeys."""
        return self.pods.get(pod, self.schedule)

    def hash_for_pod(self, pod: str) -> int:
        """What the engine of a pod shows once it obeys this."""
        return _hash(self.for_pod(pod))

    def hashes_for_pod(self, pod: str) -> frozenset[int]:
        """What it may show: its own entry may have ended by itself."""
        own = self.hash_for_pod(pod)
        return frozenset({own, _hash(self.schedule)} if pod in self.ends else {own})

    def same_depths(self, other: Self) -> bool:
        """Whether both ask for the same depths for as long, whatever their generations."""
        return (self.schedule, dict(self.pods), dict(self.ends)) == (
            other.schedule,
            dict(other.pods),
            dict(other.ends),
        )

    def to_json(self) -> str:
        """Canonical text: equal documents are equal strings."""
        wire: dict[str, object] = {
            "generation": self.generation,
            "schedule": _ranges(self.schedule),
            "pods": {pod: _ranges(self.pods[pod]) for pod in sorted(self.pods)},
        }
        if self.tokens:
            wire["tokens"] = _ranges(self.tokens)
        if self.ends:
            wire["ends"] = {pod: self.ends[pod] for pod in sorted(self.ends)}
        return json.dumps(wire, separators=(",", ":"))

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
            tokens=_schedule(wire.tokens),
            ends=wire.ends,
        )


class _Wire(BaseModel):
    # As the engines read it: what they refuse must not be taken for what they obey, and they obey
    # the rest of a document with a key that they do not know.
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    generation: Annotated[int, Field(ge=1, le=LAST_GENERATION)]
    schedule: _WireSchedule
    pods: dict[str, _WireSchedule] = {}
    tokens: _WireSchedule = ()
    ends: dict[str, Annotated[int, Field(ge=1, le=LONGEST_END_S)]] = {}


@lru_cache(maxsize=256)
def _hash(schedule: Schedule) -> int:
    return schedule_hash(_ranges(schedule))


def _ranges(schedule: Schedule) -> list[list[int]]:
    return [[part.first, part.last, part.depth] for part in schedule]


def _schedule(ranges: tuple[tuple[int, int, int], ...]) -> Schedule:
    return tuple(DepthRange(*part) for part in ranges)


@lru_cache(maxsize=256)
def buckets(max_batch: int) -> tuple[int, ...]:
    """The buckets that cover batches up to `max_batch`: 1 to 8, 10, 12, 14, 16, 20 and so on."""
    return tuple(counted.last_batch(index) for index in range(counted.bucket_count(max_batch)))


@lru_cache(maxsize=1024)
def first_batch(bucket: int) -> int:
    """The smallest batch of a bucket."""
    return counted.first_batch(counted.bucket_index(bucket))


def depths_of(schedule: Schedule, max_batch: int) -> dict[int, int]:
    """Depth of each bucket, at its first batch."""
    return {bucket: depth_at(schedule, first_batch(bucket)) for bucket in buckets(max_batch)}


def schedule_of(depths: Depths, max_batch: int) -> Schedule:
    """The schedule with these depths, up to `max_batch`."""
    return merged(
        tuple(
            DepthRange(first_batch(bucket), min(bucket, max_batch), depths[bucket])
            for bucket in sorted(depths)
        )
    )


def batches(bucket: int, max_batch: int) -> str:
    """A bucket for people, such as `batch 9-10`."""
    first, last = first_batch(bucket), min(bucket, max_batch)
    return f"batch {first}" if first >= last else f"batch {first}-{last}"
