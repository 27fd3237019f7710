"""A fleet in simulated time: what the tuner is tried on, in a closed loop and without waiting.

Step time is linear in depth with a term in the batch; acceptance is a property of the traffic's
class; depth documents reach a pod one to three seconds after they are written. Noise: correlated
drafts, single slow steps, and pods whose speed wanders.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import exp, sqrt
from random import Random

from fathom.api.spec import Objective, TuningMode
from fathom.core.depth import DepthDocument, Schedule, depth_at, flat
from fathom.core.measurement import (
    Cell,
    CellCounts,
    DraftCell,
    DraftCounts,
    EngineCounts,
    PodCounters,
    StepKind,
)
from fathom.tuning.interface import Action, Settings, TunedPod, TuningDecision, TuningSnapshot
from fathom.tuning.state import TuningState
from fathom.tuning.tuner import decide

TICK_S = 0.25
START_S = 1_700_000_000.0

EASY = (0.95,) * 16
MIDDLE = (0.7,) * 16
HARD = (0.1,) * 16

SETTINGS = Settings(
    mode=TuningMode.AUTO,
    objective=Objective.THROUGHPUT,
    tpot_slo_seconds=None,
    window_seconds=10.0,
    min_gain=0.01,
    probing=True,
    tokens=3,
    min_tokens=1,
    max_tokens=7,
    max_batch=16,
)


@dataclass(frozen=True)
class Hardware:
    """Seconds of one step: base + batch, and per drafted token."""

    base_s: float = 0.008
    per_request_s: float = 0.0002
    per_token_s: float = 0.0006
    per_token_request_s: float = 0.00008
    prefill_s: float = 0.004
    """What a mixed step takes longer, on average."""

    def step_seconds(self, batch: int, depth: int) -> float:
        return (
            self.base_s
            + self.per_request_s * batch
            + depth * (self.per_token_s + self.per_token_request_s * batch)
        )


def expected_length(acceptance: tuple[float, ...], depth: int) -> float:
    length = survival = 1.0
    for each in acceptance[:depth]:
        survival *= each
        length += survival
    return length


def value(hardware: Hardware, acceptance: tuple[float, ...], batch: int, depth: int) -> float:
    """Tokens per second per request, without noise."""
    return expected_length(acceptance, depth) / hardware.step_seconds(batch, depth)


def best_depth(
    hardware: Hardware, acceptance: tuple[float, ...], batch: int, settings: Settings = SETTINGS
) -> int:
    return max(
        range(settings.min_tokens, settings.max_tokens + 1),
        key=lambda depth: value(hardware, acceptance, batch, depth),
    )


@dataclass
class Pod:
    name: str
    hardware: Hardware
    random: Random
    schedule: Schedule
    generation: int = 0
    ready_for_s: float = 1000.0
    ready: bool = True
    live: bool = True
    pinned_depth: int | None = None
    started_at_s: float = START_S - 5000.0
    speed: float = 0.0
    speed_sd: float = 0.03
    design_effect: float = 4.0
    mixed_share: float = 0.1
    """Of the steps: those that prefill as well."""
    tokens: float = 0.0
    cells: dict[Cell, CellCounts] = field(default_factory=dict)
    drafts: dict[DraftCell, DraftCounts] = field(default_factory=dict)
    pending: list[tuple[float, DepthDocument]] = field(default_factory=list)
    deaf: bool = False

    def tick(self, now_s: float, batch: int, acceptance: tuple[float, ...]) -> float:
        """Serve for one tick; returns the tokens made."""
        for due_s, document in list(self.pending):
            if now_s >= due_s and not self.deaf:
                self.schedule = document.for_pod(self.name)
                self.generation = document.generation
                self.pending.remove((due_s, document))
        # A speed that wanders within a few percent, with a memory of half a minute.
        keep = exp(-TICK_S / 30)
        self.speed = keep * self.speed + self.random.gauss(0, self.speed_sd * sqrt(1 - keep * keep))
        if batch == 0:
            return 0.0
        depth = depth_at(self.schedule, batch)
        bucket = 1 << (batch - 1).bit_length()
        step = self.hardware.step_seconds(batch, depth) * exp(self.speed)
        prefill = self.hardware.prefill_s * self.random.uniform(0.3, 1.7)
        steps = TICK_S / (step + self.mixed_share * prefill)
        drafted = steps * batch if depth else 0.0
        accepted: list[float] = []
        reached = drafted
        for probability in acceptance[:depth]:
            reached = self._binomial(reached, probability)
            accepted.append(reached)
        made = steps * batch + sum(accepted)
        for kind, share, seconds in (
            (StepKind.DECODE, 1 - self.mixed_share, step),
            (StepKind.MIXED, self.mixed_share, step + prefill),
        ):
            n = share * steps
            if n > 0:
                cell = Cell(bucket, depth, kind)
                spent = n * seconds * (1 + self.random.gauss(0, 0.2 / sqrt(n)))
                self.cells[cell] = self.cells.get(cell, CellCounts()) + CellCounts(
                    n, max(spent, 1e-6), share * made, n * batch
                )
        if depth:
            draft = DraftCell(bucket, depth)
            self.drafts[draft] = self.drafts.get(draft, DraftCounts()) + DraftCounts(
                drafted, tuple(accepted)
            )
        self.tokens += made
        return made

    def restart(self, now_s: float) -> None:
        self.started_at_s = now_s
        self.tokens = 0.0
        self.cells, self.drafts = {}, {}
        self.ready_for_s = 0.0

    def counters(self, now_s: float) -> PodCounters:
        return PodCounters(
            pod=self.name,
            at_s=now_s,
            started_at_s=self.started_at_s,
            engine=EngineCounts(generation_tokens=self.tokens),
            live_depth=self.live,
            depth_generation=self.generation,
            cells=dict(self.cells),
            drafts=dict(self.drafts),
        )

    def _binomial(self, n: float, p: float) -> float:
        """Mean and, as far as the ends allow, variance of correlated trials; never a bias."""
        spread = sqrt(max(0.0, 3 * n * p * (1 - p) * self.design_effect))
        spread = min(spread, n * p, n * (1 - p))
        return n * p + self.random.uniform(-spread, spread)


@dataclass
class Fleet:
    """Pods, the document, the tuner and the time."""

    settings: Settings = SETTINGS
    replicas: int = 2
    seed: int = 1
    hardware: Hardware = field(default_factory=Hardware)
    acceptance: tuple[float, ...] = MIDDLE
    concurrency: int = 4
    jitter: int = 1
    now_s: float = START_S
    readable: bool = True
    frozen_at_s: float | None = None
    """Metrics stand still since then."""
    document: DepthDocument | None = None
    written_at_s: float = START_S
    state: TuningState = field(default_factory=TuningState)
    decisions: list[tuple[float, TuningDecision]] = field(default_factory=list)
    writes: list[tuple[float, DepthDocument]] = field(default_factory=list)
    tokens: float = 0.0
    between: Callable[[TuningState], TuningState] = lambda state: state
    """What happens to the state between decisions; a restart, say."""

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.pods = [
            Pod(
                f"pod-{i}",
                self.hardware,
                Random(self.seed * 100 + i),
                flat(self.settings.tokens, self.settings.max_batch),
                speed=0.05 * i,
            )
            for i in range(self.replicas)
        ]
        self.wake_at_s = self.now_s
        self.last_looks: dict[str, PodCounters] = {}

    def snapshot(self) -> TuningSnapshot:
        looks: dict[str, PodCounters] = {}
        if self.readable:
            for pod in self.pods:
                stuck = self.frozen_at_s is not None and pod.name in self.last_looks
                looks[pod.name] = self.last_looks[pod.name] if stuck else pod.counters(self.now_s)
            self.last_looks = looks
        return TuningSnapshot(
            now_s=self.now_s,
            settings=self.settings,
            pods=tuple(
                TunedPod(
                    pod.name, pod.ready, pod.ready_for_s, pod.pinned_depth, looks.get(pod.name)
                )
                for pod in self.pods
            ),
            document=self.document,
            document_written_at_s=self.written_at_s,
            live_refusal=None,
            state=self.state,
        )

    def step(self) -> TuningDecision:
        """Decide now, and carry it out."""
        decision = decide(self.snapshot())
        self.state = self.between(decision.state)
        self.decisions.append((self.now_s, decision))
        if decision.document != self.document:
            self.document = decision.document
            self.written_at_s = self.now_s
            self.writes.append((self.now_s, decision.document))
            for pod in self.pods:
                pod.pending.append((self.now_s + self.random.uniform(1, 3), decision.document))
        self.wake_at_s = self.now_s + decision.wake_after_s
        return decision

    def run(self, seconds: float) -> "Fleet":
        """Let time pass."""
        until = self.now_s + seconds
        while self.now_s < until:
            if self.now_s >= self.wake_at_s:
                self.step()
            for pod in self.pods:
                batch = self.concurrency
                if batch:
                    batch = max(1, batch + self.random.randint(-self.jitter, self.jitter))
                self.tokens += pod.tick(self.now_s, batch, self.acceptance)
                pod.ready_for_s += TICK_S
            self.now_s += TICK_S
        return self

    def depth(self, batch: int | None = None) -> int:
        """The depth asked for at a batch."""
        assert self.document is not None
        return depth_at(self.document.schedule, batch or self.concurrency)

    def shortfall(self) -> float:
        """How much slower the depth asked for is than the best one, relative."""
        best = value(
            self.hardware,
            self.acceptance,
            self.concurrency,
            best_depth(self.hardware, self.acceptance, self.concurrency, self.settings),
        )
        return 1 - value(self.hardware, self.acceptance, self.concurrency, self.depth()) / best

    def actions(self, *wanted: Action) -> list[TuningDecision]:
        return [decision for _, decision in self.decisions if decision.action in wanted]

    def change(self, **settings: object) -> None:
        """Edit the spec."""
        self.settings = replace(self.settings, **settings)  # type: ignore[arg-type]
        self.wake_at_s = self.now_s

    def log(self) -> str:
        return "\n".join(
            f"{at_s - START_S:7.1f} {each.action:8} {each.reason:16} {each.message}"
            for at_s, each in self.decisions
        )
