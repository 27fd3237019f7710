"""A fleet in simulated time: what the tuner is tried on, in a closed loop and without waiting.

Step time is linear in depth with a term in the batch; acceptance is a property of the traffic's
class; depth documents reach a pod one to three seconds after they are written. Noise: correlated
drafts, single slow steps, and pods whose speed wanders. Steps, drafts and finished requests are
counted by the tick; long runs take longer ticks.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from math import exp, inf, sqrt
from random import Random
from statistics import NormalDist
from typing import Self

from fathom.api.choices import Objective, TuningMode
from fathom.api.conditions import AlarmKind
from fathom.engine.depth import DepthDocument, Schedule, depth_at, flat
from fathom.engine.report import ServedPair
from fathom.measurement.counters import (
    Cell,
    CellCounts,
    ContextCounts,
    ContextRange,
    DraftCell,
    DraftCounts,
    EngineCounts,
    Histogram,
    PodCounters,
    StepKind,
)
from fathom.measurement.deltas import bucket_of
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.interface import Action, Settings, TunedPod, TuningDecision, TuningSnapshot
from fathom.tuning.learned_state import TuningState
from fathom.tuning.tuner import decide

TICK_S = 0.25
START_S = 1_700_000_000.0
ANSWER_TOKENS = 200.0
"""Tokens of one request's answer."""
PROMPT_TOKEN_S = 1e-5
"""What prefilling one takes (seconds)."""
TPOT_BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, inf)
"""vLLM's own, as far as they matter here (seconds)."""
DIFFICULTIES = tuple(NormalDist().inv_cdf((i + 0.5) / 40) for i in range(40))
"""How far requests lie from the mean, in standard deviations; each is one in forty."""

SHORT, LONG = ContextRange(2048), ContextRange(32768)
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

WINDOW_30 = replace(SETTINGS, window_seconds=30.0)


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


@dataclass(frozen=True)
class Padded(Hardware):
    """Steps are padded to the next captured size in tokens; beyond the largest to nothing."""

    sizes: tuple[int, ...] = (16, 64, 256)
    per_padded_token_s: float = 0.0002

    def step_seconds(self, batch: int, depth: int) -> float:
        tokens = batch * (depth + 1)
        padded = min((size for size in self.sizes if size >= tokens), default=tokens)
        return self.base_s + padded * self.per_padded_token_s


def expected_length(acceptance: tuple[float, ...], depth: int) -> float:
    length = survival = 1.0
    for each in acceptance[:depth]:
        survival *= each
        length += survival
    return length


def value(hardware: Hardware, acceptance: tuple[float, ...], batch: int, depth: int) -> float:
    """Tokens per second per request, without noise."""
    return expected_length(acceptance, depth) / hardware.step_seconds(batch, depth)


@cache
def harder(acceptance: tuple[float, ...], log_odds: float) -> tuple[float, ...]:
    """Acceptance of a request whose drafts have log-odds lower by so much."""
    return tuple(each / (each + (1 - each) * exp(log_odds)) for each in acceptance)


def slow_tpot(
    hardware: Hardware, acceptance: tuple[float, ...], spread: float, batch: int, depth: int
) -> float:
    """95th percentile of time per output token, in seconds, without noise or prefill."""
    slow = harder(acceptance, NormalDist().inv_cdf(0.95) * spread)
    return hardware.step_seconds(batch, depth) / expected_length(slow, depth)


def best_depth(
    hardware: Hardware, acceptance: tuple[float, ...], batch: int, settings: Settings = SETTINGS
) -> int:
    return max(
        settings.depths,
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
    """Share of the steps that prefill as well."""
    tokens: float = 0.0
    cells: dict[Cell, CellCounts] = field(default_factory=dict)
    drafts: dict[DraftCell, DraftCounts] = field(default_factory=dict)
    pending: list[tuple[float, DepthDocument]] = field(default_factory=list)
    own_ends: tuple[float, Schedule] | None = None
    """When its own entry ends by itself, and what follows."""
    ended: list[float] = field(default_factory=list)
    """When entries of its own ended by themselves."""
    told_hash: int | None = None
    """The hash that it shows, whatever it runs; None: that of what it runs."""
    document_seen: bool = True
    document_gone: bool = False
    named: bool = True
    """Whether it knows its name; without, it finds no entry of its own."""
    deaf: bool = False
    readable: bool = True
    shown: bool = True
    """Whether its counters reach its /metrics."""
    by_doublings: bool = False
    """Whether its plugin is an older one, whose buckets are whole doublings of the batch."""
    counts_prompts: bool = True
    """Whether its plugin counts prompt tokens; older ones do not."""
    token_budget: int = 0
    device: str = ""
    """What its engine calls its accelerator; older plugins do not tell."""
    mixes_depths: bool = False
    """Whether each step from now on belongs to no depth."""
    transitions: float = 0.0
    other_depth: int | None = None
    """What the engine drafts whatever it is asked for."""
    other_acceptance: tuple[float, ...] | None = None
    """Acceptance of a draft that is not the other pods'."""
    tries_draft: bool = False
    """Whether that is the draft on trial."""
    decay_per_hour: float = 0.0
    """Share of its acceptance that an engine loses in an hour of running."""
    long_requests: tuple[float, float] | None = None
    """Share of the drafts whose context is `LONG`, and how many times as much as of the others is
    accepted of those; None: its plugin is older, and does not tell contexts apart."""
    contexts: dict[ContextRange, ContextCounts] = field(default_factory=dict)
    difficulty_sd: float | None = None
    """Spread of requests' log-odds; None: the engine shows no histogram of TPOT."""
    finished: list[float] = field(default_factory=lambda: [0.0] * len(TPOT_BOUNDS))
    """Finished requests up to each of TPOT_BOUNDS."""
    tpot_seconds: float = 0.0
    """Sum of their times per output token."""

    def tick(
        self, now_s: float, batch: int, acceptance: tuple[float, ...], tick_s: float = TICK_S
    ) -> float:
        """Serve for one tick; returns the tokens made."""
        self._read_documents(now_s)
        # A speed that wanders within a few percent, with a memory of half a minute.
        keep = exp(-tick_s / 30)
        self.speed = keep * self.speed + self.random.gauss(0, self.speed_sd * sqrt(1 - keep * keep))
        if batch == 0 or not self.ready:
            return 0.0
        acceptance = self.other_acceptance or acceptance
        if self.decay_per_hour:
            kept = max(0.0, 1 - self.decay_per_hour * (now_s - self.started_at_s) / 3600)
            acceptance = tuple(kept * each for each in acceptance)
        if self.mixes_depths:
            self.transitions += tick_s / self.hardware.base_s
            self.tokens += batch * tick_s / self.hardware.base_s
            return 0.0
        depth = depth_at(self.schedule, batch) if self.other_depth is None else self.other_depth
        bucket = 1 << (batch - 1).bit_length() if self.by_doublings else bucket_of(batch)
        step = self.hardware.step_seconds(batch, depth) * exp(self.speed)
        prefill = self.hardware.prefill_s * self.random.uniform(0.3, 1.7)
        steps = tick_s / (step + self.mixed_share * prefill)
        drafted = steps * batch if depth else 0.0
        accepted: list[float] = []
        reached = drafted
        for probability in acceptance[:depth]:
            reached = self._binomial(reached, probability)
            accepted.append(reached)
        made = steps * batch + sum(accepted)
        for kind, share, seconds, prompt_tokens in (
            (StepKind.DECODE, 1 - self.mixed_share, step, 0.0),
            (StepKind.MIXED, self.mixed_share, step + prefill, prefill / PROMPT_TOKEN_S),
        ):
            n = share * steps
            if n > 0:
                cell = Cell(bucket, depth, kind)
                spent = n * seconds * (1 + self.random.gauss(0, 0.2 / sqrt(n)))
                self.cells[cell] = self.cells.get(cell, CellCounts()) + CellCounts(
                    n, max(spent, 1e-6), share * made, n * batch, n * prompt_tokens
                )
        if depth:
            draft = DraftCell(bucket, depth)
            self.drafts[draft] = self.drafts.get(draft, DraftCounts()) + DraftCounts(
                drafted, tuple(accepted)
            )
            self._count_contexts(drafted, accepted, depth)
        self.tokens += made
        if self.difficulty_sd is not None:
            self._finish(made / ANSWER_TOKENS, tick_s / steps, acceptance, depth)
        return made

    def _count_contexts(self, drafted: float, accepted: list[float], depth: int) -> None:
        if self.long_requests is None:
            return
        share, times = self.long_requests
        # All that was accepted is shared out, so that both come to what the pod counts.
        of_long = share * times / (share * times + 1 - share)
        for each, drafts, part in (
            (SHORT, (1 - share) * drafted, 1 - of_long),
            (LONG, share * drafted, of_long),
        ):
            if drafts:
                counts = ContextCounts(
                    drafts, depth * drafts, part * sum(accepted), part * accepted[0]
                )
                self.contexts[each] = self.contexts.get(each, ContextCounts()) + counts

    def _read_documents(self, now_s: float) -> None:
        arrived = [each for each in self.pending if each[0] <= now_s and not self.deaf]
        for each in arrived:
            self.pending.remove(each)
            _, document = each
            if document.generation > self.generation:  # an engine never goes back
                self.schedule = document.for_pod(self.name if self.named else "")
                self.generation = document.generation
                ends_s = document.ends.get(self.name)
                self.own_ends = (now_s + ends_s, document.schedule) if ends_s else None
        if self.own_ends is not None and now_s >= self.own_ends[0]:
            self.schedule, self.own_ends = self.own_ends[1], None
            self.ended.append(now_s)

    def _finish(
        self, requests: float, step_s: float, acceptance: tuple[float, ...], depth: int
    ) -> None:
        """So many requests end, some with harder text than others."""
        for difficulty in DIFFICULTIES:
            shifted = harder(acceptance, difficulty * (self.difficulty_sd or 0.0))
            tpot = step_s / expected_length(shifted, depth)
            each = requests / len(DIFFICULTIES)
            self.tpot_seconds += each * tpot
            for i, bound in enumerate(TPOT_BOUNDS):
                self.finished[i] += each if tpot <= bound else 0.0

    def restart(self, now_s: float) -> None:
        self.started_at_s = now_s
        self.tokens = 0.0
        self.cells, self.drafts, self.contexts = {}, {}, {}
        self.finished, self.tpot_seconds = [0.0] * len(TPOT_BOUNDS), 0.0
        self.ready_for_s = 0.0

    def counters(self, now_s: float) -> PodCounters:
        return PodCounters(
            pod=self.name,
            at_s=now_s,
            started_at_s=self.started_at_s,
            engine=EngineCounts(
                generation_tokens=self.tokens,
                tpot_seconds_sum=self.tpot_seconds,
                tpot_count=self.finished[-1],
            ),
            live_depth=self.live and self.shown,
            counters_shown=self.shown,
            depth_generation=self.generation if self.shown else 0,
            schedule_hash=self._hash() if self.shown else 0,
            document_seen=self.document_seen,
            document_gone=self.document_gone,
            named=self.named,
            counts_prompts=self.counts_prompts,
            token_budget=self.token_budget,
            device=self.device,
            transition_steps=self.transitions,
            transition_seconds=self.transitions * self.hardware.base_s,
            cells=dict(self.cells) if self.shown else {},
            drafts=dict(self.drafts) if self.shown else {},
            contexts=dict(self.contexts) if self.shown else {},
            tpot=self._tpot(),
        )

    def _hash(self) -> int:
        if self.told_hash is not None:
            return self.told_hash
        running = DepthDocument(generation=1, schedule=self.schedule)
        return running.hash_for_pod(self.name) if self.generation else 0

    def _tpot(self) -> Histogram:
        if self.difficulty_sd is None:
            return ()
        return tuple(zip(TPOT_BOUNDS, self.finished, strict=True))

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
    tick_s: float = TICK_S
    now_s: float = START_S
    readable: bool = True
    paused: str = ""
    """Who holds depth, as a sentence."""
    draft_on_trial: str = ""
    adopted_draft: str = ""
    frozen_at_s: float | None = None
    """Metrics stand still since then."""
    pair: ServedPair | None = None
    """What all pods serve, as far as it is known."""
    new_reference: str = ""
    """What a person asks for by the annotation."""
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
        self.serial = count()
        self.pods: list[Pod] = []
        for _ in range(self.replicas):
            self.add_pod()
        self.wake_at_s = self.now_s
        self.last_looks: dict[str, PodCounters] = {}

    def add_pod(self) -> Pod:
        """One more pod, at the user's depth; no name is ever given twice."""
        i = next(self.serial)
        pod = Pod(
            f"pod-{i}",
            self.hardware,
            Random(self.seed * 100 + i),
            flat(self.settings.tokens, self.settings.max_batch),
            speed=0.05 * i,
        )
        self.pods.append(pod)
        return pod

    def snapshot(self) -> TuningSnapshot:
        looks: dict[str, PodCounters] = {}
        if self.readable:
            for pod in (each for each in self.pods if each.readable):
                stuck = self.frozen_at_s is not None and pod.name in self.last_looks
                looks[pod.name] = self.last_looks[pod.name] if stuck else pod.counters(self.now_s)
            self.last_looks = looks
        return TuningSnapshot(
            now_s=self.now_s,
            settings=self.settings,
            pods=tuple(
                TunedPod(
                    name=pod.name,
                    ready=pod.ready,
                    ready_for_s=pod.ready_for_s,
                    pinned_depth=pod.pinned_depth,
                    tries_draft=pod.tries_draft,
                    counters=looks.get(pod.name),
                )
                for pod in self.pods
            ),
            document=self.document,
            document_written_at_s=self.written_at_s,
            live_refusal=None,
            state=self.state,
            paused=self.paused,
            draft_on_trial=self.draft_on_trial,
            adopted_draft=self.adopted_draft,
            pair=self.pair,
            new_reference=self.new_reference,
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

    def batch_of(self, _pod: Pod) -> int:
        """What it serves in the next tick."""
        if not self.concurrency:
            return 0
        return max(1, self.concurrency + self.random.randint(-self.jitter, self.jitter))

    def run(self, seconds: float) -> Self:
        """Let time pass."""
        until = self.now_s + seconds
        while self.now_s < until:
            if self.now_s >= self.wake_at_s:
                self.step()
            for pod in self.pods:
                batch = self.batch_of(pod)
                self.tokens += pod.tick(self.now_s, batch, self.acceptance, self.tick_s)
                pod.ready_for_s += self.tick_s
            self.now_s += self.tick_s
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

    def alarm(self, kind: AlarmKind) -> Alarm | None:
        """The alarm of this kind that stands at present."""
        alarms = self.decisions[-1][1].alarms
        return next((each for each in alarms if each.kind is kind), None)

    def raised_after_s(self, kind: AlarmKind, since_s: float) -> float | None:
        """Seconds from a moment to the first decision after it that this alarm stood at."""
        return next(
            (
                at_s - since_s
                for at_s, decision in self.decisions
                if at_s >= since_s and any(each.kind is kind for each in decision.alarms)
            ),
            None,
        )

    def change(self, **settings: object) -> None:
        """Edit the spec."""
        self.settings = replace(self.settings, **settings)  # type: ignore[arg-type]
        self.wake_at_s = self.now_s

    def log(self) -> str:
        return "\n".join(
            f"{at_s - START_S:7.1f} {each.action:8} {each.reason:16} {each.message}"
            for at_s, each in self.decisions
        )


def hours_long(**changes: object) -> Fleet:
    """A fleet for runs of hours: the default window, and ticks of seconds."""
    wanted: dict[str, object] = {"settings": WINDOW_30, "tick_s": 5.0, **changes}
    return Fleet(**wanted)  # type: ignore[arg-type]
