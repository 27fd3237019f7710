"""One world and seed under all policies."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.tuner.course.course import Bools, Ints, WorldCourse
from benchmarks.tuner.course.drawing import clock, draw, generator
from benchmarks.tuner.fleet.fleet import CourseFleet
from benchmarks.tuner.fleet.load import ClosedLoad, CourseLoad, OpenLoad
from benchmarks.tuner.fleet.settings import settings
from benchmarks.tuner.outcome import CourseOutcome, outcome_of_depths
from benchmarks.tuner.policies import hindsight
from benchmarks.tuner.policies.bandits import EpsilonGreedy, Thompson, Ucb
from benchmarks.tuner.policies.learner import Learner, run_learner
from benchmarks.tuner.policies.queueing import Fixed, Foresight, Learning, run_queueing
from benchmarks.tuner.policies.reactive import Aimd, Slots
from benchmarks.tuner.policies.slo import slo_of
from benchmarks.tuner.policies.windows import Windows, windows
from benchmarks.tuner.worlds.parts import DEEPEST
from benchmarks.tuner.worlds.world import SimulatedWorld
from fathom.api.choices import TuningMode

TICK_S: Final = 10.0
ADVISE_TICK_S: Final = 60.0
ADVISE_WINDOW_S: Final = 300.0
"""Where depth does not change within minutes, minutes are fine enough."""

CLAIRVOYANT: Final = "clairvoyant"
USER: Final = "static_user"
BEST_DEPTH: Final = "best_static_depth"
BEST_SCHEDULE: Final = "best_static_schedule"
LIVE: Final = "live"
ADVISE: Final = "advise"
STATICS: Final = tuple(f"static_{depth}" for depth in range(DEEPEST + 1))
LEARNERS: Final[Mapping[str, Callable[[Windows], Learner]]] = {
    "aimd": lambda cut: Aimd(cut.course.world.fleet),
    "slots": lambda cut: Slots(cut.course.world.fleet),
    "epsilon_greedy": lambda cut: EpsilonGreedy(
        cut.course.world.fleet, cut.buckets, _draws(cut, "epsilon_greedy")
    ),
    "ucb": lambda cut: Ucb(cut.course.world.fleet, cut.buckets, _draws(cut, "ucb")),
    "thompson": lambda cut: Thompson(cut.course.world.fleet, cut.buckets, _draws(cut, "thompson")),
}
POLICIES: Final = (
    *STATICS,
    USER,
    BEST_DEPTH,
    BEST_SCHEDULE,
    *LEARNERS,
    ADVISE,
    LIVE,
    CLAIRVOYANT,
)


@dataclass(frozen=True)
class Campaign:
    """Policies that lived through the same course, the clairvoyant and the user's among them."""

    cut: Windows
    outcomes: Mapping[str, CourseOutcome]
    slo_kept: Mapping[str, Bools] | None
    """(W,) by policy: whether it kept the SLO; None: the world has none."""
    ceiling: float | None
    """Tokens with a depth for each exact batch. Closed traffic without an SLO."""

    @property
    def course(self) -> WorldCourse:
        return self.cut.course


def simulate(
    world: SimulatedWorld, seed: int, policies: Collection[str] = POLICIES
) -> tuple[Campaign, ...]:
    """Live policies on the course of days; advice the same days, coarser."""
    fleet = world.fleet
    fast = clock(tick_s=TICK_S, window_s=fleet.window_seconds, days=fleet.days)
    slow = clock(tick_s=ADVISE_TICK_S, window_s=ADVISE_WINDOW_S, days=fleet.days)
    campaigns = []
    if set(policies) - {ADVISE}:
        fleets = {LIVE: _live} if LIVE in policies else {}
        campaigns.append(campaign(draw(world, seed, fast), policies, fleets))
    if ADVISE in policies:
        campaigns.append(campaign(draw(world, seed, slow), (), {ADVISE: _advise}))
    return tuple(campaigns)


_Run = Callable[[WorldCourse], CourseOutcome]


def _live(course: WorldCourse) -> CourseOutcome:
    world = course.world
    wishes = settings(world, TuningMode.AUTO, window_s=world.fleet.window_seconds)
    return CourseFleet(course, _load(course), wishes, LIVE).run()


def _advise(course: WorldCourse) -> CourseOutcome:
    wishes = settings(course.world, TuningMode.ADVISE, window_s=ADVISE_WINDOW_S)
    return CourseFleet(course, _load(course), wishes, ADVISE).run()


def _load(course: WorldCourse) -> CourseLoad:
    return OpenLoad(course) if course.world.traffic.mode == "open" else ClosedLoad(course)


def campaign(
    course: WorldCourse, policies: Collection[str], fleets: Mapping[str, _Run]
) -> Campaign:
    """All of these policies on one course, and the clairvoyant and the user's depth with them."""
    cut = windows(course)
    wanted = {*policies, CLAIRVOYANT, USER}
    is_open = course.world.traffic.mode == "open"
    others = _open(cut, wanted) if is_open else _closed(cut, wanted)
    outcomes = {**others, **{name: run(course) for name, run in fleets.items()}}
    slo = slo_of(cut)
    if slo is not None:
        kept = {name: slo.kept(each) for name, each in outcomes.items()}
        return Campaign(cut, slo.credited(outcomes, outcomes[CLAIRVOYANT]), kept, None)
    ceiling = None if is_open else hindsight.per_batch_ceiling(cut.ideal)
    return Campaign(cut, outcomes, None, ceiling)


def _static_schedules(cut: Windows, wanted: Collection[str]) -> dict[str, Ints]:
    fleet = cut.course.world.fleet
    depths = {STATICS[depth]: depth for depth in fleet.depths}
    depths[USER] = fleet.tokens
    return {name: hindsight.static(cut, k) for name, k in depths.items() if name in wanted}


def _closed(cut: Windows, wanted: Collection[str]) -> dict[str, CourseOutcome]:
    slo = slo_of(cut)
    chosen = _static_schedules(cut, wanted)
    chosen[BEST_DEPTH] = hindsight.best_static_depth(cut)
    chosen[BEST_SCHEDULE] = hindsight.best_static_schedule(cut)
    for name, learner in LEARNERS.items():
        if name in wanted:
            chosen[name] = run_learner(learner(cut), cut)
    outcomes = {
        name: outcome_of_depths(cut.course, cut.depth(depths))
        for name, depths in chosen.items()
        if name in wanted
    }
    best = hindsight.clairvoyant(cut.ideal) if slo is None else slo.choose()
    return {**outcomes, CLAIRVOYANT: outcome_of_depths(cut.course.ideal, cut.depth(best))}


def _open(cut: Windows, wanted: Collection[str]) -> dict[str, CourseOutcome]:
    course = cut.course
    foresight = Foresight(course, cut.buckets)
    outcomes = {CLAIRVOYANT: run_queueing(course, foresight)}
    every_depth = _static_schedules(cut, {*STATICS, USER})
    if BEST_DEPTH in wanted:
        wanted = {*wanted, *STATICS}
    for name, schedule in every_depth.items():
        if name in wanted:
            outcomes[name] = run_queueing(course, Fixed(schedule))
    if BEST_DEPTH in wanted:
        outcomes[BEST_DEPTH] = max((outcomes[name] for name in every_depth), key=_served)
    if BEST_SCHEDULE in wanted:
        schedule = np.argmax(foresight.visits, axis=1)
        outcomes[BEST_SCHEDULE] = run_queueing(course, Fixed(schedule))
    for name, learner in LEARNERS.items():
        if name in wanted:
            outcomes[name] = run_queueing(course, Learning(learner(cut)))
    return {name: outcome for name, outcome in outcomes.items() if name in wanted}


def _served(outcome: CourseOutcome) -> tuple[float, float]:
    """Where all that arrives is served, what serves it sooner is better."""
    return round(float(outcome.tokens.sum())), -(outcome.request_seconds or 0.0)


def _draws(cut: Windows, policy: str) -> np.random.Generator:
    return generator(cut.course.world, cut.course.seed, policy)
