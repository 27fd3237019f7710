"""What would have been decided, and what one schedule would have gained over another. Pure.

Decisions are in order of time, the same ones in a row put together.

Each busy second of the recording counts once, at the relative gain of one depth over the other in
its bucket: survival as it was believed at that time, since the traffic was that of that time; step
times as the whole recording taught them, since the hardware is the same.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, expm1

from fathom.api.conditions import Reason
from fathom.engine.depth import DepthDocument, Depths, Schedule
from fathom.measurement.counters import EngineCounts, PodCounters
from fathom.measurement.deltas import delta
from fathom.tuning.alarms.alarm import Alarm
from fathom.tuning.estimate.acceptance_by_position import Survival
from fathom.tuning.estimate.step_time import StepTimes
from fathom.tuning.estimate.traffic import Traffic
from fathom.tuning.interface import Action, TuningDecision
from fathom.tuning.policy.value import NO_GAIN, TWO_SIDED_Z, Evidence, Gain


@dataclass(frozen=True, slots=True)
class BusyTime:
    """Busy time in one bucket at one depth."""

    bucket: int
    depth: int
    """As recorded."""
    busy_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What ran in one window, and what would have run."""

    at_s: float
    survival: Survival
    traffic: Traffic
    loads: tuple[BusyTime, ...]
    wanted: Depths
    """The schedule that the tuner would have had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A relative gain in tokens per second, weighted by busy time."""

    gain: float
    low: float
    """Lower end of the 95 % interval."""
    high: float
    known_share: float
    """Share of the busy time in which both depths were measured, or are the same; the rest is
    predicted."""


Depth = Callable[[Evidence, Window, BusyTime], int]
"""Which depth one side of a comparison has."""


def recorded(_evidence: Evidence, _window: Window, load: BusyTime) -> int:
    """As the engines ran."""
    return load.depth


def wanted(_evidence: Evidence, window: Window, load: BusyTime) -> int:
    """As the tuner would have had it."""
    return window.wanted.get(load.bucket, load.depth)


def at(depth: int) -> Depth:
    """One depth throughout."""
    return lambda _evidence, _window, _load: depth


def best_of(depths: Iterable[int]) -> Depth:
    """Whatever is best in each bucket, measured or merely predicted."""
    choices = tuple(depths)

    def best(evidence: Evidence, _window: Window, load: BusyTime) -> int:
        gains = {each: evidence.gain(load.bucket, each, load.depth) for each in choices}
        known = {each: gain.mean for each, gain in gains.items() if gain is not None}
        return max(known, key=known.__getitem__, default=load.depth)

    return best


def estimate(
    windows: Iterable[Window], step_times: StepTimes, deepest: int, to: Depth, start: Depth
) -> Estimate | None:
    """Relative gain of one side over the other.

    The errors of a cell are the same in every window, so they are added and not averaged out.

    Args:
        windows: the recorded load.
        step_times: as the whole recording taught them.
        deepest: the deepest depth that either side has.
        to: the side whose gain it is.
        start: the side it is compared with.

    Returns:
        None when nothing ran for which anything is known.
    """
    busy = known = gained = error = 0.0
    for window in windows:
        evidence = Evidence(
            text=window.survival,
            step_times=step_times,
            traffic=window.traffic,
            now_s=window.at_s,
            deepest=deepest,
        )
        for load in window.loads:
            gain = _gain(
                evidence, load.bucket, to(evidence, window, load), start(evidence, window, load)
            )
            if gain is None:
                continue
            busy += load.busy_seconds
            known += load.busy_seconds if gain.measured else 0.0
            gained += load.busy_seconds * expm1(gain.mean)
            error += load.busy_seconds * exp(gain.mean) * gain.sd
    if busy <= 0:
        return None
    mean, half = gained / busy, TWO_SIDED_Z * error / busy
    return Estimate(gain=mean, low=mean - half, high=mean + half, known_share=known / busy)


def _gain(evidence: Evidence, bucket: int, to: int, start: int) -> Gain | None:
    return NO_GAIN if to == start else evidence.gain(bucket, to, start)


def deepest_of(windows: Sequence[Window], *others: int) -> int:
    """The deepest depth that anything ran or would have run."""
    ran = (load.depth for window in windows for load in window.loads)
    would = (depth for window in windows for depth in window.wanted.values())
    return max([*others, *ran, *would])


@dataclass(slots=True, kw_only=True)
class Unplugged:
    """Sums over the pods that count no cells."""

    pods: set[str] = field(default_factory=set)
    with_plugin: set[str] = field(default_factory=set)
    seconds: float = 0.0
    """Pod-seconds."""
    tokens: float = 0.0
    drafts: float = 0.0
    draft_tokens: float = 0.0
    accepted_tokens: float = 0.0

    def take(self, before: PodCounters | None, look: PodCounters) -> None:
        """Take in one look, given the one before at the same pod."""
        if look.live_depth or look.cells:
            self.with_plugin.add(look.pod)
            self.pods.discard(look.pod)
        elif look.pod not in self.with_plugin:
            self.pods.add(look.pod)
            counted = delta(before, look) if before is not None else None
            if counted is not None:
                self._add(counted.engine, counted.seconds)

    def sentence(self) -> str:
        """What cannot be told of them, and why; empty: there are none."""
        if not self.pods:
            return ""
        count = len(self.pods)
        whose = "The engines show" if not self.with_plugin else f"{count} of the engines show"
        return (
            f"{whose} vLLM's own counters only: {self._seen()}. They do not show at which batch "
            "and depth a step ran, nor how long it took, so what another depth would gain is "
            "unknown. Mode Advise keeps your own depth and counts what is missing: record that."
        )

    def _add(self, counted: EngineCounts, seconds: float) -> None:
        self.seconds += seconds
        self.tokens += counted.generation_tokens
        self.drafts += counted.drafts
        self.draft_tokens += counted.draft_tokens
        self.accepted_tokens += counted.accepted_tokens

    def _seen(self) -> str:
        if self.seconds <= 0 or self.tokens <= 0:
            return "they generated nothing"
        rate = f"{self.tokens / self.seconds:.0f} tokens per second and pod"
        if self.drafts <= 0:
            return f"{rate}, nothing drafted"
        return (
            f"{rate}, acceptance length {1 + self.accepted_tokens / self.drafts:.2f} "
            f"at a mean depth of {self.draft_tokens / self.drafts:.1f}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """A decision, or the same one several times in a row."""

    at_s: float
    """When it was first made (Unix seconds)."""
    last_at_s: float
    times: int
    action: Action
    reason: Reason
    message: str
    """As it was first put."""
    expected_gain: float | None
    schedule: Schedule
    """Schedule of the document that it asked for."""
    in_force: Schedule
    """At that time."""


@dataclass(slots=True)
class Chronicle:
    """All that the tuner decided."""

    decisions: list[Occurrence] = field(default_factory=list)
    """Those to hold are only counted."""
    _holds: Counter[Reason] = field(default_factory=Counter)
    _alarms: dict[tuple[str, float], Alarm] = field(default_factory=dict)

    @property
    def holds(self) -> Mapping[Reason, int]:
        """How often it held, by reason."""
        return dict(self._holds)

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Every alarm that was raised."""
        return tuple(self._alarms.values())

    def add(self, decision: TuningDecision, in_force: DepthDocument, at_s: float) -> None:
        """Enter a decision that was made with this document in force."""
        for alarm in decision.alarms:
            self._alarms.setdefault((alarm.kind, alarm.since_s), alarm)
        if decision.action is Action.HOLD:
            self._holds[decision.reason] += 1
            return
        made = Occurrence(
            at_s=at_s,
            last_at_s=at_s,
            times=1,
            action=decision.action,
            reason=decision.reason,
            message=decision.message,
            expected_gain=decision.expected_gain,
            schedule=decision.document.schedule,
            in_force=in_force.schedule,
        )
        before = self.decisions[-1] if self.decisions else None
        if before is not None and _what(before) == _what(made):
            self.decisions[-1] = replace(before, last_at_s=at_s, times=before.times + 1)
        else:
            self.decisions.append(made)


def _what(decision: Occurrence) -> tuple[Action, Reason, Schedule, Schedule]:
    """What was decided, whatever the numbers in its sentence."""
    return decision.action, decision.reason, decision.schedule, decision.in_force
