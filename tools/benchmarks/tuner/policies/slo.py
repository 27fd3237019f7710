"""The objective Goodput: time per output token at the 95th percentile of requests, in truth.

Time per output token of one request is the step's time over that request's own tokens per step.
Requests differ by class and, within a class, by a lognormal factor; all that are in flight in a
window count alike. Speed that is bought by breaking the SLO earns nothing: where the clairvoyant
keeps it in a window and batch bucket and a policy does not, the policy's tokens there count at most
as many as the clairvoyant's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from benchmarks.tuner.course.acceptance import request_factors
from benchmarks.tuner.course.course import Bools, Floats, Ints
from benchmarks.tuner.outcome import CourseOutcome
from benchmarks.tuner.policies.windows import Windows

QUANTILE: Final = 0.95
LONGEST_S: Final = 10.0
"""Time per output token that is bad enough."""


@dataclass(frozen=True)
class CourseSlo:
    """The SLO of one course."""

    given: Windows
    seconds: float

    def choose(self) -> Ints:
        """(W, buckets): the clairvoyant's depths.

        The one that makes most tokens, of those that keep the SLO, or of all where none does.
        """
        fleet = self.given.course.world.fleet
        depths = range(fleet.min_tokens, fleet.max_tokens + 1)
        tpot = np.stack([self._bucket_tpot(np.full(self._cells, k)) for k in depths], axis=2)
        keeps = tpot <= self.seconds
        eligible = keeps | ~keeps.any(axis=2, keepdims=True)
        tokens = self.given.tokens[:, :, fleet.min_tokens : fleet.max_tokens + 1]
        best = np.argmax(np.where(eligible, tokens, -np.inf), axis=2)
        return np.asarray(best + fleet.min_tokens, dtype=np.int64)

    def kept(self, outcome: CourseOutcome) -> Bools:
        """(W,): whether the fleet's 95th percentile keeps the SLO in each window."""
        window = np.broadcast_to(self.given.window[:, None], self._cells)
        tpot = self._percentile(outcome.depth, window, self.given.course.clock.windows)
        return np.asarray(tpot <= self.seconds)

    def credited(
        self, outcomes: Mapping[str, CourseOutcome], best: CourseOutcome
    ) -> dict[str, CourseOutcome]:
        """Outcomes with no more tokens than the clairvoyant's where that alone keeps the SLO."""
        possible = self._bucket_tpot(best.depth) <= self.seconds
        cells = (self.given.window[:, None], self.given.bucket)
        result: dict[str, CourseOutcome] = {}
        for name, outcome in outcomes.items():
            capped = (possible & (self._bucket_tpot(outcome.depth) > self.seconds))[cells]
            tokens = np.where(capped, np.minimum(outcome.tokens, best.tokens), outcome.tokens)
            result[name] = replace(outcome, tokens=tokens)
        return result

    @property
    def _cells(self) -> tuple[int, int]:
        return self.given.bucket.shape[0], self.given.bucket.shape[1]

    def _bucket_tpot(self, depth: Ints) -> Floats:
        """(W, buckets): the 95th percentile in each."""
        windows, buckets = self.given.pod_seconds.shape
        group = self.given.window[:, None] * buckets + self.given.bucket
        return self._percentile(depth, group, windows * buckets).reshape(windows, buckets)

    def _percentile(self, depth: Ints, group: Ints, groups: int) -> Floats:
        """(groups,): 95th percentile of time per output token of the requests in each group.

        0 where there are none.
        """
        course = self.given.course
        taken = np.take_along_axis(course.rate, depth[:, :, None], axis=2)
        mean = course.batch / np.maximum(taken[:, :, 0], 1e-9)
        relative = course.slower
        ticks = np.arange(depth.shape[0])[:, None]
        slower = relative[ticks[:, :, None], np.arange(relative.shape[1]), depth[:, :, None]]
        factors = np.stack([request_factors(each.tail) for each in course.world.classes])
        tpot = mean[:, :, None, None] * slower[:, :, :, None] / factors
        weight = np.broadcast_to(
            (course.batch[:, :, None] * course.shares[:, None, :])[:, :, :, None], tpot.shape
        )
        groups_of = np.broadcast_to(group[:, :, None, None], tpot.shape)
        return _weighted_quantile(tpot.ravel(), weight.ravel(), groups_of.ravel(), groups)


def _weighted_quantile(values: Floats, weights: Floats, group: Ints, groups: int) -> Floats:
    """(groups,): the smallest value with `QUANTILE` of its group's weight at or below it."""
    # One key for both: many times faster than a sort by two.
    order = np.argsort(group + np.minimum(values, LONGEST_S) / (2 * LONGEST_S))
    values, weights, group = values[order], weights[order], group[order]
    total = np.bincount(group, weights, groups)
    before = np.concatenate([[0.0], np.cumsum(total)[:-1]])
    below = np.cumsum(weights) - before[group]
    reaches = (below >= QUANTILE * total[group] - 1e-9 * total[group]) & (total[group] > 0)
    result = np.zeros(groups)
    # Assigned from the largest down, the smallest that reaches it is what stays.
    result[group[reaches][::-1]] = values[reaches][::-1]
    return result


def slo_of(given: Windows) -> CourseSlo | None:
    """The world's SLO, if its objective is Goodput."""
    fleet = given.course.world.fleet
    if not fleet.objective.keeps_slo or fleet.tpot_milliseconds is None:
        return None
    return CourseSlo(given, fleet.tpot_milliseconds / 1000)
