"""A world's events as arrays over ticks and replicas."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from benchmarks.tuner.course.course import OBEYS, Bools, Floats, Ints
from benchmarks.tuner.worlds.events import (
    ClassCycle,
    ClassShift,
    ContextDrift,
    DeafPod,
    Decay,
    Disobey,
    Event,
    MetricsGap,
    Mismatch,
    PodEvent,
    PodRestart,
    Scale,
    SlowPod,
)
from benchmarks.tuner.worlds.world import SimulatedWorld

STARTUP_S: Final = 300.0
"""From a new pod's creation to its first request."""
AGES_S: Final = 4 * 3600.0
"""Pods are up to so old when a course begins."""


@dataclass
class Timeline:
    """What events do; filled in by `timeline`, then read only. T ticks, R replicas."""

    at_s: Floats
    shares: Floats
    fit: Floats
    context_factor: Floats
    slowness: Floats
    present: Bools
    serving: Bools
    life: Ints
    started_s: Floats
    ready_since_s: Floats
    missing: Bools
    frozen: Bools
    deaf: Bools
    own_depth: Ints
    decays: list[tuple[float, Decay]] = field(default_factory=list)
    mismatches_s: list[float] = field(default_factory=list)

    def span(self, from_s: float, minutes: float | None) -> slice:
        """The ticks of an event."""
        first = int(np.searchsorted(self.at_s, from_s))
        if minutes is None:
            return slice(first, None)
        return slice(first, max(first + 1, int(np.searchsorted(self.at_s, from_s + 60 * minutes))))

    def ramp(self, from_s: float, minutes: float) -> Floats:
        """0 before, 1 after, linear in between."""
        return np.clip((self.at_s - from_s) / max(60 * minutes, 1e-9), 0.0, 1.0)


def timeline(world: SimulatedWorld, at_s: Floats, draws: np.random.Generator) -> Timeline:
    """All events of a world, at the times that this seed draws for them."""
    line = _quiet(world, at_s, draws)
    timed = [(_at_s(event, draws), event) for event in world.events]
    for at, event in sorted(timed, key=lambda each: each[0]):
        if isinstance(event, PodEvent):
            _apply_to_pod(event, at, line)
        else:
            _apply(event, at, line, world)
    return line


def _at_s(event: Event, draws: np.random.Generator) -> float:
    minutes = event.at_minutes
    return 60 * (minutes if isinstance(minutes, float) else float(draws.uniform(*minutes)))


def _quiet(world: SimulatedWorld, at_s: Floats, draws: np.random.Generator) -> Timeline:
    """The timeline without events."""
    most = world.most_replicas
    shape = (len(at_s), most)
    shares = np.array([each.share for each in world.classes])
    begun = np.tile(-AGES_S * draws.random(most), (len(at_s), 1))
    serving = np.zeros(shape, dtype=bool)
    serving[:, : world.fleet.replicas] = True
    return Timeline(
        at_s=at_s,
        shares=np.tile(shares / shares.sum(), (len(at_s), 1)),
        fit=np.ones(len(at_s)),
        context_factor=np.ones(len(at_s)),
        slowness=np.ones(shape),
        present=serving.copy(),
        serving=serving,
        life=np.zeros(shape, dtype=np.int64),
        started_s=begun,
        ready_since_s=begun.copy(),
        missing=np.zeros(shape, dtype=bool),
        frozen=np.zeros(shape, dtype=bool),
        deaf=np.zeros(shape, dtype=bool),
        own_depth=np.full(shape, OBEYS),
    )


def _apply(event: Event, at: float, line: Timeline, world: SimulatedWorld) -> None:
    match event:
        case ClassShift():
            _shift(event, at, line, world)
        case ClassCycle():
            _cycle(event, at, line, len(world.classes))
        case Mismatch():
            line.fit[line.span(at, event.minutes)] *= event.factor
            line.mismatches_s.append(at)
        case Decay():
            line.decays.append((at, event))
        case ContextDrift():
            line.context_factor *= event.factor ** line.ramp(at, event.over_minutes)
        case MetricsGap():
            grid = line.missing if event.kind == "missing_metrics" else line.frozen
            grid[line.span(at, event.minutes), list(event.pods) or slice(None)] = True
        case Scale():
            _scale(line, at, event.replicas)


def _apply_to_pod(event: PodEvent, at: float, line: Timeline) -> None:
    span = line.span(at, event.minutes)
    match event:
        case PodRestart():
            after = line.span(at, None)
            line.serving[span, event.pod] = False
            line.started_s[after, event.pod] = at
            line.ready_since_s[after, event.pod] = at + 60 * event.minutes
        case SlowPod():
            line.slowness[span, event.pod] *= event.factor
        case DeafPod():
            line.deaf[span, event.pod] = True
        case Disobey():
            line.own_depth[span, event.pod] = event.depth


def _shift(event: ClassShift, at: float, line: Timeline, world: SimulatedWorld) -> None:
    new = np.array([event.shares.get(each.name, 0.0) for each in world.classes])
    ramp = line.ramp(at, event.over_minutes)[:, None]
    line.shares = (1 - ramp) * line.shares + ramp * (new / new.sum())


def _cycle(event: ClassCycle, at: float, line: Timeline, classes: int) -> None:
    turn = ((line.at_s - at) // (60 * event.period_minutes)).astype(int) % classes
    rest = (1 - event.dominance) / max(1, classes - 1)
    shares = np.full((len(line.at_s), classes), rest)
    shares[np.arange(len(line.at_s)), turn] = event.dominance if classes > 1 else 1.0
    later = line.at_s >= at
    line.shares[later] = shares[later]


def _scale(line: Timeline, at: float, replicas: int) -> None:
    after = line.span(at, None)
    was_there = line.present[max(0, after.start - 1)].copy()
    line.serving[after, replicas:] = False
    line.present[after, replicas:] = False
    line.present[after, :replicas] = True
    for pod in range(replicas):
        if not was_there[pod]:
            line.life[after, pod] += 1
            line.started_s[after, pod] = at
            line.ready_since_s[after, pod] = at + STARTUP_S
            line.serving[after, pod] = True
            line.serving[line.span(at, STARTUP_S / 60), pod] = False
