"""The comparison on simulated engines that count by batch and depth: with cuts beside without."""

from collections.abc import Sequence

import pytest

from benchmarks.tuner.course.course import WorldCourse
from benchmarks.tuner.course.drawing import generator
from benchmarks.tuner.fleet.engine import CourseEngine
from benchmarks.tuner.fleet.load import Batch
from benchmarks.tuner.fleet.normals import normals
from benchmarks.tuner.fleet.plant import CoursePlant
from fathom.adapters.ports import PodEndpoint, Sample
from fathom.measurement.counters import PodCounters
from scenarios.test_arm import (
    CANARY,
    FLEET,
    compared,
    pass_minutes,
    pods_with_it,
    replicas,
)
from support.loop_harness import START_S, FakeMetrics, LoopHarness
from unit.benchmarks.tuner.worlds import TICK_S, course, world

TOKENS = 3
NOISE = {"design_effect": 12, "step_spread": 0.25}


class Simulated(FakeMetrics):
    """Each pod serves a course's batches at depth `TOKENS`; those with it cut their drafts."""

    def __init__(self, harness: LoopHarness, acceptance: float) -> None:
        super().__init__(harness.clock)
        self._bench, self._acceptance = harness, acceptance
        self.courses = {cut: self._course(cut=cut) for cut in (False, True)}
        self._plants = {cut: CoursePlant.of(each) for cut, each in self.courses.items()}
        self._normals = normals(generator(self.courses[False].world, 1, "counts"))
        self._engines: dict[str, tuple[CourseEngine, float]] = {}

    def _course(self, *, cut: bool) -> WorldCourse:
        of = world(
            step_time={"compute_per_token_us": 120, "weights_ms": 5},
            traffic={"concurrency": 24, "fluctuation": 0.3},
            classes=[{"name": "chat", "acceptance": [self._acceptance]}],
            noise=NOISE,
            fleet={"adaptive_verification": cut},
        )
        return course(of, hours=3)

    def gain(self) -> float:
        """What it is worth in truth, at these batches."""
        made = [each.rate[:, 0, TOKENS].sum() for each in self.courses.values()]
        return float(made[1] / made[0] - 1)

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        found = await super().sample(pods)
        with_it = pods_with_it(self._bench)
        counted = (self._served(each, cut=each.pod in with_it) for each in found.counters)
        return Sample(tuple(counted))

    def _served(self, look: PodCounters, *, cut: bool) -> PodCounters:
        pod, at_s = look.pod, look.at_s
        of, plant = self.courses[cut], self._plants[cut]
        engine, since_s = self._engines.get(pod) or (
            CourseEngine(pod, START_S, of.world.noise, of.world.traffic, self._normals),
            at_s,
        )
        batch = 0
        while since_s < at_s:
            tick = int((since_s - START_S) / TICK_S) % of.clock.ticks
            until_s = min(at_s, since_s - (since_s - START_S) % TICK_S + TICK_S)
            batch = int(of.batch[tick, 0])
            work = plant.work(tick, 0, batch, TOKENS, wear=1.0, lost=0.0)
            engine.serve(work, until_s - since_s, plant.prefill_s)
            since_s = until_s
        self._engines[pod] = engine, at_s
        return engine.counters(at_s, generation=1, live_depth=True, batch=Batch(batch))


@pytest.mark.parametrize(("acceptance", "result"), [(0.35, "Faster"), (0.98, "NoDifference")])
async def test_it_is_worth_what_it_makes_of_a_step_at_equal_batch_and_depth(
    acceptance: float, result: str
) -> None:
    harness = LoopHarness(FLEET)
    await harness.until_ready()
    metrics = harness.metrics = Simulated(harness, acceptance)
    harness.edit(CANARY)
    await pass_minutes(harness, 80)
    found = compared(harness)
    assert (found["state"], found["result"]) == ("Compared", result)
    low, high = map(float, found["intervalPercent"].split(" to "))
    assert low - 1 <= 100 * metrics.gain() <= high + 1
    assert replicas(harness) == (2, 1)
