"""What depths yield where drafts are cut before they are verified."""

from collections.abc import Mapping
from math import log, sqrt

import pytest

from fathom.engine.depth import buckets
from fathom.measurement.counters import Cell, CellCounts, StepKind
from fathom.tuning.estimate.yields import CutLengths, Yields

NOW_S = 1_800_000_000.0
WINDOW_S = 30.0
BATCH = 8
Window = Mapping[Cell, CellCounts]


def window(
    yields: Mapping[int, float],
    *,
    requests: float = 20_000,
    batch_le: int = BATCH,
    mixed: float = 0,
) -> Window:
    """Tokens per request and step at each depth."""
    cells = {
        Cell(batch_le, depth, StepKind.DECODE): CellCounts(
            steps=requests / batch_le,
            step_seconds=20.0,
            tokens=each * requests,
            scheduled_requests=requests,
        )
        for depth, each in yields.items()
    }
    if mixed:
        cells[Cell(batch_le, 3, StepKind.MIXED)] = CellCounts(10, 1.0, mixed * 80, 80)
    return cells


def after(*windows: Window, every_s: float = WINDOW_S) -> Yields:
    """The windows one after the other, the last of which ends now."""
    yields = Yields()
    for ago, each in zip(range(len(windows) - 1, -1, -1), windows, strict=True):
        yields = yields.updated(each, NOW_S - ago * every_s)
    return yields


def lengths(yields: Yields, batch_le: int = BATCH, later_s: float = 0.0) -> CutLengths:
    return yields.lengths(batch_le, NOW_S + later_s)


def sd(of: CutLengths, to: int, start: int) -> float:
    return sqrt(of.log_ratio(to, start)[1])


def test_what_was_measured_is_what_a_depth_yields() -> None:
    known = lengths(after(window({1: 1.7, 3: 2.4})))
    assert known.at(0) == 1.0
    assert known.at(1) == pytest.approx(1.7)
    assert known.at(3) == pytest.approx(2.4)
    assert known.log_ratio(3, 1)[0] == pytest.approx(log(2.4 / 1.7))
    assert sd(known, 3, 1) < 0.03


def test_steps_with_prompts_do_not_count() -> None:
    assert lengths(after(window({3: 2.4}, mixed=1.0))).at(3) == pytest.approx(2.4)
    assert after(window({0: 1.0})).cells == ()


def test_a_depth_that_was_not_tried_follows_from_the_nearest_with_an_error_that_takes_a_probe() -> (
    None
):
    known = lengths(after(window({1: 1.5, 3: 1.875})))
    # Half of all drafts accepted: 1 + 1/2 + 1/4 + …
    assert known.at(7) == pytest.approx(2 - 0.5**7, abs=0.01)
    assert known.at(2) == pytest.approx(1.75, abs=0.01)
    assert 0.05 < sd(known, 2, 1) < sd(known, 7, 1)
    assert sd(known, 3, 1) < sd(known, 2, 1)


def test_of_a_depth_and_what_follows_from_it_only_the_way_between_is_uncertain() -> None:
    few = lengths(after(window({3: 2.4}, requests=300)))
    many = lengths(after(window({3: 2.4})))
    assert sd(few, 7, 3) == pytest.approx(sd(many, 7, 3))
    assert sd(few, 3, 0) > sd(many, 3, 0)


def test_the_fewer_requests_the_less_certain() -> None:
    known = {n: lengths(after(window({1: 1.7, 3: 2.4}, requests=n))) for n in (500, 5_000, 50_000)}
    assert sd(known[500], 3, 1) > sd(known[5_000], 3, 1) > sd(known[50_000], 3, 1)


def test_what_was_measured_long_ago_is_less_certain() -> None:
    yields = after(window({1: 1.7, 3: 2.4}))
    errors = [sd(lengths(yields, later_s=each), 3, 1) for each in (0, 600, 3600)]
    assert errors == sorted(errors)
    assert errors[1] > 1.5 * errors[0]


def test_before_anything_was_measured_everything_is_uncertain() -> None:
    known = lengths(Yields())
    assert 1 < known.at(1) < known.at(7)
    assert sd(known, 3, 0) > 0.2


def test_another_bucket_tells_of_this_one_with_an_error() -> None:
    yields = after(window({1: 1.7, 3: 2.4}))
    near, far = lengths(yields, 16), lengths(yields, 128)
    assert near.at(3) == far.at(3) == pytest.approx(2.4)
    assert sd(lengths(yields), 3, 1) < sd(near, 3, 1) < sd(far, 3, 1)
    own = yields.updated(window({3: 2.0}, batch_le=128), NOW_S)
    assert lengths(own, 128).at(3) == pytest.approx(2.0)


def test_other_traffic_drops_what_was_known_before() -> None:
    before = [window({1: 1.7, 3: 2.4})] * 3
    turned = after(*before, window({3: 1.6}))
    assert turned.epoch == 1
    assert lengths(turned).at(3) == pytest.approx(1.6)
    assert not turned.is_drafted(BATCH, 1)


@pytest.mark.parametrize("now", [2.4, 2.36])
def test_chance_and_little_drops_nothing(now: float) -> None:
    steady = after(*[window({1: 1.7, 3: 2.4})] * 3, window({3: now}))
    assert steady.epoch == 0
    assert steady.is_drafted(BATCH, 1)


def test_a_handful_of_requests_is_no_change_of_traffic() -> None:
    assert after(*[window({3: 2.4})] * 3, window({3: 1.2}, requests=50)).epoch == 0


def test_a_depth_counts_as_drafted_where_it_was() -> None:
    yields = after(window({3: 2.4}))
    assert yields.is_drafted(BATCH, 3)
    assert yields.is_drafted(BATCH, 0)
    assert not yields.is_drafted(BATCH, 1)
    assert not yields.is_drafted(16, 3)


@pytest.mark.parametrize("depths", [(1, 2, 3, 5, 7), tuple(range(1, 8))])
def test_a_fleet_that_drafts_at_each_depth_in_each_bucket_forgets_none(
    depths: tuple[int, ...],
) -> None:
    """As fleets whose batch moves over the day do, up to the largest that vLLM chooses itself."""
    in_use = [(bucket, depth) for bucket in buckets(2048) for depth in depths]
    windows = [
        window(dict.fromkeys(depths, 1.5), batch_le=bucket, requests=500)
        for bucket in buckets(2048)
    ]
    yields = after(*windows, *reversed(windows))
    assert [each for each in in_use if not yields.is_drafted(*each)] == []


def test_nothing_drafted_is_no_news_of_drafts() -> None:
    yields = after(window({3: 2.4}))
    assert yields.updated(window({0: 1.0}), NOW_S + 600) == yields


def test_traffic_that_turned_is_expected_to_turn_again() -> None:
    calm = after(*[window({3: 2.4})] * 40)
    restless = after(*[window({3: each}) for _ in range(20) for each in (2.4, 1.6)])
    assert restless.turns_per_s > 5 * calm.turns_per_s


def test_easier_text_is_worth_more_the_deeper_the_drafts() -> None:
    known = lengths(after(window({1: 1.5, 3: 1.875})))
    assert known.logit_slope(0) == 0.0
    assert 0 < known.logit_slope(1) < known.logit_slope(3)


@pytest.mark.parametrize("tokens", [0.0, 50.0])
def test_a_page_may_show_anything(tokens: float) -> None:
    known = lengths(after(window({3: tokens})))
    assert 1.0 <= known.at(3) <= 4.0
    assert known.log_ratio(3, 0)[1] >= 0
