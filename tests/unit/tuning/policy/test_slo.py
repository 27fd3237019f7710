"""Goodput: the slow end of time per output token (TPOT), and the depths that an SLO allows."""

import json
from dataclasses import replace
from math import exp, inf, log, sqrt
from statistics import NormalDist

import pytest

from fathom.api.choices import Objective
from fathom.api.conditions import Reason
from fathom.measurement.counters import Cell, CellCounts, EngineCounts, Histogram, StepKind
from fathom.measurement.deltas import PodDelta
from fathom.tuning.assessment import assess
from fathom.tuning.checks.probing import start_probe
from fathom.tuning.estimate.tail import HALF_LIFE_S, LEAST_REQUESTS, Tail
from fathom.tuning.estimate.text_spread import TextSpread
from fathom.tuning.interface import Action
from fathom.tuning.learned_state import TuningState
from fathom.tuning.policy.experiments import control, experiments
from fathom.tuning.policy.option import ProbePlan, Visit
from fathom.tuning.policy.policy import MEND_Z, Policy
from fathom.tuning.policy.slo import LEAVE_ABOVE_SHARE, Slo, mean_slope
from fathom.tuning.policy.value import CERTAIN_Z, Gain
from unit.tuning.plant import TPOT_BOUNDS, WINDOW_30, Fleet, Hardware, hours_long, slow_tpot

SLO_S = 0.075
LARGE_MODEL = Hardware(
    base_s=0.06,
    per_request_s=0.002,
    per_token_s=0.004,
    per_token_request_s=0.0008,
    prefill_s=0.02,
)
TEXT = (0.8,) * 16


# The histogram


def finished(
    requests: float,
    *,
    mean_s: float = 0.04,
    spread: float = 0.4,
    at_s: float = 60.0,
    depth: int = 3,
) -> PodDelta:
    """So many requests end at a depth; their times per output token are lognormal."""
    median_s = mean_s * exp(-(spread**2) / 2)
    histogram: Histogram = tuple(
        (bound, requests * (NormalDist().cdf(log(bound / median_s) / spread)))
        for bound in TPOT_BOUNDS[:-1]
    )
    engine = EngineCounts(tpot_seconds_sum=mean_s * requests, tpot_count=requests)
    return PodDelta(
        pod="pod-0",
        from_s=at_s - 30,
        to_s=at_s,
        engine=engine,
        cells={Cell(8, depth, StepKind.DECODE): CellCounts(tokens=100 * requests)},
        drafts={},
        tpot=(*histogram, (inf, float(requests))),
    )


@pytest.mark.parametrize("spread", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("mean_s", [0.006, 0.02, 0.045, 0.3])
def test_the_percentile_is_told_though_the_bounds_are_far_apart(
    mean_s: float, spread: float
) -> None:
    tail = Tail().updated([finished(1000, mean_s=mean_s, spread=spread)])
    truth = mean_s * exp(1.645 * spread - spread**2 / 2)

    assert tail.mean_seconds == pytest.approx(mean_s)
    assert tail.slow_seconds == pytest.approx(truth, rel=0.05)


@pytest.mark.parametrize("spread", [0.001, 0.05, 0.15])
def test_where_all_are_of_one_speed_the_slow_end_is_never_told_too_fast(spread: float) -> None:
    slow = Tail().updated([finished(1000, spread=spread)]).slow_seconds
    assert slow is not None
    assert 0.99 < slow / (0.04 * exp(1.645 * spread - spread**2 / 2)) < 1.15


def test_a_handful_of_requests_has_no_percentile() -> None:
    tail = Tail().updated([finished(LEAST_REQUESTS - 1)])
    assert tail.slow_seconds is None
    assert tail.mean_seconds is None
    assert tail.slow_over_mean() is None


def test_all_pods_count_and_the_past_fades() -> None:
    tail = Tail().updated([finished(100), finished(100)])
    assert tail.requests == 200
    later = tail.updated([finished(40, at_s=60 + HALF_LIFE_S)])
    assert later.requests == pytest.approx(140)


def test_it_is_known_at_which_depths_those_requests_ran() -> None:
    tail = Tail().updated([finished(100), finished(50, depth=5)])
    assert [(each.depth, each.tokens) for each in tail.ran] == [(3, 10_000), (5, 5_000)]

    later = tail.updated([finished(100, depth=2, at_s=60 + HALF_LIFE_S)])
    assert [each.depth for each in later.ran] == [2, 3, 5]
    assert [each.tokens for each in later.ran] == pytest.approx([10_000, 5_000, 2_500])
    hours_later = later.updated([finished(100, depth=2, at_s=60 + 20 * HALF_LIFE_S)])
    assert [each.depth for each in hours_later.ran] == [2]


def test_where_no_request_ended_none_was_served() -> None:
    busy = replace(
        finished(0, depth=7), cells={Cell(8, 7, StepKind.DECODE): CellCounts(tokens=5e3)}
    )
    tail = Tail().updated([finished(100), busy])
    assert [each.depth for each in tail.ran] == [3]


def test_an_engine_without_the_histogram_changes_nothing() -> None:
    tail = Tail().updated([finished(100)])
    assert tail.updated([replace(finished(100), tpot=())]) is tail
    assert tail.updated([finished(0)]) is tail


def test_a_histogram_can_be_persisted() -> None:
    state = TuningState(tail=Tail().updated([finished(100)]))
    text = state.to_json()
    assert "Infinity" not in text
    json.loads(text)
    assert TuningState.from_json(text).tail == state.tail


# In a closed loop


def serving(
    *, tokens: int, spread: float, objective: Objective = Objective.GOODPUT, seed: int = 1
) -> Fleet:
    """A large model, whose requests' log-odds of acceptance are spread by so much."""
    fleet = hours_long(
        settings=replace(
            WINDOW_30,
            objective=objective,
            tpot_slo_seconds=SLO_S if objective is Objective.GOODPUT else None,
            tokens=tokens,
        ),
        acceptance=TEXT,
        hardware=LARGE_MODEL,
        concurrency=8,
        jitter=0,
        seed=seed,
    )
    for pod in fleet.pods:
        pod.difficulty_sd, pod.mixed_share = spread, 0.05
    return fleet


def slow_ms(depth: int, spread: float) -> float:
    return 1000 * slow_tpot(LARGE_MODEL, TEXT, spread, 8, depth)


def policy_of(fleet: Fleet) -> Policy:
    assert fleet.document is not None
    return assess(fleet.snapshot(), fleet.document).policy


@pytest.fixture(scope="module")
def learnt() -> Policy:
    """Depth 3 is in force, and its slow end known; 4 to 7 were just tried, 1 and 2 never."""
    fleet = serving(tokens=3, spread=1.0, objective=Objective.THROUGHPUT)
    fleet.pods[0].pinned_depth = 7
    fleet.run(1800)
    assert fleet.depth() >= 4
    policy = policy_of(fleet)
    times = policy.evidence.step_times
    deeper = tuple(cell for cell in times.cells if cell.depth >= 3)
    now_s, epoch = policy.evidence.now_s, policy.evidence.text.epoch
    return replace(
        policy,
        evidence=replace(policy.evidence, step_times=replace(times, cells=deeper)),
        depths=dict.fromkeys(policy.depths, 3),
        visits=tuple(
            Visit(bucket=8, depth=depth, at_s=now_s, epoch=epoch) for depth in (4, 5, 6, 7)
        ),
    )


def wanted(policy: Policy) -> dict[int, float]:
    """Depths to go to or to try; and how slow slow requests are predicted to be there."""
    probe = ProbePlan(seconds=15.0, pods=8)
    assert policy.slo is not None
    return {
        each.to: policy.slo.slow_seconds(policy.evidence, 8, each.to) or inf
        for each in (*policy.moves(), *experiments(policy, probe))
        if each.bucket == 8
    }


@pytest.mark.parametrize("share", [0.4, 0.6, 0.9])
def test_what_is_predicted_to_miss_the_slo_is_neither_gone_to_nor_tried(
    learnt: Policy, share: float
) -> None:
    """An SLO between what the depth in force keeps and what would else be tried."""
    tail = Tail().updated([finished(1000, mean_s=0.042, spread=0.25)])
    slowest_s = max(wanted(replace(learnt, slo=Slo(1.0, tail))).values())
    in_force_s = Slo(1.0, tail).slow_seconds(learnt.evidence, 8, 3)
    assert in_force_s is not None
    slo = Slo(in_force_s + share * (slowest_s - in_force_s), tail)
    assert not slo.loses(in_force_s)

    assert all(slow < slo.seconds for slow in wanted(replace(learnt, slo=slo)).values())


@pytest.mark.parametrize("seed", [1, 2])
def test_in_force_there_is_never_a_depth_that_misses_the_slo_however_fast(seed: int) -> None:
    spread = 1.5
    assert slow_ms(1, spread) < 75 < slow_ms(3, spread)
    by_speed = serving(tokens=1, spread=spread, objective=Objective.THROUGHPUT, seed=seed)
    held = serving(tokens=1, spread=spread, seed=seed)

    assert by_speed.run(1800).depth() >= 3
    held.run(1800)
    assert all(each.depth <= 2 for _, document in held.writes for each in document.schedule)


def test_what_misses_the_slo_is_left_for_a_shallower_depth() -> None:
    assert slow_ms(7, 1.0) > 80
    fleet = serving(tokens=7, spread=1.0).run(120)

    assert fleet.depth() <= 5, fleet.log()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("tokens", [5, 6, 7])
def test_a_move_that_keeps_the_slo_is_not_taken_back_for_being_slower(
    tokens: int, seed: int
) -> None:
    fleet = serving(tokens=tokens, spread=1.0, seed=seed).run(1800)
    assert not any("Takes back" in d.message for d in fleet.actions(Action.MOVE))


def test_the_slo_is_kept_where_a_depth_keeps_it() -> None:
    fleet = serving(tokens=7, spread=1.0).run(1800)
    assert slow_ms(fleet.depth(8), 1.0) <= 75, fleet.log()


def test_far_below_the_slo_it_is_as_if_there_were_none() -> None:
    fleet = serving(tokens=1, spread=0.3).run(1800)
    assert slow_ms(5, 0.3) < 0.75 * 75
    assert fleet.depth() >= 4
    assert fleet.shortfall() <= 0.03


def test_as_long_as_the_tail_is_not_known_nothing_is_tried_and_it_is_said_why() -> None:
    fleet = serving(tokens=3, spread=1.0)
    for pod in fleet.pods:
        pod.difficulty_sd = None
    fleet.run(600)
    assert not fleet.actions(Action.PROBE)
    last = fleet.decisions[-1][1]
    assert last.reason is Reason.MEASURING
    assert "20 requests" in last.message

    for pod in fleet.pods:
        pod.difficulty_sd = 0.3
    fleet.run(300)
    assert fleet.actions(Action.PROBE)


def test_deeper_is_predicted_to_be_slower_for_the_slow() -> None:
    """The share of it that text explains is scaled by what depth does to hard text."""
    fleet = serving(tokens=3, spread=1.0).run(600)
    policy = policy_of(fleet)

    def over_mean(depth: int) -> float:
        assert policy.slo is not None
        slow = policy.slo.slow_seconds(policy.evidence, 8, depth)
        mean = policy.evidence.tpot_seconds(8, depth)
        assert slow is not None
        assert mean is not None
        return slow / mean

    ratios = [over_mean(depth) for depth in range(1, 8)]
    assert ratios == sorted(ratios)
    assert over_mean(7) > 1.05 * over_mean(1)


def test_margins_leave_room_between_entering_and_leaving() -> None:
    slo = Slo(SLO_S, Tail())
    assert slo.loses(SLO_S)
    assert not slo.loses(0.95 * SLO_S)


# What is measured belongs to the depths that made it


def test_a_move_alone_changes_no_prediction(learnt: Policy) -> None:
    """The requests of the last minutes ran at the depth that was left."""
    tail = Tail().updated([finished(1000, mean_s=0.042, spread=0.25)])
    moved = replace(learnt, depths=dict.fromkeys(learnt.depths, 6))

    def told(policy: Policy) -> list[Gain | None]:
        slo = Slo(0.01, tail)
        return [replace(policy, slo=slo).gain(8, depth, 3) for depth in (1, 2, 4, 6)]

    assert told(moved) == told(learnt)


def test_a_depth_that_ran_is_told_as_it_was_measured(learnt: Policy) -> None:
    tail = Tail().updated([finished(1000, mean_s=0.06, spread=0.25, depth=6)])
    assert Slo(SLO_S, tail).slow_seconds(learnt.evidence, 8, 6) == pytest.approx(tail.slow_seconds)


@pytest.mark.parametrize("by_text", [0.1, 0.3, 0.5])
def test_what_comes_from_the_text_is_learnt_though_depth_changes_every_few_minutes(
    learnt: Policy, by_text: float
) -> None:
    """Windows of 30 s, ten of them at each depth in turn; requests are remembered for minutes."""
    slope = learnt.evidence.lengths(1).logit_slope
    tail, found = Tail(), TextSpread()
    for i in range(240):
        depth = 2 if i // 10 % 2 else 5
        over_mean = 0.4 * (1 - by_text + by_text * slope(depth) / slope(2))
        spread = 1.645 - sqrt(1.645**2 - 2 * over_mean)
        at_s = 60.0 + 30.0 * i
        tail = tail.updated([finished(500, spread=spread, depth=depth, at_s=at_s)])
        seen, mean = tail.slow_over_mean(), mean_slope(learnt.evidence, tail)
        assert seen is not None
        assert mean is not None
        found = found.updated(mean, seen, at_s)

    assert found.steepness(slope(2), 0.4) * slope(2) / 0.4 == pytest.approx(by_text, abs=0.08)


# While the SLO is missed

ALL_BY_TEXT = TextSpread(squares=1e6, products=1e9)
"""All of the spread comes from the text."""


def missing(policy: Policy, by: float, depth: int = 3) -> Policy:
    """The same where slow requests take longer than the SLO by this share, at a depth."""
    tail = Tail().updated([finished(1000, mean_s=0.042, spread=0.25, depth=depth)])
    slow_s = Slo(1.0, tail, ALL_BY_TEXT).slow_seconds(policy.evidence, 8, depth)
    assert slow_s is not None
    assert tail.slow_seconds == pytest.approx(slow_s)
    depths = dict.fromkeys(policy.depths, depth)
    return replace(policy, depths=depths, slo=Slo(slow_s / (1 + by), tail, ALL_BY_TEXT))


def test_windows_that_scatter_leave_less_room() -> None:
    tail = replace(Tail().updated([finished(1000)]), scatter_squared=0.03**2)
    slow_s = tail.slow_seconds
    assert slow_s is not None
    assert Slo(1.02 * slow_s, tail).is_missed
    assert not Slo(1.02 * slow_s, replace(tail, scatter_squared=0.0)).is_missed


def test_while_the_slo_is_missed_only_what_may_mend_it_is_tried(learnt: Policy) -> None:
    policy = missing(aged(learnt, 2400.0), 0.1)
    assert policy.slo is not None
    slow_s = {k: policy.slo.slow_seconds(policy.evidence, 8, k) or inf for k in range(1, 8)}
    probe = ProbePlan(seconds=15.0, pods=1000)

    tried = [each for each in experiments(policy, probe) if each.bucket == 8]
    assert tried
    assert all(log(slow_s[each.to] / slow_s[3]) <= CERTAIN_Z * each.gain.sd for each in tried)
    # Far below the SLO the user's own depth is measured anew, however slow; missing it, it is not.
    own = replace(policy, bounds=replace(policy.bounds, tokens=7))
    assert slow_s[7] > 1.1 * slow_s[3]
    assert any(each.to == 7 for each in control(replace(own, slo=None), ProbePlan(15.0, 8)))
    assert not any(each.to == 7 for each in control(own, ProbePlan(15.0, 8)))


# While it is kept


@pytest.mark.parametrize("pods", [1, 4, 16])
@pytest.mark.parametrize("below", [0.02, 0.06, 0.15])
@pytest.mark.parametrize("depth", [3, 7])
def test_whatever_is_tried_keeps_the_slo_however_slow_it_may_be(
    learnt: Policy, depth: int, below: float, pods: int
) -> None:
    policy = missing(aged(learnt, 2400.0), -below, depth)
    assert policy.slo is not None
    slow_s = {k: policy.slo.slow_seconds(policy.evidence, 8, k) or inf for k in range(1, 8)}
    plan = ProbePlan(15.0, pods)
    for tokens in range(1, 8):
        own = replace(policy, bounds=replace(policy.bounds, tokens=tokens))
        for each in (*experiments(own, plan), *control(own, plan)):
            if each.bucket == 8:
                at_most = log(slow_s[each.to] / slow_s[depth]) + CERTAIN_Z * each.gain.sd
                assert slow_s[depth] * exp(at_most / pods) <= LEAVE_ABOVE_SHARE * policy.slo.seconds


@pytest.mark.parametrize(
    ("depth", "tokens", "below", "pods", "tried"),
    [
        # As near as can be: only where slow requests are faster beyond doubt.
        (7, 4, 0.011, 1, True),
        (3, 7, 0.011, 16, False),
        # With some room: what may be slower, if it is a small part of the traffic.
        (3, 7, 0.08, 16, True),
        (3, 7, 0.08, 1, False),
        # Far below: anything.
        (3, 7, 0.5, 1, True),
    ],
)
def test_the_users_own_depth_is_measured_anew_as_far_as_the_slo_bears_it(
    learnt: Policy,
    *,
    depth: int,
    tokens: int,
    below: float,
    pods: int,
    tried: bool,
) -> None:
    policy = missing(aged(learnt, 2400.0), -below, depth)
    assert policy.slo is not None
    assert not policy.slo.is_missed
    own = replace(policy, bounds=replace(policy.bounds, tokens=tokens))
    assert (
        any(each.bucket == 8 and each.to == tokens for each in control(own, ProbePlan(15.0, pods)))
        is tried
    )

    unknown = replace(own, slo=Slo(policy.slo.seconds, Tail()))
    assert not control(unknown, ProbePlan(15.0, pods))
    assert not experiments(unknown, ProbePlan(15.0, pods))


@pytest.mark.parametrize(("below", "tried"), [(0.08, False), (0.2, True)])
def test_near_the_slo_nothing_is_tried_once_two_depths_were_compared(
    learnt: Policy,
    below: float,
    tried: bool,  # noqa: FBT001
) -> None:
    """Not even what the SLO bears."""
    own = replace(learnt, bounds=replace(learnt.bounds, tokens=7))
    policy = missing(aged(own, 2400.0), -below)
    assert policy.has_compared
    assert any(each.to == 7 for each in control(policy, ProbePlan(15.0, 16)))

    fleet = serving(tokens=3, spread=1.0)
    wishes, fleet.settings = fleet.settings, replace(fleet.settings, probing=False)
    fleet.run(65)
    assert fleet.document is not None
    given = assess(fleet.snapshot(), fleet.document)
    snapshot = replace(given.snapshot, pods=given.snapshot.pods * 8, settings=wishes)
    decision = start_probe(replace(given, snapshot=snapshot, policy=policy))
    assert (decision is not None and decision.action is Action.PROBE) is tried


def aged(policy: Policy, seconds: float) -> Policy:
    """So much later, and so much less certain."""
    evidence = replace(policy.evidence, now_s=policy.evidence.now_s + seconds)
    return replace(policy, evidence=evidence)


def test_a_missed_slo_takes_less_certainty_to_leave(learnt: Policy) -> None:
    """Where staying by mistake costs as much as going by mistake."""
    unsure = [
        policy
        for minutes in range(0, 300, 10)
        for by in (0.0, 0.02, 0.04)
        if MEND_Z < surest(policy := missing(aged(learnt, 60.0 * minutes), by, depth=7)) < CERTAIN_Z
    ]
    assert unsure
    assert all(any(each.bucket == 8 for each in policy.moves()) for policy in unsure)


def surest(policy: Policy) -> float:
    """Standard errors above zero of the surest gain over depth 7 that was measured."""
    gains = [gain for to in range(1, 7) if (gain := policy.gain(8, to, 7)) is not None]
    return max((each.mean / each.sd for each in gains if each.step_time_measured), default=0.0)
