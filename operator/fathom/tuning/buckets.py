"""Batch buckets: powers of two, as the plugin counts them. The tuner decides one depth for each."""

from collections.abc import Mapping

from fathom.core.depth import DepthRange, Schedule, depth_at, merged

Depths = Mapping[int, int]
"""Depth per bucket; a bucket is named by its upper bound."""


def buckets(max_batch: int) -> tuple[int, ...]:
    """Upper bounds of the buckets that cover batches up to `max_batch`: 1, 2, 4, 8 and so on."""
    return tuple(1 << i for i in range((max_batch - 1).bit_length() + 1))


def first_batch(bucket: int) -> int:
    """The smallest batch of a bucket."""
    return bucket // 2 + 1


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
    """A bucket for people, such as `batch 5-8`."""
    first, last = first_batch(bucket), min(bucket, max_batch)
    return f"batch {first}" if first >= last else f"batch {first}-{last}"
