"""Policies that see one window after another and pick the depths of the next.

They get the best of circumstances: exact windows, all pods at once, switching at no cost. What
they see carries the noise of sampled drafts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Protocol

import numpy as np

from benchmarks.tuner.course.course import Ints
from benchmarks.tuner.course.drawing import generator
from benchmarks.tuner.policies.windows import Windows


@dataclass(frozen=True, slots=True)
class WindowSeen:
    """One batch bucket in one window, all pods together."""

    bucket: int
    depth: int
    tokens: float
    pod_seconds: float
    drafts: float
    """Requests times steps: drafts made, or that would have been at depth 0."""


class Learner(Protocol):
    def depth(self, bucket: int) -> int:
        """The depth for a bucket in the coming window."""
        ...

    def learn(self, window: Sequence[WindowSeen]) -> None:
        """Take in the window that ended."""
        ...


def run_learner(learner: Learner, given: Windows) -> Ints:
    """(W, buckets): the depths a learner picks; 0 in buckets without work."""
    chosen = np.zeros(given.pod_seconds.shape, dtype=np.int64)
    noise = generator(given.course.world, given.course.seed, "seen")
    errors = noise.standard_normal(given.pod_seconds.shape)
    effect = given.course.world.noise.design_effect
    for window in range(len(chosen)):
        seen: list[WindowSeen] = []
        for bucket in np.flatnonzero(given.pod_seconds[window]).tolist():
            depth = learner.depth(bucket)
            chosen[window, bucket] = depth
            at = (window, bucket, depth)
            tokens, drafts = float(given.tokens[at]), float(given.drafts[at])
            error = float(errors[window, bucket]) * sampling_sd(tokens, drafts, depth, effect)
            seconds = float(given.pod_seconds[window, bucket])
            seen.append(WindowSeen(bucket, depth, max(drafts, tokens + error), seconds, drafts))
        learner.learn(seen)
    return chosen


def sampling_sd(tokens: float, drafts: float, depth: int, design_effect: float) -> float:
    """Standard deviation of the tokens that so many drafts make.

    Accepted drafts lie in 0 … depth; their variance is taken as half of the largest that their
    mean allows, m·(depth - m).
    """
    if drafts <= 0 or depth == 0:
        return 0.0
    mean = tokens / drafts - 1
    return sqrt(max(0.0, 0.5 * design_effect * mean * (depth - mean) * drafts))
