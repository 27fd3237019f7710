"""Policies that know the course: the best static ones, and the clairvoyant."""

from typing import Final

import numpy as np

from fathom_local.tuner_bench.course import Floats, Ints
from fathom_local.tuner_bench.windows import Windows


def static(given: Windows, depth: int) -> Ints:
    """(buckets,): one depth, always."""
    return np.full(given.buckets, depth, dtype=np.int64)


def best_static_depth(given: Windows) -> Ints:
    """The one depth that makes most of the whole course."""
    total = _allowed(given, given.tokens.sum(axis=(0, 1)))
    return static(given, int(np.argmax(total)))


def best_static_schedule(given: Windows) -> Ints:
    """The one schedule that makes most of the whole course."""
    return np.asarray(np.argmax(_allowed(given, given.tokens.sum(axis=0)), axis=-1))


def clairvoyant(given: Windows) -> Ints:
    """(W, buckets): in each window the schedule that makes most of it, switched to for free."""
    return np.asarray(np.argmax(_allowed(given, given.tokens), axis=-1))


def per_batch_ceiling(given: Windows) -> float:
    """Tokens with a depth of its own for each exact batch, replica and tick: no schedule can."""
    best = _allowed(given, given.course.rate).max(axis=2)
    return float(best.sum() * given.course.clock.tick_s)


_IMPOSSIBLE: Final = -np.inf


def _allowed(given: Windows, values: Floats) -> Floats:
    """The values, with depths outside of the spec's bounds made impossible; depth is last."""
    fleet = given.course.world.fleet
    result = np.full(values.shape, _IMPOSSIBLE)
    inside = slice(fleet.min_tokens, fleet.max_tokens + 1)
    result[..., inside] = values[..., inside]
    return result
