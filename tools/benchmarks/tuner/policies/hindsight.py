"""Policies that know the course: the best static ones, and the clairvoyant."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from benchmarks.tuner.course.course import Floats, Ints
from benchmarks.tuner.policies.windows import Windows


def static(given: Windows, depth: int) -> Ints:
    """(buckets,): one depth, always."""
    return np.full(given.buckets, depth, dtype=np.int64)


def best_static_depth(given: Windows) -> Ints:
    """The one depth that makes most of the whole course."""
    total = _only(given.course.world.fleet.depths, given.tokens.sum(axis=(0, 1)))
    return static(given, int(np.argmax(total)))


def best_static_schedule(given: Windows) -> Ints:
    """The one schedule that makes most of the whole course."""
    total = _only(given.course.world.fleet.depths, given.tokens.sum(axis=0))
    return np.asarray(np.argmax(total, axis=-1))


def most_allowed(given: Windows) -> Ints:
    """(W, buckets): the best that can be done with the depths that the engines have."""
    return np.asarray(np.argmax(_only(given.course.world.fleet.depths, given.tokens), axis=-1))


def clairvoyant(given: Windows) -> Ints:
    """(W, buckets): in each window the schedule that makes most of it, switched to for free.

    It has all depths within the user's bounds, whether the engines have them or not.
    """
    return np.asarray(np.argmax(_only(_within(given), given.tokens), axis=-1))


def per_batch_ceiling(given: Windows) -> float:
    """Tokens with a depth of its own for each exact batch, replica and tick: no schedule can."""
    best = _only(_within(given), given.course.rate).max(axis=2)
    return float(best.sum() * given.course.clock.tick_s)


_IMPOSSIBLE: Final = -np.inf


def _within(given: Windows) -> Sequence[int]:
    fleet = given.course.world.fleet
    return range(fleet.min_tokens, fleet.max_tokens + 1)


def _only(depths: Sequence[int], values: Floats) -> Floats:
    """The values, with all other depths made impossible; depth is last."""
    result = np.full(values.shape, _IMPOSSIBLE)
    result[..., list(depths)] = values[..., list(depths)]
    return result
