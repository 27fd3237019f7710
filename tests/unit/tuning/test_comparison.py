"""A canary beside the other pods: same time, matched batch, and no credit for easier requests."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import exp, log, log2, sqrt
from random import Random

import pytest

from fathom.core.measurement import (
    Cell,
    CellCounts,
    DraftCell,
    DraftCounts,
    EngineCounts,
    PodDelta,
    StepKind,
)
from fathom.tuning.comparison import (
    HALF_LIFE_S,
    LEAST_BUSY_S,
    LEAST_STEPS,
    MOST_CONTRASTS,
    PARTS,
    WINDOWS_SD,
    Comparison,
    Contrast,
    Hour,
    Position,
)
from fathom.tuning.rolls import Rolls
from fathom.tuning.state import LARGEST_BYTES, TuningState
from fathom.tuning.step_time import Elasticity, StepTimes
from fathom.tuning.value import Gain
from unit.tuning.plant import START_S

CANARY = "pod-9"
OTHERS = ("pod-0", "pod-1", "pod-2")
WINDOW_S, HOUR_S, DAY_S = 600.0, 3600.0, 24 * 3600.0
MIDNIGHT_S = START_S - START_S % DAY_S
BUCKET = 32
FULL, HALF_FULL = 32.0, 17.0
"""Batches in the last and in the first part of the bucket."""
IN_FORCE = {BUCKET: 3}
USUAL = (0.8, 0.6, 0.4, 0.3, 0.2)
"""Share of drafts accepted up to each position."""
UNKNOWN = StepTimes()
STEPS = 10_000.0
"""Of a window: 200 busy seconds."""


def step_times(slope: float) -> StepTimes:
    """A bucket whose steps take so much longer (log) per factor of two in batch."""
    return StepTimes(elasticities=(Elasticity(BUCKET, 1e9, slope * 1e9),))


def counted(
    pod: str,
    depth: int,
    *,
    step_s: float,
    accepted: tuple[float, ...] = USUAL,
    batch: float = FULL,
    steps: float = STEPS,
    at_s: float = MIDNIGHT_S,
) -> PodDelta:
    """One window of one pod."""
    drafts = steps * batch
    length = 1 + sum(accepted[:depth])
    return PodDelta(
        pod,
        at_s - WINDOW_S,
        at_s,
        EngineCounts(),
        {
            Cell(BUCKET, depth, StepKind.DECODE): CellCounts(
                steps, steps * step_s, drafts * length, drafts
            )
        },
        {
            DraftCell(BUCKET, depth): DraftCounts(
                drafts, tuple(drafts * each for each in accepted[:depth])
            )
        }
        if depth
        else {},
    )


EVEN = dict.fromkeys(range(24), 1.0)
"""The same load at every hour."""
STEP_S = 0.02
"""Of the others, at depth 3."""


def step_for(gain: float, depth: int) -> float:
    """Step time at which a depth is so much faster (log) than depth 3, with the usual drafts."""
    return STEP_S * (1 + sum(USUAL[:depth])) / (1 + sum(USUAL[:3])) * exp(-gain)


class Beside:
    """A canary and three others, window by window."""

    def __init__(self, times: StepTimes = UNKNOWN) -> None:
        self.times = times
        self.comparison = Comparison()
        self.now_s = MIDNIGHT_S

    def window(self, canary: PodDelta | None, *others: PodDelta) -> None:
        """One more window, as of now."""
        self.now_s += WINDOW_S
        deltas = [*(() if canary is None else (canary,)), *others]
        self.comparison = self.comparison.updated(
            CANARY,
            [replace(each, from_s=self.now_s - WINDOW_S, to_s=self.now_s) for each in deltas],
            IN_FORCE,
            self.times,
        )

    def run(
        self,
        windows: int,
        canary: PodDelta | None,
        *,
        others: Iterable[PodDelta] | None = None,
    ) -> "Beside":
        for _ in range(windows):
            self.window(canary, *(usual() if others is None else others))
        return self

    def gain(self, depth: int = 5) -> Gain:
        gain = self.comparison.gain(BUCKET, depth, IN_FORCE[BUCKET], EVEN)
        assert gain is not None
        return gain


def usual(*, batch: float = FULL, accepted: tuple[float, ...] = USUAL) -> tuple[PodDelta, ...]:
    """The others' window at the depth in force."""
    return tuple(counted(pod, 3, step_s=STEP_S, batch=batch, accepted=accepted) for pod in OTHERS)


def at_five(gain: float, *, batch: float = FULL) -> PodDelta:
    """The canary's window at a depth that gains so much (log)."""
    return counted(CANARY, 5, step_s=step_for(gain, 5), batch=batch)


# What a depth gains


@pytest.mark.parametrize("truth", [0.05, -0.08])
def test_a_depth_gains_what_it_is_faster_beside_the_others(truth: float) -> None:
    gain = Beside().run(20, at_five(log(1 + truth))).gain()
    assert gain.mean == pytest.approx(log(1 + truth), abs=1e-5)
    assert gain.measured


@pytest.mark.parametrize("itself", [-0.04, 0.04], ids=["slow", "fast"])
def test_a_pod_known_at_the_others_depth_is_not_taken_for_its_depth(itself: float) -> None:
    alike = counted(CANARY, 3, step_s=step_for(itself, 3))
    known = Beside().run(40, alike).run(20, at_five(0.05 + itself)).gain()
    unknown = Beside().run(20, at_five(0.05 + itself)).gain()

    assert known.mean == pytest.approx(0.05, abs=0.002)
    assert unknown.mean == pytest.approx(0.05 + itself, abs=1e-5)
    assert known.sd < unknown.sd


def test_a_pod_hardly_known_at_the_others_depth_is_believed_to_be_like_them() -> None:
    """One window says less of a pod than that pods are alike."""
    once = Beside().run(1, counted(CANARY, 3, step_s=step_for(-0.1, 3)))
    assert abs(once.run(20, at_five(0.0)).gain().mean) < 0.03


@pytest.mark.parametrize("of", [1.2, 0.7], ids=["easier requests", "an aged draft"])
@pytest.mark.parametrize("depth", [1, 3, 5])
def test_the_luck_of_a_pods_requests_is_no_merit_of_its_depth(of: float, depth: int) -> None:
    lucky = tuple(of * each for each in USUAL)
    tried = counted(CANARY, depth, step_s=step_for(0.05, depth), accepted=lucky)
    beside = Beside().run(20, tried)
    if depth == IN_FORCE[BUCKET]:
        assert beside.comparison.itself.mean == pytest.approx(0.05, abs=1e-5)
    else:
        assert beside.gain(depth).mean == pytest.approx(0.05, abs=1e-4)


@pytest.mark.parametrize("depth", [0, 1])
def test_a_shallower_canary_is_judged_by_its_own_positions_alone(depth: int) -> None:
    tried = counted(CANARY, depth, step_s=step_for(0.05, depth))
    assert Beside().run(20, tried).gain(depth).mean == pytest.approx(0.05, abs=1e-5)


def test_larger_batches_in_the_same_bucket_are_not_blamed_on_the_depth() -> None:
    slope = 0.3
    larger = slope * (log2(FULL) - log2(HALF_FULL))
    tried = at_five(0.05 - larger, batch=FULL)
    others = usual(batch=HALF_FULL)
    known = Beside(step_times(slope)).run(20, tried, others=others).gain()
    unknown = Beside().run(20, tried, others=others).gain()

    assert known.mean == pytest.approx(0.05, abs=1e-3)
    assert unknown.mean == pytest.approx(0.05 - larger, abs=1e-3)


def test_parts_of_a_bucket_weigh_as_much_as_their_load() -> None:
    beside = Beside().run(30, at_five(0.1))
    beside.run(10, at_five(-0.1, batch=HALF_FULL), others=usual(batch=HALF_FULL))
    assert beside.gain().mean == pytest.approx(0.75 * 0.1 - 0.25 * 0.1, abs=8e-3)


def test_pods_at_another_depth_than_the_one_in_force_are_no_reference() -> None:
    """A pin, say."""
    pinned = replace(counted("pod-7", 1, step_s=10 * STEP_S), pod="pod-7")
    beside = Beside().run(20, at_five(0.05), others=(*usual(), pinned))
    assert beside.gain().mean == pytest.approx(0.05)


# How sure


def test_parts_that_were_not_compared_widen_the_error_the_more_the_further() -> None:
    """The canary has met only large batches; the others serve smaller ones too."""

    def error(elsewhere: float) -> float:
        beside = Beside().run(20, at_five(0.05))
        return beside.run(20, None, others=usual(batch=elsewhere)).gain().sd

    same, near, far = (error(batch) for batch in (FULL, 25.0, HALF_FULL))
    assert same < near < far


def test_the_more_of_the_load_was_not_compared_the_wider_the_error() -> None:
    def error(windows: int) -> float:
        beside = Beside().run(20, at_five(0.05))
        return beside.run(windows, None, others=usual(batch=HALF_FULL)).gain().sd

    errors = [error(windows) for windows in (1, 10, 100)]
    assert errors == sorted(errors)
    assert errors[0] < errors[-1]


def test_how_far_parts_lie_apart_is_learnt_where_both_were_compared() -> None:
    def error(apart: float) -> float:
        beside = Beside()
        for batch, gain in ((FULL, apart), (25.0, 0.0)):
            at_four = counted(CANARY, 4, step_s=step_for(gain, 4), batch=batch)
            beside.run(20, at_four, others=usual(batch=batch))
        return beside.run(20, at_five(0.05)).gain().sd

    assert error(0.4) > 2 * error(0.0)


HARD = tuple(0.2 * each for each in USUAL)
EASY = (0.95, 0.9, 0.85, 0.8, 0.75)


def night_and_day(canary_at: str, *, depth: int = 5) -> Gain:
    """Hard text at night, easy text by day; the canary ran at one of them, or at both."""
    beside = Beside()
    for start_s, when, text in ((0.0, "night", HARD), (12 * HOUR_S, "day", EASY)):
        beside.now_s = MIDNIGHT_S + start_s
        own = counted(CANARY, depth, step_s=STEP_S, accepted=text)
        others = usual(accepted=text)
        beside.run(5, own if canary_at in (when, "both") else None, others=others)
    return beside.gain(depth)


def tokens(text: tuple[float, ...], depth: int) -> float:
    return 1 + sum(text[:depth])


@pytest.mark.parametrize("canary_at", ["night", "day"])
def test_one_hour_tells_what_a_shallower_depth_is_worth_all_day(canary_at: str) -> None:
    """Its step takes as long at every hour; what it accepts is known from the others."""
    day = log(sum(tokens(t, 1) for t in (HARD, EASY)) / sum(tokens(t, 3) for t in (HARD, EASY)))
    gain = night_and_day(canary_at, depth=1)
    assert gain.mean == pytest.approx(day, abs=1e-3)
    assert gain.sd == pytest.approx(night_and_day("both", depth=1).sd, abs=5e-3)


def test_a_deeper_depth_is_worth_the_tokens_of_all_hours_together() -> None:
    day = log(sum(tokens(t, 5) for t in (HARD, EASY)) / sum(tokens(t, 3) for t in (HARD, EASY)))
    assert night_and_day("day").mean == pytest.approx(day, abs=0.01)


def test_deeper_positions_in_hours_that_were_not_compared_widen_the_error() -> None:
    assert night_and_day("night").sd > night_and_day("both").sd + 0.005


def test_the_more_a_bucket_is_used_at_an_hour_the_more_it_counts() -> None:
    beside = Beside()
    for hour, text in ((0, HARD), (12, EASY)):
        beside.now_s = MIDNIGHT_S + hour * HOUR_S
        beside.run(5, counted(CANARY, 1, step_s=STEP_S, accepted=text), others=usual(accepted=text))

    def gain(busy: Mapping[int, float]) -> float:
        found = beside.comparison.gain(BUCKET, 1, IN_FORCE[BUCKET], busy)
        assert found is not None
        return found.mean

    at_night, by_day = gain({0: 1.0}), gain({12: 1.0})
    assert at_night == pytest.approx(log(tokens(HARD, 1) / tokens(HARD, 3)), abs=1e-3)
    assert by_day == pytest.approx(log(tokens(EASY, 1) / tokens(EASY, 3)), abs=1e-3)
    assert by_day < gain({0: 1.0, 12: 1.0}) < at_night


def test_hours_of_which_nothing_is_known_widen_the_error_until_a_day_was_seen() -> None:
    errors = []
    for hours in (1, 12, 24):
        beside = Beside().run(12, at_five(0.05))
        beside.run(6 * (hours - 1), None)
        errors.append(beside.gain().sd)
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > errors[-1] + 0.01


def test_what_an_hour_showed_counts_for_little_once_it_came_again_with_other_text() -> None:
    beside = Beside().run(5, counted(CANARY, 1, step_s=STEP_S), others=usual(accepted=EASY))
    beside.now_s = MIDNIGHT_S + DAY_S
    beside.run(5, counted(CANARY, 1, step_s=STEP_S, accepted=HARD), others=usual(accepted=HARD))
    now = log(tokens(HARD, 1) / tokens(HARD, 3))
    before = log(tokens(EASY, 1) / tokens(EASY, 3))
    assert beside.gain(1).mean == pytest.approx(now, abs=0.4 * (now - before))


def test_where_nothing_is_drafted_the_canary_tells_what_is_accepted() -> None:
    comparison = Comparison()
    for i in range(20):
        deltas = [counted(pod, 0, step_s=STEP_S) for pod in OTHERS]
        deltas.append(counted(CANARY, 3, step_s=1.5 * STEP_S))
        at_s = MIDNIGHT_S + i * WINDOW_S
        shifted = [replace(each, from_s=at_s - WINDOW_S, to_s=at_s) for each in deltas]
        comparison = comparison.updated(CANARY, shifted, {BUCKET: 0}, UNKNOWN)
    gain = comparison.gain(BUCKET, 3, 0, EVEN)
    assert gain is not None
    assert gain.mean == pytest.approx(log(tokens(USUAL, 3) / 1.5), abs=1e-3)


def test_nothing_is_known_where_nothing_was_ever_drafted() -> None:
    contrast = Contrast(BUCKET, 0, 5, 6000.0, 3_600_000.0, 0.1)
    bare = Comparison(CANARY, contrasts=(contrast,), loads=((BUCKET, 0, 6000.0),))
    assert bare.gain(BUCKET, 5, 3, EVEN) is None


@pytest.mark.parametrize("spread", [WINDOWS_SD, 2 * WINDOWS_SD, 0.2])
def test_the_error_shrinks_with_windows_but_no_faster_than_their_root(spread: float) -> None:
    """For windows that differ as expected, or more."""

    def error(windows: int) -> float:
        contrast = Contrast(BUCKET, 0, 5)
        for i in range(windows):
            contrast = contrast.updated((-spread, spread)[i % 2], 20.0, 0)
        return sqrt(contrast.variance)

    errors = [error(windows) for windows in (4, 16, 64)]
    assert errors == sorted(errors, reverse=True)
    assert errors[1] >= errors[0] / 2 - 1e-5
    assert errors[2] >= errors[1] / 2 - 1e-5
    assert errors[2] >= spread / sqrt(64) - 1e-5


def test_windows_that_differ_more_say_less() -> None:
    def error(spread: float) -> float:
        beside, random = Beside(), Random(1)
        for _ in range(40):
            beside.run(1, at_five(random.gauss(0.05, spread)))
        return beside.gain().sd

    errors = [error(spread) for spread in (0.0, 0.05, 0.2)]
    assert errors == sorted(errors)
    assert errors[-1] > 1.5 * errors[0]


def test_one_long_window_is_worth_one_window() -> None:
    even = uneven = Contrast(BUCKET, 0, 5)
    for weight in (20.0,) * 10:
        even = even.updated(0.05, weight, 0)
    for weight in (191.0, *(1.0,) * 9):
        uneven = uneven.updated(0.05, weight, 0)
    assert uneven.weight == even.weight
    assert even.windows == pytest.approx(10)
    assert uneven.windows == pytest.approx(1, abs=0.1)
    assert uneven.variance > even.variance


# What is not compared


def test_nothing_is_known_before_anything_is_compared() -> None:
    assert Comparison().gain(BUCKET, 5, 3, EVEN) is None
    assert Comparison().compared(BUCKET) == ()


def test_a_depth_and_a_bucket_that_were_not_compared_are_not_known() -> None:
    comparison = Beside().run(20, at_five(0.05)).comparison
    assert comparison.compared(BUCKET) == (5,)
    assert comparison.gain(BUCKET, 4, 3, EVEN) is None
    assert comparison.gain(16, 5, 3, EVEN) is None


@pytest.mark.parametrize("few", ["canary", "others"])
def test_windows_with_too_few_steps_are_not_compared(few: str) -> None:
    steps = {"canary": STEPS, "others": STEPS} | {few: LEAST_STEPS - 1}
    canary = counted(CANARY, 5, step_s=1.0, steps=steps["canary"])
    other = counted("pod-0", 3, step_s=1.0, steps=steps["others"])
    assert Beside().run(40, canary, others=[other]).comparison.contrasts == ()


def test_nothing_is_compared_where_the_others_do_not_run_the_depth_in_force() -> None:
    """A roll is not done yet, say."""
    others = [counted(pod, 2, step_s=STEP_S) for pod in OTHERS]
    comparison = Beside().run(20, at_five(0.05), others=others).comparison
    assert comparison.contrasts == ()
    assert comparison.hours == ()


def test_nothing_is_compared_without_the_others() -> None:
    assert Beside().run(20, at_five(0.05), others=()).comparison.contrasts == ()


def test_the_others_depth_is_no_contrast() -> None:
    alike = Beside().run(20, counted(CANARY, 3, step_s=STEP_S)).comparison
    assert alike.contrasts == ()
    assert alike.itself.windows == pytest.approx(20, rel=0.01)


def test_a_depth_counts_as_compared_after_enough_busy_seconds_in_more_than_one_window() -> None:
    assert STEPS * STEP_S > LEAST_BUSY_S
    assert Beside().run(1, at_five(0.05)).comparison.compared(BUCKET) == ()
    assert Beside().run(3, at_five(0.05)).comparison.compared(BUCKET) == (5,)

    short = counted(CANARY, 5, step_s=step_for(0.05, 5), steps=STEPS / 50)
    assert Beside().run(10, short).comparison.compared(BUCKET) == ()
    assert Beside().run(60, short).comparison.compared(BUCKET) == (5,)


# Over time


def test_another_pod_starts_anew() -> None:
    before = Beside().run(20, at_five(0.05)).comparison
    after = before.updated("pod-0", usual(), IN_FORCE, UNKNOWN)
    assert after.pod == "pod-0"
    assert after.gain(BUCKET, 5, 3, EVEN) is None
    assert after.contrasts == ()
    # It is the others that it is compared with: the pod before is not among these windows.
    assert after.itself.windows == pytest.approx(1)


def test_weights_fade() -> None:
    beside = Beside().run(20, at_five(0.05)).run(20, counted(CANARY, 3, step_s=STEP_S))
    before = beside.comparison
    beside.now_s += HALF_LIFE_S - WINDOW_S
    after = beside.run(1, None, others=[counted("pod-0", 3, step_s=STEP_S, steps=1)]).comparison

    (old,), (new,) = before.contrasts, after.contrasts
    assert new.weight == pytest.approx(old.weight / 2, rel=1e-3)
    assert new.mean == old.mean
    assert new.windows == pytest.approx(old.windows, rel=1e-3)
    assert after.itself.weight == pytest.approx(before.itself.weight / 2, rel=1e-3)
    assert [each.drafts for each in after.positions] == pytest.approx(
        [each.drafts / 2 for each in before.positions], rel=1e-2
    )


def test_a_newer_finding_outweighs_what_was_found_weeks_ago() -> None:
    beside = Beside().run(20, at_five(-0.05))
    beside.now_s += 21 * DAY_S
    assert beside.run(20, at_five(0.05)).gain().mean == pytest.approx(0.05, abs=2e-3)


def test_what_was_compared_too_long_ago_is_not_known_any_more() -> None:
    beside = Beside().run(20, at_five(0.05))
    beside.now_s += 30 * DAY_S
    beside.run(1, counted(CANARY, 3, step_s=STEP_S))
    assert beside.comparison.compared(BUCKET) == ()


# Beside other depths in force


def found(itself: float = 0.0, **means: float) -> Comparison:
    """Contrasts with depth 3 in force, by depth: `at_5=0.05`, of a pod that is so fast itself."""
    contrasts = (
        Contrast(BUCKET, 0, int(depth.removeprefix("at_")), 6000.0, 3_600_000.0, mean, 1.0, 0b11)
        for depth, mean in means.items()
    )
    return Comparison(
        CANARY,
        Contrast(0, 0, 0, 6000.0, 3_600_000.0, itself),
        tuple(contrasts),
        ((BUCKET, 0, 6000.0),),
        tuple(Hour(hour, (1000.0,) * 8, (0.0,) * 8) for hour in (0, 1)),
        at_s=MIDNIGHT_S,
    )


def means(of: Comparison) -> Mapping[int, float]:
    return {each.depth: each.mean for each in of.contrasts}


def test_after_a_promotion_what_is_known_is_kept_beside_the_new_depth() -> None:
    rebased = found(at_1=-0.2, at_4=0.04, at_5=0.06).rebased({BUCKET: 3}, {BUCKET: 5})
    assert means(rebased) == pytest.approx({1: -0.26, 3: -0.06, 4: -0.02})
    assert rebased.loads == ((BUCKET, 0, 6000.0),)
    assert [each.hour for each in rebased.hours] == [0, 1]


def test_how_fast_the_pod_is_by_itself_is_in_every_contrast_once() -> None:
    before = found(itself=0.03, at_1=-0.17, at_5=0.09)
    rebased = before.rebased({BUCKET: 3}, {BUCKET: 5})

    def gain(of: Comparison, depth: int, in_force: int) -> float:
        known = of.gain(BUCKET, depth, in_force, EVEN)
        assert known is not None
        return known.mean

    assert rebased.itself == before.itself
    assert gain(rebased, 3, 5) == pytest.approx(-gain(before, 5, 3), abs=1e-5)
    assert gain(rebased, 1, 5) == pytest.approx(gain(before, 1, 3) - gain(before, 5, 3), abs=1e-5)


def test_there_and_back_again_is_what_it_was() -> None:
    before = found(at_1=-0.2, at_4=0.04, at_5=0.06)
    there = before.rebased({BUCKET: 3}, {BUCKET: 5})
    assert means(there.rebased({BUCKET: 5}, {BUCKET: 3})) == pytest.approx(means(before), abs=1e-5)


def test_a_bucket_that_stays_keeps_all_it_knows() -> None:
    before = found(at_1=-0.2, at_5=0.06)
    assert before.rebased({BUCKET: 3}, {BUCKET: 3}).contrasts == before.contrasts


def test_nothing_is_made_up_where_the_new_depth_was_not_compared() -> None:
    rebased = found(at_1=-0.2, at_5=0.06).rebased({BUCKET: 3}, {BUCKET: 4})
    assert rebased.contrasts == ()


def test_parts_are_rebased_each_by_itself() -> None:
    one = found(at_4=0.04, at_5=0.06)
    other_part = tuple(each._replace(part=2, mean=-each.mean) for each in one.contrasts)
    rebased = replace(one, contrasts=(*one.contrasts, *other_part)).rebased(
        {BUCKET: 3}, {BUCKET: 5}
    )
    assert {(each.part, each.depth): each.mean for each in rebased.contrasts} == pytest.approx(
        {(0, 3): -0.06, (0, 4): -0.02, (2, 3): 0.06, (2, 4): 0.02}
    )


# In the state


def full(buckets: int, depths: int) -> Comparison:
    """Every part of so many buckets at so many depths, with long numbers, at every hour."""
    ugly = 1_700_000_000.1234567
    each_hour = range(24)
    return Comparison(
        "p" * 63,
        Contrast(0, 0, 0, 123456.12345678901, ugly, -0.012345678901234567, 12.345678901234567),
        tuple(
            Contrast(
                1 << i, part, depth, 123456.12345678901, ugly, -0.012345678901234567,
                12.345678901234567, (1 << 24) - 1,
            )
            for i in range(buckets)
            for part in range(PARTS)
            for depth in range(depths)
        ),
        tuple((1 << i, part, 123456.1) for i in range(buckets) for part in range(PARTS)),
        tuple(Hour(hour, (98765432.1,) * 8, (12345678.9,) * 8, ugly) for hour in each_hour),
        (Position(98765432.1, 98765432.1, 98765432.1),) * 7,
        ugly,
    )  # fmt: skip


def test_it_survives_a_restart_of_the_operator() -> None:
    comparison = Beside().run(20, at_five(0.05)).comparison
    state = TuningState(rolls=Rolls(comparison=comparison))
    assert TuningState.from_json(state.to_json()) == state


def test_a_campaign_at_every_batch_fits_into_the_state() -> None:
    comparison = full(buckets=8, depths=2)
    assert len(comparison.contrasts) == MOST_CONTRASTS
    state = TuningState(rolls=Rolls(comparison=comparison))
    assert len(state.to_json()) < 0.05 * LARGEST_BYTES
    assert TuningState.from_json(state.to_json()) == state


def test_the_first_window_after_a_promotion_forgets_nothing() -> None:
    rebased = found(at_1=-0.2, at_5=0.06).rebased({BUCKET: 3}, {BUCKET: 5})
    deltas = [
        counted(pod, 5, step_s=STEP_S, at_s=MIDNIGHT_S + WINDOW_S) for pod in (CANARY, *OTHERS)
    ]
    after = rebased.updated(CANARY, deltas, {BUCKET: 5}, UNKNOWN)
    assert means(after) == pytest.approx({1: -0.26, 3: -0.06})
    assert after.pod == CANARY


@pytest.mark.parametrize("without", ["canary", "others"])
def test_windows_without_drafts_at_a_depth_that_drafts_are_not_compared(without: str) -> None:
    """Steps that only prefill, say: nothing tells whether its requests are easier."""
    canary, others = at_five(0.0), usual()
    if without == "canary":
        canary = replace(canary, drafts={})
    else:
        others = tuple(replace(each, drafts={}) for each in others)
    assert Beside().run(20, canary, others=others).comparison.contrasts == ()


@pytest.mark.parametrize("scattered", ["itself", "the other"])
def test_a_difference_scatters_as_much_as_the_side_that_scatters_more(scattered: str) -> None:
    calm, wild = (
        Contrast(BUCKET, 0, depth, 1000.0, 100_000.0, 0.0, squares)
        for depth, squares in ((2, 0.1), (5, 10.0))
    )
    one, other = (wild, calm) if scattered == "itself" else (calm, wild)
    beside = one.beside(other)
    assert beside.squares / beside.weight == pytest.approx(wild.squares / wild.weight)


def test_beside_a_depth_that_was_hardly_compared_nothing_is_known_well() -> None:
    before = found(at_4=0.04, at_5=0.06)
    thin = before.contrasts[1]._replace(weight=200.0, weight_squares=20_000.0)
    rebased = replace(before, contrasts=(before.contrasts[0], thin)).rebased(
        {BUCKET: 3}, {BUCKET: 5}
    )
    at_4 = next(each for each in rebased.contrasts if each.depth == 4)
    assert at_4.variance >= thin.variance


def test_what_was_seen_most_is_kept() -> None:
    comparison = full(buckets=8, depths=9)
    light = comparison.contrasts[0]._replace(weight=100.0)
    comparison = replace(comparison, contrasts=(light, *comparison.contrasts[1:]))
    after = comparison.updated("p" * 63, (), IN_FORCE, UNKNOWN)
    assert len(after.contrasts) == MOST_CONTRASTS
    assert light not in after.contrasts
