"""The course cut into windows and batch buckets: what one depth for each would make."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.tuner.course.course import Floats, Ints, WorldCourse, bucket_index


@dataclass(frozen=True)
class Windows:
    """Closed traffic, where what one policy does leaves the batches of the others alone."""

    course: WorldCourse
    bucket: Ints
    """(T, R): index of the bucket of each batch."""
    window: Ints
    """(T,): the window each tick lies in."""
    tokens: Floats
    """(W, buckets, depths): expected tokens."""
    drafts: Floats
    """(W, buckets, depths): requests times steps."""
    pod_seconds: Floats
    """(W, buckets): time that replicas spend there."""

    @property
    def buckets(self) -> int:
        return int(self.tokens.shape[1])

    @cached_property
    def ideal(self) -> "Windows":
        """The same where each depth has an engine of its own: what the clairvoyant scores."""
        ideal = self.course.ideal
        return self if ideal is self.course else windows(ideal)

    def depth(self, chosen: Ints) -> Ints:
        """(T, R) from a depth for each window and bucket (W, buckets), or for each bucket."""
        if chosen.ndim == 1:
            return np.asarray(chosen[self.bucket], dtype=np.int64)
        return np.asarray(chosen[self.window[:, None], self.bucket], dtype=np.int64)


def windows(course: WorldCourse) -> Windows:
    clock = course.clock
    bucket = bucket_index(course.batch)
    window = np.arange(clock.ticks) // clock.ticks_per_window
    buckets = int(bucket_index(np.array([course.world.fleet.max_batch]))[0]) + 1
    flat = (window[:, None] * buckets + bucket).ravel()

    def summed(values: Floats) -> Floats:
        size = clock.windows * buckets
        total = np.bincount(flat, values.ravel(), size).reshape(clock.windows, buckets)
        return np.asarray(total, dtype=float)

    busy = np.where(course.batch > 0, clock.tick_s, 0.0)
    depths = range(course.rate.shape[2])
    tokens = [summed(course.rate[:, :, k] * clock.tick_s) for k in depths]
    drafts = [summed(course.rate[:, :, k] * clock.tick_s / course.length[:, :, k]) for k in depths]
    return Windows(
        course=course,
        bucket=bucket,
        window=window,
        tokens=np.stack(tokens, axis=2),
        drafts=np.stack(drafts, axis=2),
        pod_seconds=summed(busy),
    )
