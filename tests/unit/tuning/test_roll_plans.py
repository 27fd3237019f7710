"""What a canary tries next, and what of it all pods get."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from fathom.core.depth import depth_at
from fathom.tuning.buckets import schedule_of
from fathom.tuning.comparison import Comparison, Contrast, Hour
from fathom.tuning.load import HourLoad, Load
from fathom.tuning.roll_plans import (
    BETTER_Z,
    EXPLORE_GAIN,
    LEAST_GAIN,
    Plan,
    best_plan,
    next_canary,
    runs,
    shown,
)
from fathom.tuning.rolls import Canary
from fathom.tuning.situation import Situation, assess
from fathom.tuning.slo import Slo
from fathom.tuning.step_time import StepTimes
from fathom.tuning.survival import Survival
from fathom.tuning.tail import Tail
from fathom.tuning.traffic import Traffic
from fathom.tuning.value import Evidence, Gain
from unit.tuning.plant import SETTINGS, START_S, Fleet

BUCKETS = (1, 2, 4, 8, 16)
IN_FORCE = 3
WINDOWS = 1000.0


@dataclass(frozen=True)
class Predicted(Evidence):
    """As if the tables predicted these values (log), per bucket and depth; all others alike."""

    values: Mapping[tuple[int, int], float] = field(default_factory=dict)
    sd: float = 1e-6
    tpot: Mapping[int, float] = field(default_factory=dict)
    """By depth, in seconds."""

    def gain(self, bucket: int, to: int, start: int) -> Gain | None:
        ahead = self.values.get((bucket, to), 0.0) - self.values.get((bucket, start), 0.0)
        return Gain(ahead, self.sd, step_time_measured=False, survival_measured=False)

    def tpot_seconds(self, bucket: int, depth: int) -> float | None:
        del bucket
        return self.tpot.get(depth)


def predicted(
    values: Mapping[tuple[int, int], float] | None = None,
    *,
    sd: float = 1e-6,
    tpot: Mapping[int, float] | None = None,
) -> Evidence:
    return Predicted(
        Survival(), StepTimes(), Traffic(), START_S, 7, values=values or {}, sd=sd, tpot=tpot or {}
    )


ITSELF = Contrast(0, 0, 0, 600 * WINDOWS, 600**2 * WINDOWS)
"""A pod that is known to be like the others."""


NOTHING_ACCEPTED = tuple(Hour(hour, (1000.0,) * 8, (0.0,) * 8) for hour in range(24))
"""A whole day in which all depths had as many tokens: what differs is the step time."""


def contrast(bucket: int, depth: int, mean: float, sd: float) -> Contrast:
    """What many even windows have shown, so that the mean has this error."""
    between = sd**2 * WINDOWS * (WINDOWS + 3) / 2 - 3 * 0.03**2
    weight = 600 * WINDOWS
    return Contrast(
        bucket, 3, depth, weight, 600**2 * WINDOWS, mean, max(0.0, between) * weight / WINDOWS, 1
    )


def situation(
    *contrasts: Contrast,
    load: Mapping[int, float] | None = None,
    evidence: Evidence | None = None,
    depths: Mapping[int, int] | None = None,
    least: int = 1,
    most: int = 7,
    slo: Slo | None = None,
) -> Situation:
    """A fleet at depth 3 whose canary has shown so much, with load at batch 4 unless told."""
    load = load or {4: 1.0}
    settings = replace(SETTINGS, by_rollout=True, min_tokens=least, max_tokens=most)
    fleet = Fleet(settings=settings)
    fleet.step()
    assert fleet.document is not None
    given = assess(fleet.snapshot(), fleet.document)
    parts = tuple((bucket, 3, 1000 * share) for bucket, share in load.items())
    comparison = Comparison("pod-1", ITSELF, contrasts, parts, NOTHING_ACCEPTED, at_s=START_S)
    hours = (HourLoad(0, tuple((b, 1000 * share) for b, share in load.items()), 1000.0),)
    state = replace(
        given.state,
        rolls=replace(given.state.rolls, comparison=comparison),
        load=Load(hours, START_S, START_S),
    )
    policy = replace(
        given.policy,
        evidence=evidence or predicted(),
        depths=dict.fromkeys(BUCKETS, IN_FORCE) | dict(depths or {}),
        slo=slo,
    )
    return replace(given, state=state, policy=policy)


def wanted(given: Situation) -> Mapping[int, int]:
    return best_plan(given).depths


def tried(given: Situation) -> Mapping[int, int]:
    plan = next_canary(given)
    assert plan is not None
    return plan.depths


# What is rolled out


def test_nothing_is_rolled_out_that_is_only_predicted() -> None:
    plan = best_plan(situation(evidence=predicted({(4, 7): 0.5}, sd=0.1)))
    assert plan.depths == dict.fromkeys(BUCKETS, IN_FORCE)
    assert plan.gain.mean == 0
    assert plan.certainty == 0


@pytest.mark.parametrize(("errors", "taken"), [(0.9, False), (1.1, True)])
def test_a_depth_must_be_ahead_by_a_standard_error(errors: float, taken: bool) -> None:  # noqa: FBT001
    level = shown(situation(contrast(4, 5, 0.0, 0.03)), 4, 5)
    assert level is not None
    given = situation(contrast(4, 5, errors * BETTER_Z * level.sd, 0.03))
    assert (wanted(given)[4] == 5) is taken


def test_what_is_more_certain_is_taken_before_what_looks_larger() -> None:
    given = situation(contrast(4, 7, 0.06, 0.055), contrast(4, 5, 0.04, 0.01))
    assert wanted(given)[4] == 5


def test_what_was_slower_is_not_taken() -> None:
    given = situation(contrast(4, 5, -0.04, 0.01), contrast(4, 1, -0.2, 0.01))
    assert wanted(given)[4] == IN_FORCE


def test_buckets_gain_by_their_share_of_the_load_and_their_errors_add_up() -> None:
    contrasts = contrast(4, 5, 0.08, 0.01), contrast(8, 1, 0.04, 0.02)
    given = situation(*contrasts, load={4: 0.75, 8: 0.25})
    plan, at_4, at_8 = best_plan(given), shown(given, 4, 5), shown(given, 8, 1)
    assert at_4 is not None
    assert at_8 is not None
    assert (plan.depths[4], plan.depths[8]) == (5, 1)
    assert plan.gain.mean == pytest.approx(0.75 * 0.08 + 0.25 * 0.04)
    assert plan.gain.sd == pytest.approx(0.75 * at_4.sd + 0.25 * at_8.sd)


def test_a_bucket_where_nothing_is_better_gains_nothing() -> None:
    given = situation(contrast(4, 5, 0.08, 0.01), load={4: 0.5, 8: 0.5})
    assert best_plan(given).gain.mean == pytest.approx(0.04)
    assert wanted(given)[8] == IN_FORCE


@pytest.mark.parametrize(("mean", "certainty"), [(0.0, 0.5), (0.02, 0.841), (-0.02, 0.159)])
def test_certainty_is_the_chance_that_there_is_a_gain(mean: float, certainty: float) -> None:
    gain = Gain(mean, 0.02, step_time_measured=True, survival_measured=True)
    assert Plan({}, gain).certainty == pytest.approx(certainty, abs=1e-3)


def test_bounds_that_became_narrower_hold_for_what_was_shown_before() -> None:
    contrasts = contrast(4, 7, 0.3, 0.01), contrast(4, 5, 0.04, 0.01), contrast(4, 1, 0.2, 0.01)
    assert wanted(situation(*contrasts))[4] == 7
    assert wanted(situation(*contrasts, least=2, most=6))[4] == 5


def test_load_in_batches_that_the_engine_no_longer_has_decides_nothing() -> None:
    load, evidence = {4: 0.5, 64: 0.5}, predicted({(64, 5): 0.3})
    assert next_canary(situation(load=load, evidence=evidence)) is None
    shown_there = situation(contrast(64, 5, 0.3, 0.01), load=load, evidence=evidence)
    assert wanted(shown_there) == dict.fromkeys(BUCKETS, IN_FORCE)


def test_under_an_slo_what_misses_it_is_not_rolled_out_however_fast() -> None:
    slo = Slo(0.05, Tail())
    contrasts = contrast(4, 5, 0.08, 0.01), contrast(4, 7, 0.3, 0.01)
    evidence = predicted({(4, 5): 0.08, (4, 7): 0.3}, tpot={3: 0.04, 5: 0.04, 7: 0.06})
    assert wanted(situation(*contrasts, evidence=evidence))[4] == 7
    assert wanted(situation(*contrasts, evidence=evidence, slo=slo))[4] == 5


# Batches that nobody has seen


def test_larger_batches_follow_where_depth_became_shallower() -> None:
    depths = wanted(situation(contrast(4, 1, 0.1, 0.01)))
    assert depths == {1: 3, 2: 3, 4: 1, 8: 1, 16: 1}


def test_larger_batches_do_not_get_deeper() -> None:
    depths = wanted(situation(contrast(4, 7, 0.1, 0.01)))
    assert depths == {1: 3, 2: 3, 4: 7, 8: 3, 16: 3}


def test_larger_batches_that_are_shallower_already_stay_so() -> None:
    given = situation(contrast(4, 2, 0.1, 0.01), depths={8: 1, 16: 1})
    assert wanted(given) == {1: 3, 2: 3, 4: 2, 8: 1, 16: 1}


def test_batches_follow_where_the_prediction_is_certain_and_only_there() -> None:
    values = {(1, 7): 0.2, (8, 7): 0.2, (16, 7): -0.2, (2, 7): 0.0}
    sure = situation(contrast(4, 7, 0.1, 0.01), evidence=predicted(values, sd=0.1))
    unsure = situation(contrast(4, 7, 0.1, 0.01), evidence=predicted(values, sd=0.2))
    assert wanted(sure) == {1: 7, 2: 3, 4: 7, 8: 7, 16: 3}
    assert wanted(unsure) == {1: 3, 2: 3, 4: 7, 8: 3, 16: 3}


def test_batches_between_two_that_were_seen_follow_only_where_it_is_certain() -> None:
    given = situation(contrast(2, 1, 0.1, 0.01), contrast(16, 1, 0.1, 0.01), load={2: 0.5, 16: 0.5})
    assert wanted(given) == {1: 3, 2: 1, 4: 3, 8: 3, 16: 1}


def test_a_canary_treats_unseen_batches_alike() -> None:
    given = situation(evidence=predicted({(4, 1): 0.1}))
    assert tried(given) == {1: 3, 2: 3, 4: 1, 8: 1, 16: 1}


# What is tried


def test_the_depth_is_tried_that_could_gain_most() -> None:
    assert tried(situation(evidence=predicted({(4, 5): 0.05, (4, 6): 0.04})))[4] == 5


def test_what_a_canary_is_worth_is_the_expected_improvement_by_load() -> None:
    evidence = predicted({(4, 5): 0.05, (8, 2): 0.03})
    plan = next_canary(situation(load={4: 0.75, 8: 0.25}, evidence=evidence))
    assert plan is not None
    assert (plan.depths[4], plan.depths[8]) == (5, 2)
    assert plan.gain.mean == pytest.approx(0.75 * 0.05 + 0.25 * 0.03)


def test_not_knowing_is_worth_a_canary() -> None:
    assert next_canary(situation(evidence=predicted(sd=0.0))) is None
    unsure = next_canary(situation(evidence=predicted(sd=0.1)))
    assert unsure is not None
    assert unsure.gain.mean == pytest.approx(0.04, abs=0.001)


def test_what_was_shown_is_not_tried_again() -> None:
    evidence = predicted({(4, 5): 0.3, (4, 6): 0.02})
    given = situation(contrast(4, 5, -0.1, 0.01), evidence=evidence)
    assert tried(given)[4] == 6


def test_what_counts_is_what_could_be_gained_beyond_the_best_that_was_shown() -> None:
    evidence = predicted({(4, 5): 0.08, (4, 6): 0.08 + LEAST_GAIN / 2, (4, 7): 0.11})
    fresh = situation(contrast(4, 5, 0.08, 0.01), evidence=evidence)
    plan = next_canary(fresh)
    assert plan is not None
    assert plan.depths[4] == 7
    assert plan.gain.mean == pytest.approx(0.03)

    done = situation(contrast(4, 5, 0.08, 0.01), contrast(4, 7, 0.0, 0.01), evidence=evidence)
    assert next_canary(done) is None


def test_where_nothing_could_gain_more_the_canary_runs_the_best_that_was_shown() -> None:
    evidence = predicted({(4, 5): 0.08, (8, 1): 0.1, (8, 7): -1.0})
    given = situation(contrast(4, 5, 0.08, 0.01), load={4: 0.5, 8: 0.5}, evidence=evidence)
    assert (tried(given)[4], tried(given)[8]) == (5, 1)


def test_where_nothing_was_shown_and_nothing_could_gain_depth_stays() -> None:
    given = situation(load={4: 0.5, 8: 0.5}, evidence=predicted({(8, 1): 0.1}))
    assert (tried(given)[4], tried(given)[8]) == (IN_FORCE, 1)


def test_too_little_to_gain_is_no_reason_for_a_canary() -> None:
    def plan(gain: float, share: float = 1.0) -> Plan | None:
        load = {4: share, 8: 1 - share}
        return next_canary(situation(load=load, evidence=predicted({(4, 5): gain})))

    assert plan(0.9 * LEAST_GAIN) is None
    assert plan(1.1 * LEAST_GAIN) is not None
    # At a batch that is seldom seen it takes more.
    assert plan(1.1 * LEAST_GAIN, share=0.5) is None


def test_a_bucket_with_too_little_to_gain_rides_along_at_its_own_depth() -> None:
    evidence = predicted({(4, 5): 0.1, (8, 5): 0.9 * EXPLORE_GAIN})
    given = situation(load={4: 0.5, 8: 0.5}, evidence=evidence)
    assert (tried(given)[4], tried(given)[8]) == (5, IN_FORCE)


@pytest.mark.parametrize(("least", "most"), [(1, 7), (2, 4), (3, 3), (0, 3)])
def test_nothing_is_tried_outside_the_bounds(least: int, most: int) -> None:
    evidence = predicted({(b, d): 0.1 * abs(d - IN_FORCE) for b in BUCKETS for d in range(9)})
    plan = next_canary(situation(least=least, most=most, evidence=evidence))
    if least == most:
        assert plan is None
    else:
        assert plan is not None
        assert all(least <= depth <= most for depth in plan.depths.values())
        assert plan.depths[4] in (least, most)


def test_a_plan_is_a_schedule() -> None:
    given = situation(contrast(4, 1, 0.1, 0.01))
    schedule = schedule_of(wanted(given), 16)
    assert [depth_at(schedule, batch) for batch in (1, 2, 3, 4, 5, 16)] == [3, 3, 1, 1, 1, 1]


# Whether it is tried already


def test_a_canary_runs_a_plan_if_it_does_where_there_is_load() -> None:
    given = situation(load={4: 0.5, 8: 0.5})
    plan = Plan({1: 3, 2: 3, 4: 5, 8: 1, 16: 1}, best_plan(given).gain)

    def canary(**depths: int) -> Canary:
        changed = {int(bucket.removeprefix("at_")): depth for bucket, depth in depths.items()}
        return Canary("pod-1", tuple({**plan.depths, **changed}.items()), START_S)

    assert runs(given, canary(), plan)
    assert runs(given, canary(at_1=7, at_16=7), plan)
    assert not runs(given, canary(at_8=2), plan)


def test_a_canary_runs_a_plan_though_there_was_load_at_batches_it_does_not_have() -> None:
    given = situation(load={4: 0.5, 64: 0.5})
    plan = best_plan(given)
    assert runs(given, Canary("pod-1", tuple(plan.depths.items()), START_S), plan)


def test_a_canary_of_a_larger_engine_can_still_be_asked_what_it_runs() -> None:
    given = situation(load={4: 0.5, 64: 0.5})
    plan = best_plan(given)
    canary = Canary("pod-1", (*plan.depths.items(), (64, 1)), START_S)
    assert runs(given, canary, plan)
