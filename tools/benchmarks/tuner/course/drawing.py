"""Draws the course of one world and seed."""

from typing import Final
from zlib import crc32

import numpy as np
from scipy.signal import lfilter

from benchmarks.tuner.course.acceptance import survival
from benchmarks.tuner.course.course import CourseClock, Floats, Ints, WorldCourse
from benchmarks.tuner.course.graphs import Steps, steps, steps_alone
from benchmarks.tuner.course.hardware import Hardware, hardware
from benchmarks.tuner.course.timeline import Timeline, timeline
from benchmarks.tuner.course.wear import worn
from benchmarks.tuner.worlds.parts import DEEPEST, TrafficPart
from benchmarks.tuner.worlds.world import SimulatedWorld

DAY_S: Final = 86400.0


def clock(*, tick_s: float, window_s: float, days: int) -> CourseClock:
    return CourseClock(tick_s, round(days * DAY_S / tick_s), max(1, round(window_s / tick_s)))


def generator(world: SimulatedWorld, seed: int, purpose: str) -> np.random.Generator:
    """Random numbers of one purpose: a change in one place leaves all others as they were."""
    return np.random.default_rng([seed, crc32(world.name.encode()), crc32(purpose.encode())])


def draw(world: SimulatedWorld, seed: int, time: CourseClock) -> WorldCourse:
    """Everything that will happen in this world under this seed."""
    at_s = np.arange(time.ticks, dtype=np.float64) * time.tick_s
    line = timeline(world, at_s, generator(world, seed, "events"))
    shape = line.serving.shape
    context = _context(world, line)
    demand = _demand(world, seed, at_s, time.tick_s, line)
    wanted = _rounded(demand, generator(world, seed, "rounding"))
    admitted = np.minimum(wanted, world.fleet.max_batch)
    length = _class_length(world, line)
    fits = np.maximum(1, world.traffic.kv_tokens / context)[:, None]
    own, alone = _hardware(world, seed)
    return WorldCourse(
        world=world,
        seed=seed,
        clock=time,
        hardware=own,
        alone=alone,
        demand=demand,
        wanted=wanted,
        batch=np.minimum(admitted, np.floor(fits)).astype(np.int64),
        arrivals=_arrivals(world, seed, at_s, time.tick_s, line),
        slowness=line.slowness * _slowness(world, seed, shape, time.tick_s),
        lost=world.traffic.preemption_cost * np.clip(admitted / fits - 1, 0, 1),
        shares=line.shares,
        survival=np.diff((line.shares[:, :, None] * length).sum(axis=1), axis=1),
        class_length=length,
        wear=worn(line.decays, line.at_s, line.started_s),
        decays=tuple(line.decays),
        mismatches_s=tuple(line.mismatches_s),
        context=context,
        present=line.present,
        serving=line.serving,
        life=line.life,
        started_s=line.started_s,
        ready_since_s=line.ready_since_s,
        missing=line.missing,
        frozen=line.frozen,
        deaf=line.deaf,
        own_depth=line.own_depth,
    )


def _hardware(world: SimulatedWorld, seed: int) -> tuple[Hardware, Hardware]:
    """The engines of the fleet, and one for each depth alone, on the same hardware."""

    def of(computed: Steps | None) -> Hardware:
        draws = generator(world, seed, "hardware")
        return hardware(world.step_time, world.fleet.max_batch, draws, computed)

    fleet = world.fleet
    if fleet.graphs is None:
        own = of(None)
        return own, own
    return of(steps(fleet, fleet.graphs)), of(steps_alone(fleet, fleet.graphs))


def _class_length(world: SimulatedWorld, line: Timeline) -> Floats:
    """(T, classes, DEEPEST + 1): 1 + Σ survival, with any mismatch."""
    by_class = np.stack([survival(each) for each in world.classes])
    fit = line.fit[:, None, None] ** np.arange(1, DEEPEST + 1)
    ones = np.ones((len(line.fit), len(by_class), 1))
    return np.concatenate([ones, 1 + np.cumsum(by_class * fit, axis=2)], axis=2)


def _context(world: SimulatedWorld, line: Timeline) -> Floats:
    contexts = np.array([each.context for each in world.classes])
    return np.asarray((line.shares @ contexts) * line.context_factor, dtype=float)


def _wander(
    sd: float, memory_s: float, shape: tuple[int, ...], tick_s: float, draws: np.random.Generator
) -> Floats:
    """A stationary first-order process along the first axis; standard deviation `sd`."""
    keep = float(np.exp(-tick_s / memory_s))
    noise = draws.standard_normal(shape) * np.sqrt(1 - keep * keep)
    noise[0] = draws.standard_normal(shape[1:])
    return np.asarray(sd * lfilter([1.0], [1.0, -keep], noise, axis=0), dtype=float)


def _spells(
    per_hour: float,
    seconds: float,
    shape: tuple[int, ...],
    tick_s: float,
    draws: np.random.Generator,
) -> Floats:
    """1 during spells that begin at random and last for so long, else 0."""
    begins = draws.random(shape) < per_hour * tick_s / 3600
    length = max(1, round(seconds / tick_s))
    running = lfilter(np.ones(length), [1.0], begins.astype(float), axis=0)
    return np.asarray(np.minimum(1.0, running), dtype=float)


def _slowness(world: SimulatedWorld, seed: int, shape: tuple[int, ...], tick_s: float) -> Floats:
    noise, draws = world.noise, generator(world, seed, "speed")
    fixed = noise.pod_spread_sd * draws.standard_normal(shape[1:])
    wander = _wander(noise.pod_speed_sd, noise.pod_speed_memory_s, shape, tick_s, draws)
    slow = _spells(noise.outliers_per_hour, noise.outlier_seconds, shape, tick_s, draws)
    return np.asarray(np.exp(fixed + wander) * (1 + noise.outlier_slowdown * slow), dtype=float)


def _load(traffic: TrafficPart, at_s: Floats, tick_s: float, draws: np.random.Generator) -> Floats:
    """(T,): load relative to its mean: time of day, bursts, quiet hours."""
    hour = at_s / 3600 % 24
    load = 1 + traffic.diurnal * np.cos(2 * np.pi * (hour - traffic.peak_hour) / 24)
    burst = _spells(traffic.bursts_per_hour, traffic.burst_seconds, at_s.shape, tick_s, draws)
    load *= 1 + (traffic.burst_factor - 1) * burst
    for first, last in traffic.quiet_hours:
        load[(hour >= first) & (hour < last)] = 0.0
    return np.asarray(load, dtype=float)


def _routed(world: SimulatedWorld, line: Timeline, draws: np.random.Generator) -> Floats:
    """(T, R): each replica's share of the fleet's load, times the replicas there are at first.

    What one replica cannot serve goes to the others.
    """
    weights = np.exp(world.traffic.skew * draws.standard_normal(line.serving.shape[1]))
    weights = line.serving * weights
    total = weights.sum(axis=1, keepdims=True)
    shares = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return np.asarray(shares * world.fleet.replicas, dtype=float)


def _demand(
    world: SimulatedWorld, seed: int, at_s: Floats, tick_s: float, line: Timeline
) -> Floats:
    traffic, draws = world.traffic, generator(world, seed, "demand")
    load = traffic.concurrency * _load(traffic, at_s, tick_s, draws)
    routed = _routed(world, line, draws)
    wander = _wander(traffic.fluctuation, traffic.fluctuation_memory_s, routed.shape, tick_s, draws)
    return np.asarray(
        load[:, None] * routed * np.exp(wander - traffic.fluctuation**2 / 2), dtype=float
    )


def _arrivals(
    world: SimulatedWorld, seed: int, at_s: Floats, tick_s: float, line: Timeline
) -> Floats:
    traffic, draws = world.traffic, generator(world, seed, "arrivals")
    load = traffic.requests_per_second * _load(traffic, at_s, tick_s, draws)
    mean = load[:, None] * _routed(world, line, draws) * tick_s
    return draws.poisson(mean).astype(float)


def _rounded(demand: Floats, draws: np.random.Generator) -> Ints:
    """Whole requests with the right mean; some work stays some work."""
    whole = np.floor(demand + draws.random(demand.shape)).astype(np.int64)
    return np.where(demand > 0, np.maximum(whole, (demand >= 0.5).astype(np.int64)), 0)  # noqa: PLR2004
