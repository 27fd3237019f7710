"""Half of the requests draft well, half badly, and the deeper, the fewer of a batch draft well."""

from itertools import repeat
from math import exp, inf, log

import pytest

from fathom.measurement.counters import DraftCell, DraftCounts, EngineCounts
from fathom.measurement.deltas import PodDelta
from fathom.tuning.estimate.acceptance_by_position import MOST_RECENT_TURNS, SHIFT_SD, Survival
from fathom.tuning.estimate.acceptance_length import trials
from fathom.tuning.estimate.settled import Held, Settled, held, joined, settled

GOOD, BAD = 0.97, 0.15


def length(acceptance: float, depth: int) -> float:
    return sum(acceptance**i for i in range(depth + 1))


def share_of_good(depth: int) -> float:
    """Part of a batch that drafts well, where as many good requests come as bad ones."""
    good, bad = 1 / length(GOOD, depth), 1 / length(BAD, depth)
    return good / (good + bad)


def drafts(depth: int, good: float | None = None, *, count: float = 4000.0) -> DraftCounts:
    """At a depth, with the share of good requests that settles there or another."""
    share = share_of_good(depth) if good is None else good
    accepted = (share * GOOD**i + (1 - share) * BAD**i for i in range(1, depth + 1))
    return DraftCounts(count, tuple(count * each for each in accepted))


def delta(*each: tuple[int, DraftCounts], from_s: float = 100.0) -> PodDelta:
    cells = {DraftCell(64, depth): counts for depth, counts in each}
    return PodDelta(
        pod="pod", from_s=from_s, to_s=from_s + 10, engine=EngineCounts(), cells={}, drafts=cells
    )


LONG_HELD = [Held("pod", 3, 0.0)]


def seen(survival: Survival, *deltas: PodDelta, at_s: float, after_s: float = 0.0) -> Survival:
    drafted = [each.drafts for each in deltas]
    window = sum((trials(each) for each in drafted[1:]), trials(drafted[0]))
    return survival.updated(window, at_s, settled=settled(deltas, LONG_HELD, after_s))


def ran(*depths: int, windows: int = 6) -> Survival:
    """After so many windows at each of the depths, one after the other."""
    survival, at_s = Survival(), 1000.0
    for depth in depths:
        for _ in range(windows):
            survival = seen(survival, delta((depth, drafts(depth))), at_s=at_s)
            at_s += 10
    return survival


def depths_of(found: Settled) -> tuple[int, ...]:
    return tuple(each.depth for each in found)


def test_only_what_was_counted_after_the_mix_had_settled_counts() -> None:
    early, late = delta((3, drafts(3)), from_s=10.0), delta((7, drafts(7)), from_s=20.0)
    assert depths_of(settled([early, late], LONG_HELD, 15.0)) == (7,)
    assert settled([early, late], LONG_HELD, 30.0) == ()
    assert settled([early, late], [], 0.0) == ()


def test_a_depth_is_held_from_the_end_of_the_window_that_shows_it_first() -> None:
    windows = [(3, 0.0), (3, 10.0), (7, 20.0), (7, 30.0)]
    known: tuple[Held, ...] = ()
    since = []
    for depth, from_s in windows:
        known = held([delta((depth, drafts(depth)), from_s=from_s)], known)
        since.append(known[0].since_s)
    assert since == [10.0, 10.0, 30.0, 30.0]
    assert held([delta(from_s=40.0)], known) == known


def test_a_pod_between_depths_is_at_neither() -> None:
    between = delta((3, drafts(3)), (7, drafts(7)))
    mostly = delta((3, drafts(3)), (7, drafts(7, count=100.0)))
    assert depths_of(settled([mostly], LONG_HELD, 0.0)) == (3,)
    assert not {3, 7} & {*depths_of(settled([between], LONG_HELD, 0.0))}


def test_the_least_tried_of_many_depths_are_let_go() -> None:
    many = [delta((depth, drafts(depth, count=100.0 * depth))) for depth in range(1, 8)]
    assert depths_of(settled(many, LONG_HELD, 0.0)) == (4, 5, 6, 7)
    assert joined(settled(many, LONG_HELD, 0.0)) == settled(many, LONG_HELD, 0.0)


@pytest.mark.parametrize("now", [3, 7])
def test_a_ratio_is_that_of_depths_in_force_not_of_one_mix(now: int) -> None:
    survival = ran(*(7, 3) if now == 3 else (3, 7))
    truth = log(
        (1 / length(GOOD, 3) + 1 / length(BAD, 3)) / (1 / length(GOOD, 7) + 1 / length(BAD, 7))
    )
    mean, variance = survival.lengths(7, survival.at_s).log_ratio(7, 3)
    one_mix = log(drafts_length(7, share_of_good(now)) / drafts_length(3, share_of_good(now)))
    assert one_mix > truth + 0.12
    assert mean == pytest.approx(truth, abs=0.05)
    assert abs(mean - truth) < 2 * variance**0.5


def drafts_length(depth: int, good: float) -> float:
    counts = drafts(depth, good)
    return 1 + sum(counts.accepted) / counts.drafts


def test_what_a_mix_promises_of_a_depth_that_was_not_in_force_is_doubted() -> None:
    survival = ran(3)
    mean, variance = survival.lengths(7, survival.at_s).log_ratio(7, 3)
    assert SHIFT_SD * mean * 0.9 < variance**0.5 < mean / 2
    assert survival.lengths(7, survival.at_s).log_ratio(3, 3) == (0.0, 0.0)


def test_a_shift_is_remembered_when_its_depth_has_not_run_for_long() -> None:
    survival = ran(7, 3)
    fresh, _ = survival.lengths(7, survival.at_s).log_ratio(7, 3)
    at_s = survival.at_s
    for _ in range(200):
        at_s += 30
        survival = seen(survival, delta((3, drafts(3))), at_s=at_s)
    later, variance = survival.lengths(7, at_s).log_ratio(7, 3)
    assert later == pytest.approx(fresh, abs=0.06)
    assert exp(variance**0.5) < 1.1


def test_what_is_seen_of_other_requests_replaces_what_was_surer() -> None:
    survival = ran(3, 7, windows=60)
    before, _ = survival.lengths(7, survival.at_s).log_ratio(7, 3)
    good = 0.5  # whatever the depth: now each request has good stretches and bad ones
    for depth in (3, 7):
        for _ in range(12):
            alike = delta((depth, drafts(depth, good)))
            survival = seen(survival, alike, at_s=survival.at_s + 10)
    after, _ = survival.lengths(7, survival.at_s).log_ratio(7, 3)
    truth = log(drafts_length(7, good) / drafts_length(3, good))
    assert truth > before + 0.2
    assert after == pytest.approx(truth, abs=0.06)


def test_another_depth_is_no_change_of_traffic_and_other_text_at_one_depth_is() -> None:
    survival = ran(3, 7, 3)
    assert survival.epoch == 0
    worse = drafts(3, good=0.0)
    survival = seen(survival, delta((3, worse)), at_s=survival.at_s + 10)
    assert survival.epoch == 1


def test_after_a_turn_what_is_remembered_still_counts() -> None:
    survival = ran(7, 3)
    other = delta((3, drafts(3, good=0.6)))
    survival = seen(survival, other, at_s=survival.at_s + 10, after_s=0.0)
    assert survival.epoch == 1
    shift, _ = survival.lengths(7, survival.at_s).shifts[7]
    assert shift < -0.05


def test_what_is_normal_here_is_not_what_is_settled_now() -> None:
    survival = Survival()
    for at in range(15):
        text = delta((3, drafts(3, good=1.0 if at < 3 else 0.0)))
        survival = seen(survival, text, at_s=1000.0 + 10 * at)
    now = survival.lengths(3, survival.at_s).positions[0].mean
    normal = survival.normal(survival.at_s).lengths(3, survival.at_s).positions[0].mean
    slow = survival.slow.accepted[0] / survival.slow.reached[0]
    assert now == pytest.approx(BAD, abs=0.01)
    assert normal == pytest.approx(slow, abs=0.01)
    assert slow > now + 0.05


def test_where_text_turns_all_the_time_nothing_is_learnt_of_depths() -> None:
    survival = ran(7, 3)
    for count in range(20):
        other = delta((3, drafts(3, good=float(count % 2))))
        survival = seen(survival, other, at_s=survival.at_s + 10)
    assert survival.recent_turns > MOST_RECENT_TURNS
    assert not survival.lengths(7, survival.at_s).shifts


def test_before_the_mix_has_settled_only_a_large_change_is_one() -> None:
    for good, changes in ((share_of_good(7), 0), (1.0, 1)):
        survival = ran(3)
        probe = delta((7, drafts(7, good)))
        survival = seen(survival, probe, at_s=survival.at_s + 10, after_s=inf)
        for count in repeat(1, 3):
            survival = seen(survival, probe, at_s=survival.at_s + 10 * count, after_s=inf)
        assert survival.epoch == changes
