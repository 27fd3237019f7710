"""What the tuner is given and what it answers. `fathom.tuning.tuner.decide` lies between."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fathom.api.choices import AdaptiveVerification, Objective, Switch, TuningMode
from fathom.api.conditions import Reason
from fathom.api.spec import SpeculationSpec, TuningGoals
from fathom.api.tuner import Level, SpeculationTunerSpec, SpeculationTunerStatus
from fathom.engine.depth import DepthDocument, flat, nearest_depth
from fathom.engine.report import ServedPair
from fathom.measurement.counters import PodCounters
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.estimate.measured import Measured
from fathom.tuning.learned_state import TuningState

__all__ = [
    "Action",
    "Alarm",
    "Measured",
    "Settings",
    "TunedPod",
    "TuningDecision",
    "TuningSnapshot",
]
_PERCENT: Final = 100
_MILLISECONDS_PER_SECOND: Final = 1000
MOST_REQUESTS: Final = 256
"""Where it is not known how many requests an engine takes at a time: vLLM's own least."""
STALE_WINDOWS: Final = 3.0
"""Age beyond which a sample says nothing of the present, …"""
STALE_S: Final = 90.0
"""… but of so many seconds at least: Prometheus commonly scrapes at 30 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The user's wishes, defaults applied."""

    mode: TuningMode
    objective: Objective
    tpot_slo_seconds: float | None
    window_seconds: float
    min_gain: float
    """Smallest relative gain worth a change: 0.01 is one percent."""
    probing: bool
    tokens: int
    """The user's own depth: the start, and what any change is judged against."""
    min_tokens: int
    max_tokens: int
    max_batch: int
    """`--max-num-seqs`: the last batch of every schedule."""
    named: frozenset[int] | None = None
    """The depths that the engines have; None: all."""
    drafts_are_cut: bool = False
    """Adaptive verification: fewer drafts are verified than are made, and nobody knows which."""

    @property
    def depths(self) -> tuple[int, ...]:
        """What may be chosen, ascending; `tokens` is among them."""
        within = range(self.min_tokens, self.max_tokens + 1)
        return tuple(each for each in within if self.named is None or each in self.named)

    @property
    def stale_after_s(self) -> float:
        """Age in seconds beyond which a sample says nothing of the present."""
        return max(STALE_WINDOWS * self.window_seconds, STALE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedPod:
    """One serving pod as the tuner sees it."""

    name: str
    ready: bool
    ready_for_s: float
    """Seconds since it became ready."""
    pinned_depth: int | None = None
    """Depth this pod is held at: by a person, or by a quality check."""
    counters: PodCounters | None = None
    """Latest look at its metrics; None: unreadable, which is not zero."""
    tries_draft: bool = False
    """Whether it has the draft on trial, and not the one that all others have."""
    checked: bool = False
    """Whether it is a quality check that holds it, which may ask for depth 0 in any case."""

    @property
    def named(self) -> bool:
        """Whether its engine can find an entry of its own, as far as is known."""
        return self.counters is None or self.counters.named


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSnapshot:
    """All the tuner may know, gathered once."""

    now_s: float
    settings: Settings
    pods: tuple[TunedPod, ...]
    document: DepthDocument | None
    """The depth document as the cluster has it; None: none written yet."""
    document_written_at_s: float
    """When that document was written (Unix seconds)."""
    live_refusal: tuple[Reason, str] | None
    """Why this engine's depth cannot be changed live, if it cannot."""
    state: TuningState
    document_before: DepthDocument | None = None
    """Where there is none, though pods read it: the one that was in force; None: not known."""
    read: bool = True
    """Whether any pod reads the document, tuned or not, or will when it starts."""
    gpus: int = 1
    """GPUs of one engine."""
    apart: tuple[TunedPod, ...] = ()
    """Pods that are tuned apart from these: what is said of the whole fleet holds of them, too."""
    paused: str = ""
    """The sentence that says who holds depth, and why; empty: nobody does."""
    started_elsewhere: bool = False
    """Whether Fathom did not start these pods, so that its spec says nothing of their depths."""
    draft_on_trial: str = ""
    """The draft that some of these pods try; empty: none is on trial."""
    adopted_draft: str = ""
    """The one that was on trial and is now to be everybody's; empty: none."""
    compared: bool = False
    """Whether a canary is compared with the only one of these pods that is ready."""
    pair: ServedPair | None = None
    """What all these pods were told to load; None: they differ, or it is not known."""
    new_reference: str = ""
    """By which a person asks for a new reference of acceptance; empty: nobody did."""
    whole: DepthDocument | None = None
    """What pods read, where `document` is a view of it for some of them; None: it is no view."""

    def is_stale(self, counters: PodCounters) -> bool:
        """Whether a sample is too old to act on."""
        return self.now_s - counters.at_s > self.settings.stale_after_s

    def present(self, pod: TunedPod) -> PodCounters | None:
        """What a pod counts; None: it cannot be read, or what was read is of the past."""
        counters = pod.counters
        return None if counters is None or self.is_stale(counters) else counters

    def known_pods(self, samples: Mapping[str, PodCounters]) -> frozenset[str]:
        """Ready pods that were read just now, or with a sample that describes the present.

        Of the others nothing is known: one that cannot be read need not be idle.

        Args:
            samples: the newest of each pod, by its name.
        """
        return frozenset(
            pod.name
            for pod in self.pods
            if pod.ready
            and (sample := samples.get(pod.name)) is not None
            and (pod.counters is not None or not self.is_stale(sample))
        )


class Action(StrEnum):
    """What a decision does to depth."""

    HOLD = "Hold"
    MOVE = "Move"
    PROBE = "Probe"
    END_PROBE = "EndProbe"
    PIN = "Pin"
    RETURN = "Return"
    """Back to the user's own depth, since the tuner lost by its own."""
    POKE = "Poke"
    """The document stays; the engines are told again that it is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningDecision:
    """What to do, why, what was learned, and when to ask again."""

    action: Action
    reason: Reason
    message: str
    document: DepthDocument
    """The depths that should be in force; equal to the snapshot's when nothing changes."""
    state: TuningState
    wake_after_s: float
    """Seconds after which `decide` wants to be asked again at the latest."""
    measured: Measured | None
    """The last window with data; None: none yet."""
    expected_gain: float | None = None
    """Relative gain the action is expected to bring."""
    expected_gain_sd: float | None = None
    """Its standard error."""
    measured_gain: float | None = None
    """Relative gain measured since, for decisions that judge an earlier one."""
    not_obeyed: tuple[str, ...] = ()
    """Pods whose engine does not report the document in force after the deadline."""
    alarms: tuple[Alarm, ...] = ()
    """All that stand at present."""
    headroom_tokens_per_second: float | None = None
    """What all pods could serve beside what they do; None: not measured."""
    notable: bool = False
    """Whether people should hear of it: an event, and an entry in status.tuning.history."""

    @property
    def moved(self) -> bool:
        """Whether it is a change of depths that people should hear of."""
        return self.notable and self.action in {Action.MOVE, Action.PIN, Action.RETURN}


def settings_from(
    speculation: SpeculationSpec, max_batch: int, named: Iterable[int] | None = None
) -> Settings:
    """The user's wishes in the tuner's units.

    Args:
        speculation: what the user wrote, or its defaults.
        max_batch: the engine's `--max-num-seqs`.
        named: the depths that the engine has; None: all.
    """
    return settings_with(
        speculation.tuning,
        tokens=speculation.tokens,
        min_tokens=speculation.min_tokens,
        max_tokens=speculation.effective_max_tokens,
        max_batch=max_batch,
        named=named,
        drafts_are_cut=speculation.adaptive_verification is AdaptiveVerification.ENABLED,
    )


def settings_with(
    goals: TuningGoals,
    *,
    tokens: int,
    min_tokens: int,
    max_tokens: int,
    max_batch: int,
    named: Iterable[int] | None,
    drafts_are_cut: bool = False,
) -> Settings:
    """The user's wishes in the tuner's units.

    Args:
        goals: how depth follows the traffic.
        tokens: the user's own depth.
        min_tokens: the shallowest that may be.
        max_tokens: the deepest.
        max_batch: the engine's `--max-num-seqs`.
        named: the depths that the engine has; None: all.
        drafts_are_cut: whether fewer drafts are verified than are made.
    """
    slo = goals.tpot_milliseconds
    return Settings(
        mode=goals.mode,
        objective=goals.objective,
        tpot_slo_seconds=None if slo is None else slo / _MILLISECONDS_PER_SECOND,
        window_seconds=goals.window_seconds,
        min_gain=goals.min_gain_percent / _PERCENT,
        probing=goals.probing is Switch.ENABLED,
        tokens=tokens,
        min_tokens=min_tokens,
        max_tokens=max_tokens,
        max_batch=max_batch,
        named=None if named is None else frozenset(named),
        drafts_are_cut=drafts_are_cut,
    )


def settings_of_tuner(
    spec: SpeculationTunerSpec,
    *,
    tokens: int,
    named: frozenset[int] | None,
    deepest: int,
    max_batch: int,
) -> Settings:
    """The same of a SpeculationTuner, within what its engines have.

    Args:
        spec: what the user wrote.
        tokens: the user's own depth: as written, or as the engines were started with.
        named: the depths that the engines have; None: it is not known.
        deepest: the largest depth that they draft, where that is all that is known.
        max_batch: the engines' `--max-num-seqs`.
    """
    most = spec.max_tokens or max(named or {deepest})
    if named:
        allowed = [each for each in sorted(named) if spec.min_tokens <= each <= most]
        tokens = nearest_depth(tokens, allowed or sorted(named))
    return settings_with(
        spec.tuning,
        tokens=tokens,
        min_tokens=min(spec.min_tokens, tokens),
        max_tokens=max(most, tokens),
        max_batch=max_batch,
        named=named,
    )


def settings_reported(
    spec: SpeculationTunerSpec, status: SpeculationTunerStatus, state: TuningState, tokens: int
) -> Settings:
    """The same, as far as the status tells.

    Args:
        spec: what the user wrote.
        status: with the engines that are judged.
        state: what was learned of them.
        tokens: the user's own depth, as it is reported.
    """
    judged = status.engines[:1]
    alike = [each for each in status.engines if each.level is Level.LIVE] or judged
    own = [_depths(each.depths) for each in alike if each.depths]
    batches = (cell.batch_le for cell in state.step_times.cells)
    most = next((each.max_num_seqs for each in judged), None)
    return settings_of_tuner(
        spec,
        tokens=tokens,
        named=frozenset.intersection(*own) if own else None,
        deepest=max(tokens, len(status.measured.survival)),
        max_batch=most or max(batches, default=MOST_REQUESTS),
    )


def _depths(listed: str) -> frozenset[int]:
    return frozenset(int(each) for each in listed.split(",") if each.isdecimal())


def as_started(settings: Settings) -> DepthDocument:
    """What stands for a depth document where none was written: the engines run as started."""
    return DepthDocument(generation=0, schedule=flat(settings.tokens, settings.max_batch))
