"""The course of one world-day: everything that happens whatever the policy does.

Drawn once per world and seed, and served to every policy: with common random numbers, policies
differ by what they decide and by nothing else.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.tuner.course.acceptance import request_factors
from benchmarks.tuner.course.hardware import Hardware
from benchmarks.tuner.worlds.events import Decay
from benchmarks.tuner.worlds.parts import DEEPEST
from benchmarks.tuner.worlds.world import SimulatedWorld
from fathom_vllm import buckets

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
OBEYS: Final = -1
"""In `WorldCourse.own_depth`: the engine drafts as asked."""


@dataclass(frozen=True, slots=True)
class CourseClock:
    """How time is cut: ticks, in which nothing changes, and the tuner's windows."""

    tick_s: float
    ticks: int
    ticks_per_window: int

    @property
    def windows(self) -> int:
        return -(-self.ticks // self.ticks_per_window)


@dataclass(frozen=True)
class WorldCourse:
    """Arrays over ticks (T) and replicas (R)."""

    world: SimulatedWorld
    seed: int
    clock: CourseClock
    hardware: Hardware
    alone: Hardware
    """The same where each depth has an engine of its own, with full graphs."""
    demand: Floats
    """(T, R): what the wanted batches are drawn around. Closed traffic."""
    wanted: Ints
    """(T, R): requests to be served at once. Closed traffic."""
    batch: Ints
    """(T, R): requests in each step, as many as fit; 0: no work. Closed traffic."""
    arrivals: Floats
    """(T, R): requests that arrive in the tick. Open traffic."""
    slowness: Floats
    """(T, R): factor on all step times."""
    lost: Floats
    """(T, R): share of the time lost to preemption."""
    shares: Floats
    """(T, classes): of the requests in flight."""
    survival: Floats
    """(T, DEEPEST): P(first i accepted) of the mixed traffic, i from 1, with any mismatch."""
    class_length: Floats
    """(T, classes, DEEPEST + 1): expected tokens per step of each class, without wear."""
    wear: Floats
    """(T, R): factor on conditional acceptance from uptime."""
    decays: tuple[tuple[float, Decay], ...]
    """When each decay with uptime begins, in seconds of the course."""
    mismatches_s: tuple[float, ...]
    """When each mismatch begins."""
    context: Floats
    """(T,): mean tokens of context per request."""
    present: Bools
    """(T, R): there is such a pod."""
    serving: Bools
    """(T, R): and it is ready."""
    life: Ints
    """(T, R): counts the pods that were this replica."""
    started_s: Floats
    """(T, R): when its engine's counters began, in seconds of the course."""
    ready_since_s: Floats
    """(T, R): when it became ready, in seconds of the course."""
    missing: Bools
    frozen: Bools
    deaf: Bools
    """(T, R) each: metrics cannot be read; stand still; documents are not adopted."""
    own_depth: Ints
    """(T, R): the depth an engine drafts at whatever it is asked; OBEYS."""

    @property
    def replicas(self) -> int:
        return int(self.serving.shape[1])

    @cached_property
    def ideal(self) -> "WorldCourse":
        """The same where each depth has an engine of its own: what the clairvoyant scores."""
        return self if self.alone is self.hardware else replace(self, hardware=self.alone)

    @cached_property
    def length(self) -> Floats:
        """(T, R, DEEPEST + 1): expected tokens per step and request at every depth asked for."""
        return self.length_of(self.batch)

    def length_of(self, batch: Ints) -> Floats:
        """(T, R, DEEPEST + 1): the same at other batches, which decide where drafts are cut."""
        length = self._verified_length
        if self.world.fleet.adaptive_verification:
            length = np.take_along_axis(length, self._verified(batch), axis=2)
        return _as_obeyed(length.copy(), self.own_depth)

    @cached_property
    def _verified_length(self) -> Floats:
        """(T, R, DEEPEST + 1): tokens per step and request where so many drafts are verified."""
        positions = np.arange(1, DEEPEST + 1)
        worn = self.survival[:, None, :] * self.wear[:, :, None] ** positions
        ones = np.ones((*self.wear.shape, 1))
        return np.concatenate([ones, 1 + np.cumsum(worn, axis=2)], axis=2)

    def _verified(self, batch: Ints) -> Ints:
        """(T, R, DEEPEST + 1): to how many drafts each depth is cut: what makes a step fastest."""
        made = batch[:, :, None] * self._verified_length
        whole = self._whole_s(batch)
        drafting = self.hardware.drafting_s[batch]
        found = np.zeros(made.shape, dtype=np.int64)
        for depth in range(1, DEEPEST + 1):
            own = slice(None, depth + 1)
            seconds = whole[..., own] + drafting[..., depth, None] - drafting[..., own]
            seconds *= self.slowness[:, :, None]
            found[..., depth] = np.argmax(
                made[..., own] / (seconds + made[..., own] * self.prefill_s), axis=2
            )
        return found

    @cached_property
    def mixed_length(self) -> Floats:
        """(T, DEEPEST + 1): expected tokens per step of all requests, without wear."""
        mixed = (self.shares[:, :, None] * self.class_length).sum(axis=1)
        return np.asarray(mixed, dtype=float)

    @cached_property
    def slower(self) -> Floats:
        """(T, classes, DEEPEST + 1): tokens per step of all requests over those of a class."""
        return np.asarray(self.mixed_length[:, None, :] / self.class_length, dtype=float)

    @cached_property
    def tpot_spread(self) -> Floats:
        """(T, DEEPEST + 1): mean over requests of (mixed length / the request's own length).

        Time per output token is the inverse of tokens per step, so its mean over requests is above
        that of the mean request.
        """
        own = np.stack([(1 / request_factors(each.tail)).mean() for each in self.world.classes])
        inverse = (self.shares * own)[:, :, None] / self.class_length
        return np.asarray(self.mixed_length * inverse.sum(axis=1), dtype=float)

    @cached_property
    def prefill_s(self) -> float:
        """Seconds of prefill for each token that is generated."""
        traffic = self.world.traffic
        return traffic.prompt_tokens / traffic.output_tokens * traffic.prefill_us_per_token * 1e-6

    def decode_s(self, batch: Ints) -> Floats:
        """(T, R, DEEPEST + 1): seconds of a decode step at these batches, at every depth."""
        seconds = self._whole_s(batch)
        if self.world.fleet.adaptive_verification:
            cut, drafting = self._verified(batch), self.hardware.drafting_s[batch]
            seconds = np.take_along_axis(seconds - drafting, cut, axis=2) + drafting
        return _as_obeyed(seconds * self.slowness[:, :, None], self.own_depth)

    def _whole_s(self, batch: Ints) -> Floats:
        """(T, R, DEEPEST + 1): of a step that verifies all its drafts, at the pods' usual speed."""
        attention = self.hardware.attention_s[batch] * self.context[:, None, None]
        return np.asarray(self.hardware.seconds[batch] + attention, dtype=float)

    @cached_property
    def rate(self) -> Floats:
        """(T, R, DEEPEST + 1): expected tokens per second of each replica. Closed traffic."""
        return self.rate_of(self.batch)

    def rate_of(self, batch: Ints) -> Floats:
        """(T, R, DEEPEST + 1): expected tokens per second of each replica at these batches.

        B·L / (t + B·L·p): each step's tokens over its time, with p seconds of prefill for each.
        """
        made = batch[:, :, None] * self.length_of(batch)
        rate = made / (self.decode_s(batch) + made * self.prefill_s)
        return np.asarray(rate * (1 - self.lost)[:, :, None], dtype=float)


def _as_obeyed(table: Floats, own_depth: Ints) -> Floats:
    """The table, with engines that do not obey at their own depth in every column."""
    astray = np.nonzero(own_depth != OBEYS)
    if astray[0].size:
        table[astray] = table[(*astray, own_depth[astray])][:, None]
    return table


def bucket_index(batch: Ints) -> Ints:
    """Index of the bucket (1 to 8, 9-10, 11-12 …) of each batch; batch 0 counts as 1."""
    largest = int(batch.max(initial=1))
    of_batch = np.array([0, *(buckets.bucket_index(each) for each in range(1, largest + 1))])
    return np.asarray(of_batch[batch], dtype=np.int64)
