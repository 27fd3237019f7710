"""Policies under open traffic, where what is in flight follows from what was decided."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from benchmarks.tuner.course.course import Ints, WorldCourse
from benchmarks.tuner.course.drawing import generator
from benchmarks.tuner.fleet.load import Batch, OpenLoad
from benchmarks.tuner.fleet.plant import CoursePlant, CourseWork
from benchmarks.tuner.outcome import CourseOutcome
from benchmarks.tuner.policies.learner import Learner, WindowSeen, sampling_sd
from fathom_vllm.buckets import bucket_index, first_batch, last_batch

DepthOf = Callable[[int], int]
"""Depth for the index of a batch bucket."""


class Chooser(Protocol):
    def choose(self, tick: int, batches: list[Batch]) -> DepthOf:
        """The depths of the window that begins with this tick."""
        ...

    def learn(self, window: list[WindowSeen]) -> None:
        """Take in the window that ended."""
        ...


class Learning:
    """A policy that sees one window after another."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    def choose(self, tick: int, batches: list[Batch]) -> DepthOf:
        del tick, batches
        return self.learner.depth

    def learn(self, window: list[WindowSeen]) -> None:
        self.learner.learn(window)


class Fixed:
    """One schedule: a depth per bucket."""

    def __init__(self, schedule: Ints) -> None:
        self.schedule: list[int] = schedule.tolist()

    def choose(self, tick: int, batches: list[Batch]) -> DepthOf:
        del tick, batches
        return self.schedule.__getitem__

    def learn(self, window: list[WindowSeen]) -> None:
        del window


class Foresight:
    """The clairvoyant: in each window what is fastest for what is in flight.

    Buckets that nobody is in get what is fastest in their middle.
    """

    def __init__(self, course: WorldCourse, buckets: int) -> None:
        fleet = course.world.fleet
        self.course = course
        self.plant = CoursePlant.of(course)
        self.depths = range(fleet.min_tokens, fleet.max_tokens + 1)
        self.middles = [
            min(fleet.max_batch, (first_batch(index) + last_batch(index)) // 2)
            for index in range(buckets)
        ]
        self.visits = np.zeros((buckets, fleet.max_tokens + 1))
        """Tokens per second at each depth, summed over what each window began with."""

    def choose(self, tick: int, batches: list[Batch]) -> DepthOf:
        rates = np.zeros_like(self.visits)
        for replica, batch in enumerate(batches):
            if batch.running:
                rates[bucket_index(batch.running)] += self._rates(tick, replica, batch.running)
        self.visits += rates
        for bucket, middle in enumerate(self.middles):
            if not rates[bucket].any():
                rates[bucket] = self._rates(tick, 0, middle)
        best: list[int] = np.argmax(rates, axis=1).tolist()
        return best.__getitem__

    def learn(self, window: list[WindowSeen]) -> None:
        del window

    def _rates(self, tick: int, replica: int, batch: int) -> list[float]:
        worn = _wear(self.course, tick, replica)
        return [
            self.plant.work(tick, replica, batch, depth, wear=worn, lost=0.0).rate
            if depth in self.depths
            else 0.0
            for depth in range(self.visits.shape[1])
        ]


def run_queueing(course: WorldCourse, chooser: Chooser) -> CourseOutcome:
    """Live through an open course; depths change at the beginning of windows, for free."""
    clock, plant, load = course.clock, CoursePlant.of(course), OpenLoad(course)
    tokens = np.zeros((clock.ticks, course.replicas))
    batch_of, depth_of = np.zeros_like(course.batch), np.zeros_like(course.batch)
    noise = generator(course.world, course.seed, "seen")
    serving: list[list[bool]] = course.serving.tolist()
    seen: dict[int, list[tuple[CourseWork, float]]] = {}
    depths: DepthOf = dict.fromkeys(range(64), course.world.fleet.tokens).__getitem__
    for tick in range(clock.ticks):
        batches = load.batches(tick, serving[tick])
        if tick % clock.ticks_per_window == 0:
            chooser.learn([_sampled(bucket, each, course, noise) for bucket, each in seen.items()])
            seen = {}
            depths = chooser.choose(tick, batches)
        for replica, batch in enumerate(batches):
            made = 0.0
            if batch.running:
                asked = depths(bucket_index(batch.running))
                worn = _wear(course, tick, replica)
                work = plant.work(tick, replica, batch.running, asked, wear=worn, lost=batch.lost)
                seconds = clock.tick_s * load.busy_share(batch, replica, work)
                made = work.rate * seconds
                seen.setdefault(bucket_index(batch.running), []).append((work, seconds))
                depth_of[tick, replica] = asked
            load.served(replica, made)
            tokens[tick, replica] = made
            batch_of[tick, replica] = batch.running
    return CourseOutcome(
        tokens=tokens, depth=depth_of, batch=batch_of, request_seconds=load.request_seconds
    )


def _wear(course: WorldCourse, tick: int, replica: int) -> float:
    return float(course.wear[tick, replica]) if course.decays else 1.0


def _sampled(
    bucket: int,
    parts: list[tuple[CourseWork, float]],
    course: WorldCourse,
    draws: np.random.Generator,
) -> WindowSeen:
    """What a learner sees of one bucket: the truth with the noise of sampled drafts."""
    depth = parts[0][0].depth
    tokens = sum(work.rate * seconds for work, seconds in parts)
    drafts = sum(work.rate * seconds / work.length for work, seconds in parts)
    sd = sampling_sd(tokens, drafts, depth, course.world.noise.design_effect)
    noisy = max(drafts, tokens + sd * float(draws.standard_normal()))
    return WindowSeen(bucket, depth, noisy, sum(seconds for _, seconds in parts), drafts)
