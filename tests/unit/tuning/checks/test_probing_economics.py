"""What probes are worth, what they may cost, and that a fleet without drafts is never blind."""

from dataclasses import replace
from itertools import pairwise
from random import Random
from statistics import fmean

import pytest

from fathom.api.conditions import Reason
from fathom.engine.depth import depth_at, flat
from fathom.tuning.assessment import assess
from fathom.tuning.checks.probing import start_probe
from fathom.tuning.context import Situation
from fathom.tuning.interface import Action, TuningDecision
from fathom.tuning.learned_state import Probe, Trial
from fathom.tuning.policy.experiments import experiments, worth
from fathom.tuning.policy.option import DepthOption, ProbePlan
from fathom.tuning.policy.policy import Policy
from fathom.tuning.policy.value import Gain
from unit.tuning.plant import (
    EASY,
    HARD,
    MIDDLE,
    SETTINGS,
    START_S,
    WINDOW_30,
    Fleet,
    Hardware,
    hours_long,
)

QUARTER_S, HALF_HOUR_S, HOUR_S = 900.0, 1800.0, 3600.0
DEAR_DRAFT = Hardware(per_token_s=0.004)
NO_LEAST = replace(WINDOW_30, min_tokens=0)
NO_PROBES = replace(SETTINGS, probing=False)
HOPELESS = (0.05,) * 16
RATHER_EASY = (0.82,) * 16
SOMEWHAT_HARD = (0.55,) * 16
"""Hardly anything is better than the user's own depth."""
FLAT_OPTIMUM = (0.8,) * 16
"""Depths 5 and 6 are worth the same: there is always something left to tell."""


def gain(mean: float, sd: float, *, measured: bool = True) -> Gain:
    return Gain(mean=mean, sd=sd, step_time_measured=measured, survival_measured=True)


def unprobed(fleet: Fleet) -> Situation:
    """What a fleet knows after 31 s without a probe; from now on it may probe."""
    fleet.run(31)
    assert fleet.document is not None
    given = assess(fleet.snapshot(), fleet.document)
    settings = replace(given.settings, probing=True)
    return replace(given, snapshot=replace(given.snapshot, settings=settings))


# The value of knowing


@pytest.mark.parametrize("mean", [-0.05, 0.0, 0.02, 0.2])
@pytest.mark.parametrize("sd", [0.005, 0.03, 0.2])
def test_expected_improvement_less_expected_loss_is_the_mean(mean: float, sd: float) -> None:
    each = gain(mean, sd)
    assert each.expected_improvement >= 0
    assert each.expected_loss >= 0
    assert each.expected_improvement - each.expected_loss == pytest.approx(mean)


def test_knowing_a_gain_is_worth_what_is_then_taken_more_on_average() -> None:
    """As simulated: draw the truth, and act on it if it is enough."""
    random, least = Random(1), 0.01
    for mean in (-0.02, 0.03):
        taken = [max(0.0, random.gauss(mean, 0.05) - least) for _ in range(40_000)]
        more = fmean(taken) - max(0.0, mean - least)
        assert gain(mean, 0.05).worth_knowing(least) == pytest.approx(more, abs=5e-4)


def test_knowing_is_worth_nothing_where_it_changes_nothing() -> None:
    assert gain(0.05, 0.0).worth_knowing(0.01) == 0.0
    assert gain(0.5, 0.02).worth_knowing(0.01) == pytest.approx(0.0, abs=1e-9)
    assert gain(-0.5, 0.02).worth_knowing(0.01) == pytest.approx(0.0, abs=1e-9)


def test_what_was_never_measured_is_not_taken_without_measuring() -> None:
    assert gain(0.5, 0.02, measured=False).worth_knowing(0.01) > 0.4


# What a probe is worth to the policy


@pytest.fixture(scope="module")
def policy() -> Policy:
    fleet = Fleet(acceptance=MIDDLE).run(240)
    assert fleet.document is not None
    return assess(fleet.snapshot(), fleet.document).policy


def option(policy: Policy, each: Gain) -> DepthOption:
    start = policy.depths[4]
    return DepthOption(bucket=4, start=start, to=start + 1, gain=each, share=1.0)


def test_a_probe_that_teaches_nothing_is_not_made(policy: Policy) -> None:
    probe = ProbePlan(seconds=15.0, pods=8)
    assert worth(policy, option(policy, gain(-0.05, 0.005)), probe) < 0
    assert worth(policy, option(policy, gain(-0.5, 0.05)), probe) < 0
    assert worth(policy, option(policy, gain(0.0, 0.05)), probe) > 0


def test_what_a_probe_teaches_is_worth_more_to_more_pods(policy: Policy) -> None:
    unsure = option(policy, gain(-0.02, 0.012))
    worths = [worth(policy, unsure, ProbePlan(15.0, pods)) for pods in (1, 2, 8, 64)]
    assert worths == sorted(worths)
    assert worths[0] < 0 < worths[-1]


def test_the_longer_a_losing_probe_takes_the_less_it_is_worth(policy: Policy) -> None:
    losing = option(policy, gain(-0.1, 0.03))
    worths = [worth(policy, losing, ProbePlan(seconds, 8)) for seconds in (15, 60, 600)]
    assert worths == sorted(worths, reverse=True)


@pytest.mark.parametrize(
    ("acceptance", "rests"),
    [(EASY, 0.0), (RATHER_EASY, 4.0), (MIDDLE, 4.0)],
    ids=["faster beyond doubt", "ten percent at stake", "much at stake"],
)
def test_the_more_is_at_stake_the_shorter_the_rest_after_a_probe(
    acceptance: tuple[float, ...], rests: float
) -> None:
    """One pod. A probe of 20 s has just ended, and its rest is a multiple of that."""
    given = unprobed(Fleet(acceptance=acceptance, replicas=1, settings=NO_PROBES))

    def decided_after(seconds: float) -> TuningDecision:
        ended = replace(
            given.state, probe_ended_at_s=given.now_s - seconds, probe_lasted_s=20.0, trial=None
        )
        decision = start_probe(given.with_state(ended))
        assert decision is not None
        return decision

    if rests:
        waits = decided_after(20 * rests - 1)
        assert waits.action is Action.HOLD
        assert "is to be tried first" in waits.message
        assert waits.message.endswith(
            "No probe for now, as probes have had their share of the traffic."
        )
    assert decided_after(20 * rests + 1).action is Action.PROBE


def sure(policy: Policy) -> set[int]:
    """Depths that are tried beyond the budget."""
    plan = ProbePlan(15.0, 1)
    return {each.to for each in experiments(policy, plan, sure=True) if each.bucket == 4}


def test_only_what_was_never_measured_and_would_be_moved_to_is_tried_beyond_the_budget() -> None:
    fleet = Fleet(acceptance=EASY, replicas=1, settings=replace(SETTINGS, probing=False), jitter=0)
    fleet.run(31)
    assert fleet.document is not None
    predicted = assess(fleet.snapshot(), fleet.document).policy
    assert sure(predicted) == {5}
    asks_for_more = replace(predicted, bounds=replace(predicted.bounds, min_gain=0.5))
    assert sure(asks_for_more) == set()

    fleet.change(probing=True)
    fleet.run(200)
    known = assess(fleet.snapshot(), fleet.document).policy
    back = replace(known, depths={**known.depths, 4: 3}, visits=())
    measured = back.evidence.gain(4, 7, 3)
    assert measured is not None
    assert measured.lower() > 0
    assert 7 not in sure(back)


def test_the_only_pod_that_a_canary_is_compared_with_tries_nothing() -> None:
    given = unprobed(Fleet(acceptance=EASY, replicas=1, settings=NO_PROBES))

    tried = start_probe(given)
    waits = start_probe(replace(given, snapshot=replace(given.snapshot, compared=True)))

    assert tried is not None
    assert tried.action is Action.PROBE
    assert waits is not None
    assert waits.action is Action.HOLD
    assert waits.message.endswith("No probe while a canary is compared with the only other pod.")


@pytest.mark.parametrize(
    ("acceptance", "tries"), [(EASY, True), (MIDDLE, True), (SOMEWHAT_HARD, False)]
)
def test_only_if_much_is_at_stake_is_anything_tried_before_a_move_is_judged(
    acceptance: tuple[float, ...], *, tries: bool
) -> None:
    given = unprobed(Fleet(acceptance=acceptance, settings=NO_PROBES))
    moved = Trial(changes=(), expected_gain=0.1, at_s=given.now_s)
    judging = given.with_state(replace(given.state, trial=moved))
    begins = (start_probe(each) for each in (given, judging))
    assert [each is not None and each.action is Action.PROBE for each in begins] == [True, tries]


# Over an hour, once warm


def warm_hour(replicas: int, acceptance: tuple[float, ...], seed: int = 1) -> tuple[Fleet, float]:
    """A fleet after half an hour and another whole one; and where that one begins."""
    fleet = hours_long(replicas=replicas, acceptance=acceptance, seed=seed, tick_s=2.0).run(1800)
    since_s = fleet.now_s
    return fleet.run(HOUR_S), since_s


def probed_share(fleet: Fleet, since_s: float) -> float:
    """Pod-seconds under an override, of all."""
    starts = [at_s for at_s, _ in fleet.writes]
    probed = sum(
        max(0.0, end_s - max(at_s, since_s)) * len(document.pods)
        for (at_s, document), end_s in zip(fleet.writes, [*starts[1:], fleet.now_s], strict=True)
    )
    return probed / (fleet.now_s - since_s) / fleet.replicas


def probes(fleet: Fleet, since_s: float) -> int:
    return sum(at_s > since_s and d.action is Action.PROBE for at_s, d in fleet.decisions)


@pytest.mark.parametrize("replicas", [1, 2, 8])
@pytest.mark.parametrize("acceptance", [EASY, MIDDLE, FLAT_OPTIMUM], ids=["easy", "middle", "flat"])
def test_probes_take_no_more_than_their_share_of_the_traffic(
    acceptance: tuple[float, ...], replicas: int
) -> None:
    one_more = 20 / HOUR_S / replicas  # an hour may begin with a probe and end with one
    assert probed_share(*warm_hour(replicas, acceptance)) <= 0.02 + one_more


def test_one_pod_probes_less_than_eight() -> None:
    """What is learnt serves eight pods, and costs one."""
    few, many = (probes(*warm_hour(replicas, FLAT_OPTIMUM)) for replicas in (1, 8))
    assert few < many


@pytest.mark.parametrize("acceptance", [EASY, HARD], ids=["easy", "hard"])
def test_where_the_best_is_plain_its_neighbours_and_the_users_own_depth_are_looked_at_again(
    acceptance: tuple[float, ...],
) -> None:
    """In each of three buckets, the user's own every half hour and a neighbour in an hour."""
    fleet, since_s = warm_hour(2, acceptance)
    tried = {
        depth_at(schedule, fleet.concurrency)
        for at_s, document in fleet.writes
        for schedule in document.pods.values()
        if at_s > since_s
    }
    best = fleet.depth()
    assert tried <= {SETTINGS.tokens, best - 1, best, best + 1}
    assert probes(fleet, since_s) <= 3 * (HOUR_S / HALF_HOUR_S + 1) + 1


def looks_at(fleet: Fleet, depth: int, batch: int) -> int:
    """How many probes tried a depth at a batch."""
    overridden = [
        any(depth_at(schedule, batch) == depth for schedule in document.pods.values())
        for _, document in fleet.writes
    ]
    return sum(now and not before for before, now in pairwise([False, *overridden]))


@pytest.mark.parametrize(("tokens", "looks"), [(7, 1), (3, 0)], ids=["far away", "near"])
def test_the_shallowest_is_looked_at_once_if_a_cliff_could_make_it_better(
    tokens: int, looks: int
) -> None:
    """At 3 it would save two of four tokens at most, which is less than it accepts fewer."""
    settings = replace(WINDOW_30, tokens=tokens, min_tokens=1)
    fleet = hours_long(settings=settings, acceptance=EASY, concurrency=8, jitter=0).run(2 * HOUR_S)
    assert fleet.depth() == 7
    assert looks_at(fleet, 1, 8) == looks


def test_with_probing_disabled_nothing_is_said_to_be_better_that_is_not_expected_to_be() -> None:
    fleet = hours_long(settings=replace(WINDOW_30, tokens=7, probing=False), acceptance=EASY)
    fleet.pods[0].pinned_depth = 6
    fleet.run(HALF_HOUR_S)
    assert fleet.decisions[-1][1].reason is Reason.AT_BEST


# Depth 0


@pytest.fixture(scope="module")
def undrafted() -> Fleet:
    """Two hours at depth 0."""
    fleet = hours_long(settings=NO_LEAST, acceptance=HOPELESS, hardware=DEAR_DRAFT, tick_s=2.0).run(
        1800
    )
    assert fleet.depth() == 0
    return fleet.run(2 * HOUR_S)


def test_a_fleet_that_drafts_nothing_looks_at_drafts_now_and_then(
    undrafted: Fleet,
) -> None:
    assert undrafted.depth() == 0
    looks = [at_s for at_s, d in undrafted.decisions if d.action is Action.PROBE][1:]
    gaps = [after - before for before, after in pairwise(looks)]

    assert len(looks) >= 2 * HOUR_S / QUARTER_S
    assert max(gaps) <= QUARTER_S + 4 * WINDOW_30.window_seconds
    assert all(
        any(each.depth > 0 for each in schedule)
        for at_s, document in undrafted.writes
        for schedule in document.pods.values()
        if at_s > START_S + 1800
    )


def test_when_acceptance_returns_so_does_depth(undrafted: Fleet) -> None:
    since_s = undrafted.now_s
    undrafted.acceptance = EASY
    while undrafted.depth() == 0 and undrafted.now_s < since_s + HOUR_S:
        undrafted.run(30)

    assert undrafted.now_s - since_s <= QUARTER_S + 120
    undrafted.run(900)
    assert undrafted.shortfall() <= 0.03


def test_depth_0_is_never_gone_to_where_min_tokens_forbids_it() -> None:
    fleet = hours_long(acceptance=HOPELESS, hardware=DEAR_DRAFT).run(HOUR_S)
    assert fleet.depth() == 1
    assert all(
        each.depth >= 1
        for _, document in fleet.writes
        for schedule in (document.schedule, *document.pods.values())
        for each in schedule
    )


def test_where_the_probing_pod_never_was_the_same_may_be_tried_at_once() -> None:
    """Its batch was 4 all the time, though the fleet's may be 16 as well."""
    fleet = Fleet(acceptance=EASY, jitter=0).run(240)
    assert fleet.document is not None
    known = [each for each in fleet.state.visits if each.bucket == 4]
    probe = Probe(
        pod="pod-0", depths=((4, 2), (16, 2)), started_at_s=fleet.now_s, in_force_at_s=fleet.now_s
    )
    pods = {"pod-0": flat(2, SETTINGS.max_batch)}
    fleet.document = replace(fleet.document, pods=pods)
    fleet.pods[0].schedule = pods["pod-0"]
    fleet.state = replace(fleet.state, probe=probe, visits=tuple(known))
    fleet.wake_at_s = fleet.now_s
    fleet.run(30)
    tried = {(each.bucket, each.depth) for each in fleet.state.visits}
    assert (4, 2) in tried
    assert (16, 2) not in tried
