"""Engines under the tuner, or at one depth for good."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from benchmarks.tuner.requests.engine import EPOCH_S, RequestEngine
from benchmarks.tuner.requests.world import RequestWorld
from fathom.api.choices import Objective, TuningMode
from fathom.engine.depth import DepthDocument, depth_at
from fathom.measurement.counters import PodCounters
from fathom.tuning.interface import Settings, TunedPod, TuningDecision, TuningSnapshot
from fathom.tuning.learned_state import TuningState
from fathom.tuning.tuner import decide

_STEP_S: Final = 0.05
"""The least time between two things that happen to a fleet."""


def engines(world: RequestWorld, seed: int, depth: int) -> list[RequestEngine]:
    """All engines of a world; whatever depth they run at, the same requests come to them."""
    kinds = [kind for kind in world.pods for _ in range(kind.count)]
    return [
        RequestEngine(
            world,
            name=f"pod-{at}",
            hardware=kind.hardware or world.hardware,
            text=kind.text,
            depth=depth,
            arrivals_seed=1000 * seed + at,
            seed=1000 * seed + 500 + at,
        )
        for at, kind in enumerate(kinds)
    ]


@dataclass
class TunedFleet:
    """Engines, the document of their depths, and the tuner. Seconds since the world began."""

    world: RequestWorld
    seed: int
    now_s: float = 0.0
    document: DepthDocument | None = None
    state: TuningState = field(default_factory=TuningState)
    last: TuningDecision | None = None
    log: list[tuple[float, TuningDecision]] = field(default_factory=list)
    """What was done, and when."""

    def __post_init__(self) -> None:
        fleet = self.world.fleet
        self.engines = engines(self.world, self.seed, fleet.tokens)
        self._random = Random(self.seed)  # noqa: S311 - noise, not a secret
        self._written_s = self._wake_s = 0.0
        self._due: list[tuple[float, RequestEngine, DepthDocument]] = []
        self._scraped: dict[str, PodCounters] = {}
        self._settings = Settings(
            mode=TuningMode.AUTO,
            objective=Objective.THROUGHPUT,
            tpot_slo_seconds=None,
            window_seconds=float(fleet.window_seconds),
            min_gain=0.01,
            probing=True,
            tokens=fleet.tokens,
            min_tokens=fleet.min_tokens,
            max_tokens=fleet.max_tokens,
            max_batch=self.world.engine.max_batch,
            named=frozenset({0, *fleet.depths}),
        )

    def run(self, until_s: float) -> None:
        """Serve and tune until then."""
        while self.now_s < until_s:
            if self.now_s >= self._wake_s:
                self._decide()
            nearest_s = min([until_s, self._wake_s, *(at_s for at_s, _, _ in self._due)])
            self.now_s = max(nearest_s, self.now_s + _STEP_S)
            for engine in self.engines:
                engine.advance(self.now_s)
            self._deliver()

    def _decide(self) -> None:
        pods = tuple(
            TunedPod(
                name=engine.name, ready=True, ready_for_s=self.now_s, counters=self._look(engine)
            )
            for engine in self.engines
        )
        decision = decide(
            TuningSnapshot(
                now_s=EPOCH_S + self.now_s,
                settings=self._settings,
                pods=pods,
                document=self.document,
                document_written_at_s=EPOCH_S + self._written_s,
                live_refusal=None,
                state=self.state,
            )
        )
        self.state, self.last = decision.state, decision
        self._wake_s = self.now_s + max(1.0, decision.wake_after_s)
        if decision.document == self.document:
            return
        self.log.append((self.now_s, replace(decision, state=TuningState())))
        self.document, self._written_s = decision.document, self.now_s
        least_s, most_s = self.world.fleet.delivery_seconds
        for engine in self.engines:
            # One change overtakes no other: a volume holds one at a time.
            earlier = [at_s for at_s, each, _ in self._due if each is engine]
            at_s = max([self.now_s + self._random.uniform(least_s, most_s), *earlier])
            self._due.append((at_s, engine, decision.document))

    def _look(self, engine: RequestEngine) -> PodCounters:
        """What a reader of its metrics gets now."""
        shown = self._scraped.get(engine.name)
        every_s = self.world.fleet.scrape_seconds
        if shown is None or EPOCH_S + self.now_s - shown.at_s >= every_s:
            shown = self._scraped[engine.name] = engine.counters()
        return shown

    def _deliver(self) -> None:
        for item in [each for each in self._due if each[0] <= self.now_s]:
            self._due.remove(item)
            _, engine, document = item
            obey(engine, document, self.world.engine.max_batch)


def obey(engine: RequestEngine, document: DepthDocument, max_batch: int) -> None:
    """Put a document in force."""
    schedule = document.for_pod(engine.name)
    engine.table = [0, *(depth_at(schedule, batch) for batch in range(1, max_batch + 1))]
    engine.generation = document.generation
