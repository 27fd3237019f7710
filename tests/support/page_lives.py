"""Resources in every state that a page may show, each brought there by the operator's own loop.

What is shown is what the operator reported: a loop on a fake cluster, the tuner, and engines that
serve simulated traffic. A state that the loop cannot come to has no picture.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from math import pi, sin
from random import Random
from typing import Any, Final, Self

import structlog

from fathom.adapters.ports import PodEndpoint, Sample
from fathom.api.names import ANNOTATION_PAUSED, ANNOTATION_PROPOSE_TRAINING
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.cluster.kinds import CONFIG_MAP, POD, SPECULATIVE_DEPLOYMENT, ServedApis
from fathom.engine.depth import DepthDocument, flat
from fathom.health import UNWATCHED_S
from fathom.measurement.counters import PodCounters, Unread, UnreadKind
from fathom.page.subject import Subject
from fathom.tuning.tuner import decide
from fathom_vllm.environment import DEPTH_KEY
from support.loop_harness import KEY, START_S, FakeMetrics, LoopHarness, ManualClock
from support.page_subjects import EAGER
from support.played_training import ALLOWED, approve, end_job
from unit.tuning.plant import EASY, HARD, MIDDLE, Hardware, Pod

MINUTE_S: Final = 60.0
DAY_S: Final = 24 * 3600.0
IMAGE: Final = "registry.example/vllm-openai:v0.32.0-cu130"
PULL: Final = "manifest unknown"
CRASH: Final = (
    "ValueError: hidden size 7168 of the target is not that of the draft, 4096, as its config.json "
    "has it"
)
REFUSED: Final = (
    "Prometheus at prometheus:9090 refuses the login of Secret prometheus-login: it answers with "
    "HTTP status 401"
)
SERVED: Final = ServedApis(kinds=frozenset({("policy/v1", "PodDisruptionBudget")}))
LOADS: Final = (3, 7, 13)
"""Requests per engine, for ten minutes each."""


def by_turns(at_s: float) -> int:
    return LOADS[int((at_s - START_S) // 600) % len(LOADS)]


def of_a_day(at_s: float) -> int:
    """Nothing at night, the most in the afternoon. The clock begins at 8:00."""
    hour = (at_s - START_S) / 3600 % 24 + 8
    return round(15 * max(0.0, sin((hour % 24 - 6) / 18 * pi)))


class Engines(FakeMetrics):
    """Engines that serve, count, and obey the depth document."""

    def __init__(self, harness: LoopHarness, *, tick_s: float, seed: int) -> None:
        super().__init__(harness.clock)
        self._harness = harness
        self._tick_s = tick_s
        self._random = Random(seed)
        self._pods: dict[str, tuple[Pod, float]] = {}
        self.load: Callable[[float], int] = by_turns
        """Requests at once per engine, at a time."""
        self.acceptance = MIDDLE
        self.hardware = Hardware()
        self.refused = ""
        """Why nobody may read them."""

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        if self.refused:
            return Sample(
                (), tuple(Unread(each.pod, self.refused, UnreadKind.REFUSED) for each in pods)
            )
        return Sample(tuple(self._served(each.pod) for each in pods))

    def _served(self, name: str) -> PodCounters:
        now_s, document = self._clock.now_s(), self._document()
        pod, at_s = self._pods.get(name) or (self._new(name, now_s), now_s)
        if document.generation > pod.generation and not pod.pending:
            pod.pending.append((at_s + 2, document))
        while at_s < now_s:
            step_s, load = min(self._tick_s, now_s - at_s), self.load(at_s)
            batch = max(1, load + self._random.randint(-1, 1)) if load else 0
            pod.tick(at_s, batch, self.acceptance, step_s)
            at_s += step_s
        self._pods[name] = pod, at_s
        obeys = document.generation == pod.generation
        hashed = document.hash_for_pod(name) if obeys else 0
        return replace(pod.counters(now_s), schedule_hash=hashed)

    def _new(self, name: str, now_s: float) -> Pod:
        random = Random(self._random.random())
        pod = Pod(name, self.hardware, random, flat(3, 16), started_at_s=now_s)
        pod.long_requests = (0.15, 0.7)
        return pod

    def _document(self) -> DepthDocument:
        for each in self._harness.kube.all_of(CONFIG_MAP):
            found = DepthDocument.from_json(each.get("data", {}).get(DEPTH_KEY, ""))
            if found is not None:
                return found
        return DepthDocument(generation=0, schedule=flat(3, 16))


@dataclass(frozen=True)
class Life:
    """A resource, its engines, and whoever does something to them."""

    harness: LoopHarness
    engines: Engines

    @classmethod
    async def begun(
        cls,
        changes: Mapping[str, Any] | None = None,
        *,
        tick_s: float = 1.0,
        seed: int = 1,
        after_s: float = 0.0,
    ) -> Self:
        """Up and ready, so many seconds after 8:00."""
        asked = {**EAGER, "replicas": 2, **(changes or {})}
        clock = ManualClock()
        clock.at_s += after_s
        harness = LoopHarness(asked, served=SERVED, clock=clock, decide=decide)
        await harness.until_ready()
        engines = Engines(harness, tick_s=tick_s, seed=seed)
        harness.metrics = engines
        return cls(harness, engines)

    @property
    def now_s(self) -> float:
        return self.harness.clock.now_s()

    @property
    def status(self) -> SpeculativeDeploymentStatus:
        """As it was reported last."""
        return self.subject.status

    @property
    def subject(self) -> Subject:
        return self.harness.world.shown.subject(KEY)

    async def passes(self, minutes: float, *, controllers: bool = False) -> Self:
        """Time, in which whoever makes pods does so too, if asked."""
        until_s = self.now_s + MINUTE_S * minutes
        while self.now_s < until_s:
            delay_s = await self.harness.loop.tick()
            self.harness.clock.at_s += min(delay_s or MINUTE_S, until_s - self.now_s)
            if controllers:
                self.harness.play_controllers()
        await self.harness.tick()
        return self

    async def until(self, reached: Callable[[SpeculativeDeploymentStatus], bool]) -> Self:
        """Pass by pass until its status is like that."""
        for _ in range(3000):
            if reached(self.status):
                return self
            self.harness.clock.at_s += await self.harness.loop.tick() or MINUTE_S
        raise AssertionError(f"it never came to be: {self.status}")

    def annotate(self, name: str, value: str) -> None:
        document = deepcopy(self.harness.resource)
        document["metadata"].setdefault("annotations", {})[name] = value
        self.harness.kube.put(SPECULATIVE_DEPLOYMENT, document)
        self.harness.loop.wake()

    def container(self, pod: str, state: Mapping[str, Any], **more: Any) -> None:
        """Its engine's container is in this state, and not ready."""
        statuses = [{"name": "vllm", "image": IMAGE, "state": state, **more}]
        self.harness.set_ready(pod, ready=False, containerStatuses=statuses)
        self.harness.loop.wake()


async def _tuned(minutes: float = 35, **changes: Any) -> Life:
    return await (await Life.begun(changes)).passes(minutes)


async def _probing() -> Life:
    return await (await _tuned(10)).until(lambda each: each.tuning.summary == "Auto/Probing")


async def _at_rest() -> Life:
    life = await Life.begun()
    life.engines.load = lambda _: 7
    life.engines.acceptance = EASY
    await life.passes(40)
    return await life.until(lambda each: each.tuning.summary == "Auto/AtBest")


async def _no_traffic() -> Life:
    life = await _tuned(30)
    life.engines.load = lambda _: 0
    return await life.passes(25)


async def _alarmed() -> Life:
    life = await Life.begun()
    life.engines.load = lambda _: 7
    await life.passes(30)
    life.engines.acceptance = HARD
    return await life.passes(12)


async def _over() -> Life:
    life = await _alarmed()
    life.engines.acceptance = MIDDLE
    return await life.passes(20)


async def _image_unavailable() -> Life:
    """A node is lost, and the pod in its place has no image."""
    life = await _tuned()
    pod = life.harness.lose_pod()
    life.container(pod, {"waiting": {"reason": "ImagePullBackOff", "message": PULL}})
    return await life.passes(6)


async def _crashing() -> Life:
    """None serves any more; what was measured before is of the past."""
    life = await _tuned()
    ended = {"terminated": {"exitCode": 1, "message": f"Traceback:\n{CRASH}"}}
    for pod in life.harness.kube.names(POD):
        waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
        life.container(pod, waiting, restartCount=4, lastState=ended)
    return await life.passes(20)


async def _metrics_refused() -> Life:
    life = await _tuned()
    life.engines.refused = REFUSED
    return await life.passes(14)


async def _paused() -> Life:
    life = await _tuned()
    life.annotate(ANNOTATION_PAUSED, "incident 42: nothing may move before the review")
    return await life.passes(5)


async def _canary(minutes: float = 6) -> Life:
    life = await _tuned(replicas=3, **{"rollout.canaryMinutes": 30})
    life.harness.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
    return await life.passes(minutes, controllers=True)


async def _starting() -> Life:
    harness = LoopHarness({**EAGER, "replicas": 2}, served=SERVED, decide=decide)
    life = Life(harness, Engines(harness, tick_s=1.0, seed=1))
    for _ in range(3):
        await harness.tick()
        harness.play_controllers(ready=False)
    return await life.passes(0.25)


async def _static() -> Life:
    return await _tuned(**{"speculation.tuning.mode": "Static"})


async def _spec_refused() -> Life:
    life = await _tuned(20)
    life.harness.edit({"engine.args": ["--port", "1"]})
    return await life.passes(3)


async def _day() -> Life:
    """From an afternoon into the night."""
    changes = {"speculation.tuning.windowSeconds": 300}
    life = await Life.begun(changes, tick_s=30.0, seed=5, after_s=6 * 3600.0)
    life.engines.load = of_a_day
    await life.passes(3 * 60)
    life.engines.acceptance = HARD
    await life.passes(25)
    life.engines.acceptance = MIDDLE
    return await life.passes(8 * 60)


async def _training_proposed() -> Life:
    """A person asked for it, and has not decided yet."""
    life = await _tuned(20, **ALLOWED)
    life.annotate(ANNOTATION_PROPOSE_TRAINING, "1")
    return await life.passes(3)


async def _training_failed() -> Life:
    life = await _training_proposed()
    approve(life.harness)
    await life.passes(2)
    end_job(life.harness, "training", exit_code=1)
    return await life.passes(4)


async def _draft_on_trial() -> Life:
    """Another draft that the spec names; its pod is on its way."""
    life = await _tuned(20, replicas=3)
    life.harness.edit({"draft.trial": {"id": "org/another-draft"}})
    return await life.passes(4, controllers=True)


_LIVES: Final[Mapping[str, Callable[[], Awaitable[Life]]]] = {
    "tuned": _tuned,
    "probing": _probing,
    "at-rest": _at_rest,
    "no-traffic": _no_traffic,
    "alarm-holds": _alarmed,
    "alarm-over": _over,
    "image-unavailable": _image_unavailable,
    "crashing": _crashing,
    "metrics-refused": _metrics_refused,
    "paused": _paused,
    "canary": _canary,
    "starting": _starting,
    "static": _static,
    "spec-refused": _spec_refused,
    "training-failed": _training_failed,
    "draft-on-trial": _draft_on_trial,
    "day": _day,
}


@dataclass(frozen=True)
class Seen:
    """What was shown of a resource, and when (Unix seconds)."""

    subject: Subject
    now_s: float


def _fails(_: object, method: str, event: structlog.typing.EventDict) -> str:
    """What a pass logs; its bugs, which a loop outlives, fail who plays it."""
    if "exc_info" in event:
        raise AssertionError(f"{method}: {event['event']}")
    return str(event["event"])


async def _seen(life: Awaitable[Life]) -> Seen:
    structlog.configure(processors=[_fails], logger_factory=structlog.ReturnLoggerFactory())
    try:
        done = await life
        return Seen(done.subject, done.now_s)
    finally:
        structlog.reset_defaults()


async def _one_of_many(seed: int) -> Life:
    life = await Life.begun(seed=seed)
    draw = Random(seed)
    load, life.engines.acceptance = draw.randint(1, 14), draw.choice((EASY, MIDDLE, HARD))
    life.engines.hardware = Hardware(base_s=draw.uniform(0.004, 0.03))
    life.engines.load = lambda _: load
    return await life.passes(8)


def _apart(life: Callable[[], Awaitable[Life]]) -> Seen:
    # In a thread of its own: whoever asks may have a running event loop.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(_seen(life()))).result()


@cache
def seen(state: str) -> Seen:
    """A resource in one of the states; one that nobody watches any more is `not-watched`."""
    if state == "not-watched":
        last = seen("tuned")
        return Seen(last.subject, last.now_s + UNWATCHED_S + 20 * MINUTE_S)
    return _apart(_LIVES[state])


@cache
def one_of_many(number: int) -> Seen:
    """One with a model, a text and a load of its own."""
    return _apart(lambda: _one_of_many(number))


def states() -> tuple[str, ...]:
    """Names of all states."""
    return (*_LIVES, "not-watched")
