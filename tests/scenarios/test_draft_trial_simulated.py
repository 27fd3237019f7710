"""Another draft on trial, on simulated engines and with the real tuner: each at its own depth."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from benchmarks.tuner.course.course import WorldCourse
from benchmarks.tuner.course.drawing import generator
from benchmarks.tuner.fleet.engine import CourseEngine
from benchmarks.tuner.fleet.load import Batch
from benchmarks.tuner.fleet.normals import normals
from benchmarks.tuner.fleet.plant import CoursePlant
from fathom.adapters.ports import PodEndpoint, Sample
from fathom.cluster.kinds import CONFIG_MAP
from fathom.engine.depth import DepthDocument, depth_at
from fathom.measurement.counters import PodCounters
from fathom.tuning.tuner import decide
from scenarios.test_arm import pass_minutes
from scenarios.test_draft_trial import NEW, OLD, pods_with
from support.loop_harness import START_S, FakeMetrics, LoopHarness
from unit.benchmarks.tuner.worlds import TICK_S, course, world

FLEET: Final = {"replicas": 3, "speculation.minTokens": 0}
BATCH: Final = 8
DEPTHS: Final = (0, 1, 3, 7)
Accepted = float | tuple[tuple[float, float], ...]
"""P(a draft is accepted): of all requests, or of each class of them, after its share."""
NOISE: Final = {"design_effect": 12, "step_spread": 0.25}


def document(harness: LoopHarness) -> DepthDocument:
    text = harness.kube.find(CONFIG_MAP, "kimi-depth")["data"]["depth.json"]
    found = DepthDocument.from_json(text)
    assert found is not None
    return found


class Drafting(FakeMetrics):
    """Each pod serves a course's batches by the depth document, with the draft that it has."""

    def __init__(self, harness: LoopHarness, acceptance: Mapping[str, Accepted]) -> None:
        super().__init__(harness.clock)
        self._bench = harness
        (self.new,) = acceptance.keys() - {OLD}
        self.courses = {draft: self._course(each) for draft, each in acceptance.items()}
        self._plants = {draft: CoursePlant.of(each) for draft, each in self.courses.items()}
        self._normals = normals(generator(self.courses[OLD].world, 1, "counts"))
        self._engines: dict[str, tuple[CourseEngine, float]] = {}

    def _course(self, acceptance: Accepted) -> WorldCourse:
        classes = ((1.0, acceptance),) if isinstance(acceptance, float) else acceptance
        of = world(
            step_time={"compute_per_token_us": 20, "weights_ms": 5},
            traffic={"concurrency": 8, "fluctuation": 0.2},
            classes=[
                {"name": f"class {at}", "share": share, "acceptance": [accepted]}
                for at, (share, accepted) in enumerate(classes)
            ],
            noise=NOISE,
        )
        return course(of, hours=5)

    def most(self, draft: str) -> float:
        """Tokens that the best of these depths makes of these batches."""
        return max(float(self.courses[draft].rate[:, 0, depth].sum()) for depth in DEPTHS)

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        found = await super().sample(pods)
        new = pods_with(self._bench, self.new)
        asked = document(self._bench)
        counted = (
            self._served(each, self.new if each.pod in new else OLD, asked)
            for each in found.counters
        )
        return Sample(tuple(counted))

    def _served(self, look: PodCounters, draft: str, asked: DepthDocument) -> PodCounters:
        pod, at_s = look.pod, look.at_s
        of, plant = self.courses[draft], self._plants[draft]
        engine, since_s = self._engines.get(pod) or (
            CourseEngine(pod, START_S, of.world.noise, of.world.traffic, self._normals),
            at_s,
        )
        schedule, batch = asked.for_pod(pod), 0
        while since_s < at_s:
            tick = int((since_s - START_S) / TICK_S) % of.clock.ticks
            until_s = min(at_s, since_s - (since_s - START_S) % TICK_S + TICK_S)
            batch = int(of.batch[tick, 0])
            work = plant.work(tick, 0, batch, depth_at(schedule, batch), wear=1.0, lost=0.0)
            engine.serve(work, until_s - since_s, plant.prefill_s)
            since_s = until_s
        self._engines[pod] = engine, at_s
        found = engine.counters(
            at_s, generation=asked.generation, live_depth=True, batch=Batch(batch)
        )
        return replace(found, schedule_hash=asked.hash_for_pod(pod))


async def serving(
    acceptance: Mapping[str, Accepted], **changes: Any
) -> tuple[LoopHarness, Drafting]:
    """A fleet that has found its depth."""
    harness = LoopHarness({**FLEET, **changes}, decide=decide)
    await harness.until_ready()
    metrics = harness.metrics = Drafting(harness, acceptance)
    await pass_minutes(harness, 20)
    return harness, metrics


@pytest.mark.parametrize(
    ("old", "depth", "new", "result"),
    [
        (0.02, 0, 0.85, "Faster"),
        (0.2, 1, 0.85, "Faster"),
        (0.45, 3, 0.85, "Faster"),
        (0.75, 7, 0.4, "Slower"),
    ],
)
async def test_a_draft_is_judged_at_its_own_depth(
    old: float, depth: int, new: float, result: str
) -> None:
    harness, metrics = await serving({OLD: old, NEW: new})
    assert depth_at(document(harness).schedule, BATCH) == depth
    harness.edit({"draft.trial": {"id": NEW}})
    await pass_minutes(harness, 22)
    found = harness.status["draftTrial"]
    assert (found["state"], found["result"]) == ("Compared", result)
    low, high = map(float, found["intervalPercent"].split(" to "))
    gain = 100 * (metrics.most(NEW) / metrics.most(OLD) - 1)
    assert low - 3 <= gain <= high + 3
    # What the draft does is no matter of the others: neither their depth, nor their alarms.
    assert depth_at(document(harness).schedule, BATCH) == depth
    assert document(harness).pods.keys() >= {found["pod"]}
    assert harness.condition("Degraded")["status"] == "False"


async def test_adopted_it_goes_on_at_the_depth_that_it_has_found() -> None:
    harness, _ = await serving({OLD: 0.02, NEW: 0.85})
    harness.edit({"draft.trial": {"id": NEW}})
    await pass_minutes(harness, 22)
    pod = harness.status["draftTrial"]["pod"]
    own = document(harness).for_pod(pod)
    assert depth_at(own, BATCH) == 7
    harness.edit({"draft": {"id": NEW}})
    shallowest = 7
    for _ in range(12):
        await pass_minutes(harness, 0.5)
        now = document(harness)
        if pod not in now.ends:
            shallowest = min(shallowest, depth_at(now.for_pod(pod), BATCH))
    assert shallowest == 7
    assert pods_with(harness, NEW) == {each["metadata"]["name"] for each in harness.pods_of("kimi")}
    assert depth_at(document(harness).schedule, BATCH) == 7
    assert not pods_with(harness, OLD)
