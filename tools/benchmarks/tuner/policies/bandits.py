"""Bandits: each batch bucket learns by itself which depth makes most tokens per second.

Rewards are tokens per pod-second relative to the bucket's own mean, discounted, since traffic
changes. ε-greedy and UCB1: Auer, Cesa-Bianchi and Fischer, 2002. Thompson sampling with normal
rewards: Agrawal and Goyal, 2013.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import numpy as np

from benchmarks.tuner.course.course import Floats
from benchmarks.tuner.policies.learner import WindowSeen
from benchmarks.tuner.worlds.parts import FleetPart

DISCOUNT: Final = 0.998
"""Per window: what is older than some four hours of 30 s windows counts little."""
EPSILON: Final = 0.05
REWARD_SD: Final = 0.1
"""Noise of one window's reward, relative: batches differ within a bucket."""


class _Bandit(ABC):
    """Discounted counts and sums per bucket and depth."""

    def __init__(self, fleet: FleetPart, buckets: int, draws: np.random.Generator) -> None:
        self.depths = np.array(fleet.depths)
        self.start = fleet.tokens
        self.draws = draws
        self.weight = np.zeros((buckets, len(self.depths)))
        self.total = np.zeros((buckets, len(self.depths)))

    def depth(self, bucket: int) -> int:
        if not self.weight[bucket].any():
            return self.start
        return int(self.depths[self._arm(bucket)])

    def learn(self, window: Sequence[WindowSeen]) -> None:
        for seen in window:
            if seen.pod_seconds <= 0:
                continue
            arm = int(np.searchsorted(self.depths, seen.depth))
            self.weight[seen.bucket] *= DISCOUNT
            self.total[seen.bucket] *= DISCOUNT
            self.weight[seen.bucket, arm] += 1
            self.total[seen.bucket, arm] += seen.tokens / seen.pod_seconds

    def _means(self, bucket: int) -> Floats:
        """Mean rewards over the bucket's own mean; 1 where nothing is known."""
        weight, total = self.weight[bucket], self.total[bucket]
        level = total.sum() / weight.sum()
        return np.where(weight > 0, total / np.maximum(weight, 1e-9) / level, 1.0)

    @abstractmethod
    def _arm(self, bucket: int) -> int:
        """Index of the depth to play."""


class EpsilonGreedy(_Bandit):
    def _arm(self, bucket: int) -> int:
        if self.draws.random() < EPSILON:
            return int(self.draws.integers(len(self.depths)))
        known = np.where(self.weight[bucket] > 0, self._means(bucket), -np.inf)
        return int(np.argmax(known))


class Ucb(_Bandit):
    def _arm(self, bucket: int) -> int:
        weight = self.weight[bucket]
        if (weight <= 0).any():
            return int(np.argmin(weight))
        bonus = REWARD_SD * np.sqrt(2 * np.log(weight.sum() + 1) / weight)
        return int(np.argmax(self._means(bucket) + bonus))


class Thompson(_Bandit):
    def _arm(self, bucket: int) -> int:
        sd = REWARD_SD / np.sqrt(self.weight[bucket] + 0.25)
        return int(np.argmax(self._means(bucket) + sd * self.draws.standard_normal(len(sd))))
