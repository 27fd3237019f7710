"""Batch buckets, as the plugin counts them. The tuner decides one depth for each."""

from collections.abc import Mapping
from functools import lru_cache

from fathom.engine.depth import DepthRange, Schedule, depth_at, merged
from fathom_vllm import buckets as counted

Depths = Mapping[int, int]
"""Depth per bucket; a bucket is named by its largest batch."""


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
