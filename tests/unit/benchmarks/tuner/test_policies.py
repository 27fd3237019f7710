"""Policies on a course: none beats the clairvoyant, and each does what its name says."""

import numpy as np
import pytest

from benchmarks.tuner.course.course import CourseClock
from benchmarks.tuner.course.drawing import draw
from benchmarks.tuner.fleet.load import OpenLoad
from benchmarks.tuner.fleet.plant import CoursePlant
from benchmarks.tuner.outcome import outcome_of_depths
from benchmarks.tuner.policies import hindsight
from benchmarks.tuner.policies.bandits import EpsilonGreedy, Thompson, Ucb
from benchmarks.tuner.policies.learner import Learner, WindowSeen
from benchmarks.tuner.policies.reactive import Aimd, Slots
from benchmarks.tuner.policies.slo import CourseSlo
from benchmarks.tuner.policies.windows import windows
from benchmarks.tuner.simulate import CLAIRVOYANT, POLICIES, campaign
from benchmarks.tuner.worlds.files import load, shipped
from benchmarks.tuner.worlds.parts import FleetPart
from unit.benchmarks.tuner.worlds import HALF, course, days, world

CLOSED = [name for name in shipped() if load(name).traffic.mode == "closed"]


def test_a_static_depth_makes_what_arithmetic_says() -> None:
    got = campaign(course(world()), ["static_2"], {}).outcomes["static_2"]
    # 4 pods with 4 requests each, 1.75 tokens per step and request, 12 ms per step, one hour.
    assert got.tokens.sum() == pytest.approx(4 * 4 * 1.75 / 0.012 * 3600)


@pytest.mark.parametrize("name", CLOSED)
def test_the_clairvoyant_is_never_beaten(name: str) -> None:
    coarse = draw(load(name), 7, CourseClock(300.0, 288, 2))
    outcomes = campaign(coarse, POLICIES, {}).outcomes
    best = outcomes[CLAIRVOYANT].tokens.sum()
    assert len(outcomes) > 10
    assert all(each.tokens.sum() <= best * (1 + 1e-9) for each in outcomes.values())


def test_best_static_choices_are_the_best_of_their_kind() -> None:
    cut = windows(draw(load("diurnal"), 1, CourseClock(300.0, 288, 1)))

    def tokens(depths: np.ndarray) -> float:
        return float(outcome_of_depths(cut.course, cut.depth(depths)).tokens.sum())

    depths = [tokens(hindsight.static(cut, k)) for k in range(1, 8)]
    schedule = hindsight.best_static_schedule(cut)
    assert tokens(hindsight.best_static_depth(cut)) == max(depths)
    assert tokens(schedule) > max(depths)
    for bucket in range(cut.buckets):
        for depth in range(1, 8):
            other = schedule.copy()
            other[bucket] = depth
            assert tokens(other) <= tokens(schedule)


def test_the_clairvoyant_stays_within_the_bounds_of_the_spec() -> None:
    bounds = {"min_tokens": 2, "tokens": 2, "max_tokens": 3}
    sure = {"name": "sure", "acceptance": [0.95]}
    cut = windows(course(world(fleet=bounds, classes=(sure,))))
    assert np.unique(hindsight.clairvoyant(cut)[cut.tokens.any(axis=2)]).tolist() == [3]
    assert hindsight.best_static_depth(cut)[0] == 3


def test_no_schedule_beats_a_depth_for_each_batch() -> None:
    cut = windows(draw(load("graph-cliffs"), 1, CourseClock(60.0, 1440, 1)))
    best = outcome_of_depths(cut.course, cut.depth(hindsight.clairvoyant(cut))).tokens.sum()
    assert best < hindsight.per_batch_ceiling(cut)


def play(learner: Learner, value: dict[int, float], windows: int) -> list[int]:
    """Let a learner choose where a depth is worth that many tokens per pod-second."""
    chosen = []
    for _ in range(windows):
        depth = learner.depth(3)
        chosen.append(depth)
        learner.learn([WindowSeen(3, depth, 100 * value[depth], 100.0, 50 * value[depth])])
    return chosen


@pytest.mark.parametrize("kind", [EpsilonGreedy, Ucb, Thompson])
def test_bandits_find_the_best_depth(kind: type[EpsilonGreedy | Ucb | Thompson]) -> None:
    value = {depth: 100.0 - 15 * abs(depth - 5) for depth in range(1, 8)}
    learner = kind(FleetPart(), 8, np.random.default_rng(1))
    chosen = play(learner, value, 600)
    assert chosen[0] == 3  # the user's own, before anything is known
    assert chosen[-200:].count(5) > 120


def accepting(learner: Learner, accepted: float, windows: int) -> int:
    for _ in range(windows):
        depth = learner.depth(0)
        tokens = 1000 * (1 + min(depth, accepted))
        learner.learn([WindowSeen(0, depth, tokens, 10.0, 1000.0)])
    return learner.depth(0)


def test_aimd_goes_deeper_by_one_and_halves() -> None:
    learner = Aimd(FleetPart(tokens=4))
    assert accepting(learner, accepted=4.0, windows=1) == 5
    assert accepting(learner, accepted=1.0, windows=1) == 2


def test_slots_follow_accepted_drafts() -> None:
    assert accepting(Slots(FleetPart()), accepted=6.9, windows=30) == 7
    assert accepting(Slots(FleetPart()), accepted=0.3, windows=30) == 1
    assert accepting(Slots(FleetPart()), accepted=2.0, windows=30) == 3


SLO_WORLD = {
    "fleet": {"objective": "Goodput", "tpot_milliseconds": 10},
    "traffic": {"concurrency": 20, "diurnal": 0.5, "fluctuation": 0.1},
    "step_time": {"compute_per_token_us": 80, "knee": 1, "overhead_ms": 6},
    "classes": (
        {"name": "easy", "acceptance": [0.9], "tail": 0.2},
        {"name": "hard", "acceptance": [0.4], "tail": 0.2},
    ),
}


def test_the_slo_is_kept_wherever_one_depth_could_keep_it() -> None:
    cut = windows(days(world(**SLO_WORLD), 1))
    slo = CourseSlo(cut, 0.010)
    best = outcome_of_depths(cut.course, cut.depth(slo.choose()))
    kept = slo.kept(best)
    statics = [
        outcome_of_depths(cut.course, cut.depth(hindsight.static(cut, k))) for k in range(1, 8)
    ]
    single = np.array([slo.kept(each) for each in statics])
    assert 0.2 < kept.mean() < 0.98
    assert single[:, ~kept].mean() < 0.01
    fastest = outcome_of_depths(cut.course, cut.depth(hindsight.clairvoyant(cut)))
    assert slo.kept(fastest).mean() < kept.mean()


def test_speed_that_breaks_the_slo_earns_nothing() -> None:
    cut = windows(days(world(**SLO_WORLD), 1))
    slo = CourseSlo(cut, 0.010)
    best = outcome_of_depths(cut.course, cut.depth(slo.choose()))
    fastest = outcome_of_depths(cut.course, cut.depth(hindsight.clairvoyant(cut)))
    assert fastest.tokens.sum() > best.tokens.sum()
    credited = slo.credited({"fastest": fastest}, best)["fastest"]
    assert credited.tokens.sum() <= best.tokens.sum()


def test_time_per_token_is_the_tail_of_the_requests_in_flight() -> None:
    """Ten to one accept all or nothing: at depth 1 the slow ones are 9 %, so they are the tail."""
    classes = (
        {"name": "all", "acceptance": [1.0], "share": 10, "tail": 0},
        {"name": "none", "acceptance": [0.0], "share": 1, "tail": 0},
    )
    cut = windows(course(world(classes=classes)))
    outcome = outcome_of_depths(cut.course, cut.depth(hindsight.static(cut, 1)))
    assert not CourseSlo(cut, 0.0109).kept(outcome).any()  # a step of 11 ms is one token to them
    assert CourseSlo(cut, 0.0111).kept(outcome).all()


def queueing(**traffic: float) -> tuple[OpenLoad, CoursePlant]:
    of = world(traffic={"mode": "open", "output_tokens": 4000, **traffic})
    got = course(of, hours=3)
    return OpenLoad(got), CoursePlant.of(got)


def serve(load: OpenLoad, plant: CoursePlant, ticks: int) -> float:
    """At depth 2; returns the requests served."""
    tokens = 0.0
    for tick in range(ticks):
        for replica, batch in enumerate(load.batches(tick, [True] * 4)):
            made = 0.0
            if batch.running:
                work = plant.work(tick, replica, batch.running, 2, wear=1.0, lost=batch.lost)
                made = work.rate * 10.0 * load.busy_share(batch, replica, work)
            load.served(replica, made)
            tokens += made
    return tokens / 4000


def test_a_queue_settles_where_littles_law_says() -> None:
    load, plant = queueing(requests_per_second=1.0)
    serve(load, plant, 300)
    before = load.request_seconds
    served = serve(load, plant, 300)
    # Each request makes 1.75 tokens per 12 ms, so its 4000 tokens take 27.4 s.
    assert (load.request_seconds - before) / served == pytest.approx(4000 / 1.75 * 0.012, rel=0.05)


def test_nothing_gets_lost_in_a_queue() -> None:
    load, plant = queueing(requests_per_second=8.0, queue_limit=10)
    served = serve(load, plant, 300)
    arrived = load.course.arrivals[:300].sum()
    assert load.turned_away > 0
    assert served + load.turned_away + sum(load.flight) == pytest.approx(arrived)


def test_policies_meet_in_an_open_world() -> None:
    of = world(
        traffic={"mode": "open", "requests_per_second": 12.0, "output_tokens": 1000},
        fleet={"max_batch": 16, "replicas": 1},
        classes=(HALF,),
    )
    outcomes = campaign(course(of, hours=3), POLICIES, {}).outcomes
    best = outcomes[CLAIRVOYANT].tokens.sum()
    assert outcomes["static_7"].tokens.sum() < 0.9 * best
    assert outcomes["best_static_schedule"].tokens.sum() == pytest.approx(best, rel=0.001)
    assert outcomes["thompson"].tokens.sum() > outcomes["static_7"].tokens.sum()
