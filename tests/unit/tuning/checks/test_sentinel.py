"""The sentinel: a fleet that drafts nothing looks now and then at what would be accepted."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import exp, inf, log1p

import pytest

from fathom.api.conditions import Reason
from fathom.engine.depth import depth_at
from fathom.measurement.counters import Cell, CellCounts, StepKind
from fathom.tuning.assessment import assess
from fathom.tuning.checks.probing import SENTINEL_STEPS, continue_probe, start_probe
from fathom.tuning.context import Situation
from fathom.tuning.estimate.acceptance_by_position import TURN_S, Survival
from fathom.tuning.estimate.acceptance_length import Trials
from fathom.tuning.estimate.step_time import StepTimes
from fathom.tuning.estimate.tail import Tail
from fathom.tuning.estimate.traffic import Traffic
from fathom.tuning.interface import Action, TuningDecision
from fathom.tuning.learned_state import Probe
from fathom.tuning.policy.experiments import (
    LEAST_MISSED_GAIN,
    OVERHEAD_LOSS,
    SENTINEL_EVERY_S,
    sentinel,
)
from fathom.tuning.policy.option import Bounds, ProbePlan, Visit
from fathom.tuning.policy.policy import DEPTH_0_GAIN_FACTOR, Policy
from fathom.tuning.policy.slo import Slo
from fathom.tuning.policy.value import Evidence, Gain
from unit.tuning.plant import EASY, SETTINGS, START_S, Fleet, Hardware

NO_LEAST = replace(SETTINGS, min_tokens=0)
HOPELESS = (0.05,) * 16
LOAD = {Cell(4, 0, StepKind.DECODE): CellCounts(1000.0, 10.0, 4000.0, 4000.0)}
LOOK_S = 5.0
NORMAL = Trials((1000.0,), (900.0,))


@dataclass(frozen=True)
class Known(Evidence):
    """As if these values (log) were known, by depth; all others alike."""

    values: Mapping[int, float] = field(default_factory=dict)
    normal_gain: float = 0.0
    """The same of any draft, were traffic as it normally is."""

    def gain(self, bucket: int, to: int, start: int) -> Gain | None:
        del bucket
        ahead = self.values.get(to, 0.0) - self.values.get(start, 0.0)
        if isinstance(self.text, Survival) and self.text.horizon == NORMAL:
            ahead = self.normal_gain
        return Gain(mean=ahead, sd=1e-6, step_time_measured=True, survival_measured=True)

    def tpot_seconds(self, bucket: int, depth: int) -> float | None:
        del bucket
        return 0.03 * exp(-self.values.get(depth, 0.0))


def at_depth(
    depth: int,
    values: Mapping[int, float],
    *,
    idle_s: float = 0.0,
    min_gain: float = 0.01,
    known: Survival | None = None,
    normal_gain: float = 0.0,
) -> Policy:
    """All the load at batch 4; drafts were last seen so long ago."""
    evidence = Known(
        text=replace(known or Survival(), at_s=START_S - idle_s),
        step_times=StepTimes(),
        traffic=Traffic().updated(LOAD, START_S, 30.0),
        now_s=START_S,
        deepest=7,
        values=values,
        normal_gain=normal_gain,
    )
    return Policy(
        evidence=evidence,
        depths={2: 3, 4: depth, 8: 3},
        bounds=Bounds(depths=tuple(range(8)), tokens=3, min_gain=min_gain),
        visits=(),
    )


def losing(loss: float) -> dict[int, float]:
    """Any draft loses so much (log) and the deeper the more."""
    return {depth: -loss - 0.01 * (depth - 1) for depth in range(1, 8)}


def rest_s(
    loss: float,
    *,
    seconds: float = LOOK_S,
    pods: int = 1,
    known: Survival | None = None,
    normal_gain: float = 0.0,
) -> float:
    """How long a fleet goes without drafts before it looks."""
    values = losing(loss)
    return next(
        idle_s
        for idle_s in range(2000)
        if sentinel(
            at_depth(0, values, idle_s=idle_s, known=known, normal_gain=normal_gain),
            ProbePlan(seconds, pods, inf),
        )
    )


# When it looks


def test_it_looks_at_the_depth_that_would_lose_least() -> None:
    (option,) = sentinel(at_depth(0, losing(0.1), idle_s=1000), ProbePlan(LOOK_S, 1, inf))
    assert (option.bucket, option.start, option.to) == (4, 0, 1)


def test_it_does_not_look_where_drafts_are_made() -> None:
    assert sentinel(at_depth(1, losing(0.1), idle_s=10_000), ProbePlan(LOOK_S, 1, inf)) == ()


def test_it_does_not_look_without_load() -> None:
    policy = at_depth(0, losing(0.1), idle_s=10_000)
    idle = replace(policy, evidence=replace(policy.evidence, traffic=Traffic()))
    assert sentinel(idle, ProbePlan(LOOK_S, 1, inf)) == ()


def test_it_does_not_look_where_nothing_may_be_drafted() -> None:
    policy = at_depth(0, losing(0.1), idle_s=10_000)
    forbidden = replace(policy, bounds=replace(policy.bounds, depths=(0,)))
    assert sentinel(forbidden, ProbePlan(LOOK_S, 1, inf)) == ()


def test_the_cheaper_a_look_the_sooner_it_comes() -> None:
    by_loss = [rest_s(loss) for loss in (0.02, 0.1, 0.3)]
    by_seconds = [rest_s(0.1, seconds=seconds) for seconds in (2.0, 5.0, 20.0)]
    assert by_loss == sorted(set(by_loss))
    assert by_seconds == sorted(set(by_seconds))


def test_the_more_pods_share_the_cost_the_sooner_it_comes() -> None:
    rests = [rest_s(0.3, pods=pods) for pods in (8, 2, 1)]
    assert rests == sorted(set(rests))


def test_it_comes_never_too_soon_and_never_too_late() -> None:
    assert SENTINEL_EVERY_S == (10.0, 900.0)
    assert rest_s(1e-6, pods=64) == SENTINEL_EVERY_S[0]
    assert rest_s(5.0, seconds=60.0) == SENTINEL_EVERY_S[1]


def test_the_first_look_comes_soon_for_what_it_costs_is_a_guess() -> None:
    least = SENTINEL_EVERY_S[0]
    dear = {idle_s: at_depth(0, losing(0.5), idle_s=idle_s) for idle_s in (least - 1, least)}
    assert sentinel(dear[least - 1], ProbePlan(LOOK_S, 1, None)) == ()
    assert sentinel(dear[least], ProbePlan(LOOK_S, 1, None)) != ()
    assert sentinel(dear[least], ProbePlan(LOOK_S, 1, least)) == ()


@pytest.mark.parametrize("pods", [1, 4])
def test_looks_and_what_is_missed_between_them_cost_least_together(pods: int) -> None:
    """Traffic turns at any moment between two looks, and the later one notices."""

    def cost(every_s: float) -> float:
        looks = LOOK_S * (0.2 + OVERHEAD_LOSS) / pods / every_s
        return looks + LEAST_MISSED_GAIN * (every_s / 2) / TURN_S

    rest = rest_s(0.2, pods=pods)
    assert SENTINEL_EVERY_S[0] < rest < SENTINEL_EVERY_S[1]
    assert cost(rest) < min(cost(1.1 * rest), cost(rest / 1.1))


def test_the_more_often_traffic_turns_the_sooner_it_comes() -> None:
    rests = [
        rest_s(0.3, known=Survival(turns=turns, watched_s=watched_s))
        for turns, watched_s in ((9.0, 3600.0), (1.0, 3600.0), (0.0, 3600.0), (0.0, 20_000.0))
    ]
    assert rests == sorted(set(rests))


def test_the_more_drafts_normally_gain_the_sooner_it_comes() -> None:
    known = Survival(slow=NORMAL)
    rests = [
        rest_s(0.3, known=known, normal_gain=gain) for gain in (2.0, 1.0, LEAST_MISSED_GAIN, -1.0)
    ]
    assert rests[:3] == sorted(set(rests[:3]))
    assert rests[3] == rests[2]


# Depth 0 is gone to only for more


@pytest.mark.parametrize(("times", "to"), [(0.9, 3), (1.1, 0)])
def test_depth_0_must_gain_twice_as_much(times: float, to: int) -> None:
    least = log1p(0.01)
    values = {
        depth: -times * DEPTH_0_GAIN_FACTOR * least - 0.1 * abs(depth - 3) for depth in range(1, 8)
    }
    moves = {each.bucket: each.to for each in at_depth(3, values).moves()}
    assert DEPTH_0_GAIN_FACTOR == 2.0
    assert moves.get(4, 3) == to


def test_any_other_depth_must_not() -> None:
    values = {1: 1.1 * log1p(0.01), **dict.fromkeys((0, 2, 4, 5, 6, 7), -1.0)}
    assert [each.to for each in at_depth(3, values).moves()] == [1]


def test_a_fleet_goes_blind_only_for_twice_the_smallest_gain() -> None:
    """Truth: without drafts it is 7.7 % faster than at depth 1, and 15.3 %."""

    def depth(drafts_s: float) -> int:
        hardware = Hardware(per_token_s=drafts_s, per_token_request_s=0.0)
        settings = replace(NO_LEAST, min_gain=0.05, tokens=1, max_tokens=1)
        return Fleet(settings, 1, hardware=hardware, acceptance=HOPELESS).run(300).depth()

    assert (depth(0.00115), depth(0.00185)) == (1, 0)


# One look


@pytest.fixture(scope="module")
def blind() -> Fleet:
    """Ten minutes after which drafts are known to be hopeless; none has been made for a while."""
    fleet = Fleet(NO_LEAST, 1, acceptance=HOPELESS, tick_s=0.5).run(600)
    assert fleet.depth() == 0
    while fleet.state.probe is not None or fleet.now_s - fleet.state.survival.at_s < 10:
        fleet.run(1)
    return fleet


def started(given: Situation) -> Probe | None:
    decision = start_probe(given)
    return decision.state.probe if decision is not None else None


def knowing(given: Situation, evidence: Evidence) -> Situation:
    return replace(given, policy=replace(given.policy, evidence=evidence))


@pytest.fixture(scope="module")
def due(blind: Fleet) -> Situation:
    """A moment at which a look is due and nothing else."""
    assert blind.document is not None
    given = assess(blind.snapshot(), blind.document)
    visits = tuple(
        Visit(
            bucket=bucket, depth=depth, at_s=given.now_s, epoch=given.state.survival.epoch, times=3
        )
        for bucket in given.policy.depths
        for depth in range(8)
    )
    survival = replace(given.state.survival, at_s=given.now_s - SENTINEL_EVERY_S[1])
    given = given.with_state(
        replace(given.state, survival=survival, visits=visits, trial=None, sentinel_ended_at_s=0.0)
    )
    return knowing(given, replace(given.policy.evidence, text=survival))


def open_question(due: Situation) -> Situation:
    """Any depth may be better or worse: a proper probe would look on."""
    survival = Survival(at_s=due.now_s - 1000)
    return knowing(due, replace(due.policy.evidence, text=survival))


def test_a_look_is_a_probe_that_says_what_it_is(due: Situation) -> None:
    decision = start_probe(due)
    assert decision is not None
    assert decision.action is Action.PROBE
    probe = decision.state.probe
    assert probe is not None
    assert probe.sentinel
    assert depth_at(decision.document.pods[probe.pod], 4) > 0
    assert depth_at(decision.document.schedule, 4) == 0


def test_a_look_needs_no_rest_after_a_probe_and_no_trial_to_end(due: Situation) -> None:
    """It has a budget of its own."""
    tired = replace(due.state, probe_ended_at_s=due.now_s, probe_lasted_s=10_000.0)
    probe = started(due.with_state(tired))
    assert probe is not None
    assert probe.sentinel


def test_what_may_be_better_is_probed_properly_instead(due: Situation) -> None:
    rested = replace(due.state, visits=(), probe_ended_at_s=0.0)
    probe = started(open_question(due).with_state(rested))
    assert probe is not None
    assert not probe.sentinel


def test_without_probing_it_does_not_look(due: Situation) -> None:
    settings = replace(due.settings, probing=False)
    decision = start_probe(replace(due, snapshot=replace(due.snapshot, settings=settings)))
    assert decision is not None
    assert (decision.action, decision.reason) == (Action.HOLD, Reason.PROBING_DISABLED)
    assert decision.state.probe is None
    assert decision.document is due.document


def test_where_an_slo_bears_nothing_it_does_not_look(due: Situation) -> None:
    tail = Tail(
        tpot=((0.04, 900.0), (0.05, 950.0), (1e9, 1000.0)), seconds_sum=30.0, at_s=due.now_s
    )
    assert tail.slow_seconds is not None

    def looks(slo: Slo) -> bool:
        return start_probe(replace(due, policy=replace(due.policy, slo=slo))) is not None

    assert not looks(Slo(1.02 * tail.slow_seconds, tail))
    assert not looks(Slo(2 * tail.slow_seconds, Tail()))
    assert looks(Slo(2 * tail.slow_seconds, tail))


def carried_on(
    due: Situation, *, steps: float, sentinel: bool = True
) -> tuple[TuningDecision | None, Situation]:
    """What becomes of a look that has seen so many steps."""
    probe = Probe(
        pod=due.snapshot.pods[0].name,
        depths=((4, 1),),
        started_at_s=due.now_s - 4,
        in_force_at_s=due.now_s - 3,
        steps=steps,
        looks=1,
        sentinel=sentinel,
    )
    return continue_probe(due.with_state(replace(due.state, probe=probe)), probe)


def test_a_look_ends_after_a_few_steps(due: Situation) -> None:
    unsure = open_question(due)
    waits, _ = carried_on(unsure, steps=SENTINEL_STEPS - 1)
    over, _ = carried_on(unsure, steps=SENTINEL_STEPS)
    probes_on, _ = carried_on(unsure, steps=SENTINEL_STEPS, sentinel=False)
    assert waits is not None
    assert waits.action is Action.HOLD
    assert over is None
    assert probes_on is not None


@pytest.mark.parametrize("sentinel", [True, False])
def test_a_probe_whose_traffic_has_gone_is_over(due: Situation, sentinel: bool) -> None:  # noqa: FBT001
    waits, _ = carried_on(open_question(due), steps=5, sentinel=sentinel)
    assert waits is not None

    elsewhere = Traffic().updated(
        {Cell(8, 0, StepKind.DECODE): CellCounts(100.0, 1.0, 800.0, 800.0)}, due.now_s, 10.0
    )
    unsure = open_question(due)
    gone = knowing(unsure, replace(unsure.policy.evidence, traffic=elsewhere))
    over, _ = carried_on(gone, steps=5, sentinel=sentinel)
    assert over is None


def test_a_look_counts_neither_as_a_visit_nor_against_the_probes_budget(due: Situation) -> None:
    _, after = carried_on(due, steps=SENTINEL_STEPS)
    assert after.state.probe is None
    assert after.state.visits == due.state.visits
    assert after.state.probe_ended_at_s == due.state.probe_ended_at_s
    assert after.state.probe_lasted_s == due.state.probe_lasted_s
    assert after.state.sentinel_lasted_s == 4.0


def test_a_look_that_saw_nothing_has_cost_nothing(due: Situation) -> None:
    """Its traffic went away, and it waited for more."""
    began_at_s = due.now_s - 1000
    probe = Probe(
        pod=due.snapshot.pods[0].name,
        depths=((4, 1),),
        started_at_s=began_at_s,
        in_force_at_s=began_at_s + 1,
        sentinel=True,
    )
    _, after = continue_probe(due.with_state(replace(due.state, probe=probe)), probe)
    assert after.state.sentinel_ended_at_s == due.now_s
    assert after.state.sentinel_lasted_s == due.state.sentinel_lasted_s


def test_a_proper_probe_counts_as_both(due: Situation) -> None:
    _, after = carried_on(due, steps=10_000, sentinel=False)
    assert after.state.probe is None
    assert after.state.visits != due.state.visits
    assert after.state.probe_ended_at_s == due.now_s
    assert after.state.probe_lasted_s == 4.0
    assert after.state.sentinel_lasted_s == due.state.sentinel_lasted_s


# In a closed loop


def sentinels(fleet: Fleet, since_s: float) -> list[float]:
    """When looks began."""
    return [
        at_s
        for at_s, decision in fleet.decisions
        if at_s >= since_s
        and decision.action is Action.PROBE
        and decision.state.probe is not None
        and decision.state.probe.sentinel
    ]


def blind_for(seconds: float, *, replicas: int = 1, hardware: Hardware | None = None) -> Fleet:
    """A fleet at depth 0 for so long, and ten minutes before."""
    fleet = Fleet(
        NO_LEAST, replicas, acceptance=HOPELESS, hardware=hardware or Hardware(), tick_s=0.5
    ).run(600 + seconds)
    assert fleet.depth() == 0
    return fleet


def mean_gap_s(fleet: Fleet) -> float:
    looks = sentinels(fleet, START_S + 600)
    gaps = [after - before for before, after in pairwise(looks)]
    return sum(gaps) / len(gaps)


def test_looks_are_short_and_the_fleet_stays_where_it_is() -> None:
    fleet = blind_for(1200)
    looks = sentinels(fleet, START_S + 600)
    assert len(looks) >= 5
    assert fleet.state.sentinel_lasted_s <= 15
    for at_s in looks:
        ended_s = next(t for t, d in fleet.decisions if t > at_s and d.state.probe is None)
        assert ended_s - at_s <= 15
    assert not [
        at_s
        for at_s, document in fleet.writes
        if at_s > START_S + 600 and depth_at(document.schedule, 4) > 0
    ]


def test_looks_cost_the_fleet_next_to_nothing() -> None:
    """Depth 1 loses 5 % there."""
    fleet = blind_for(3600)
    looked = [
        end_s - at_s
        for (at_s, document), (end_s, _) in pairwise(fleet.writes)
        if document.pods and at_s > START_S + 600
    ]
    assert looked
    assert sum(looked) / 3600 * 0.05 <= 0.005


def test_dear_looks_are_seldom() -> None:
    cheap, dear = blind_for(3600), blind_for(3600, hardware=Hardware(per_token_s=0.004))
    assert mean_gap_s(dear) > 2 * mean_gap_s(cheap)


def test_many_pods_look_more_often_than_one() -> None:
    dear = Hardware(per_token_s=0.002)
    one, many = (blind_for(2400, replicas=n, hardware=dear) for n in (1, 4))
    assert mean_gap_s(many) < 0.7 * mean_gap_s(one)


@pytest.mark.parametrize("seed", range(1, 6))
def test_one_pod_is_back_at_a_deep_depth_within_two_minutes_of_traffic_changing(seed: int) -> None:
    fleet = Fleet(NO_LEAST, 1, seed, acceptance=HOPELESS, tick_s=0.5).run(900)
    assert fleet.depth() == 0
    fleet.acceptance = EASY
    fleet.run(120)
    assert fleet.depth() >= 5


def test_after_a_look_that_finds_drafts_accepted_the_next_step_follows_at_once() -> None:
    """The depth that was looked at is not left alone as after a probe."""
    fleet = blind_for(300)
    fleet.acceptance, since_s = EASY, fleet.now_s
    while not any(d.action is Action.MOVE for t, d in fleet.decisions if t > since_s):
        fleet.run(1)
        assert fleet.now_s - since_s < 600
    last_look_s = sentinels(fleet, since_s)[-1]
    acted = [
        (at_s, d.action)
        for at_s, d in fleet.decisions
        if at_s > last_look_s and d.action in {Action.PROBE, Action.MOVE}
    ]
    assert acted[0][0] - last_look_s <= 15


def test_probing_switched_off_stops_the_looks() -> None:
    fleet = blind_for(0)
    fleet.change(probing=False)
    since_s = fleet.now_s
    fleet.run(1800)
    assert not [d for t, d in fleet.decisions if t > since_s and d.action is Action.PROBE]
    assert any(d.reason is Reason.PROBING_DISABLED for t, d in fleet.decisions if t > since_s)
