"""Acceptance by context, from what pods count in windows."""

from math import sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.measurement.counters import ContextCounts, ContextRange, EngineCounts
from fathom.measurement.deltas import PodDelta
from fathom.tuning.estimate.acceptance_by_context import (
    HALF_LIFE_S,
    LEAST_DRAFTS,
    Contexts,
    ContextSums,
)
from fathom.tuning.learned_state import TuningState

SHORT, LONG = ContextRange(0), ContextRange(32768)


def window(contexts: dict[ContextRange, ContextCounts], pod: str = "pod-0") -> PodDelta:
    return PodDelta(
        pod=pod,
        from_s=0.0,
        to_s=30.0,
        engine=EngineCounts(),
        cells={},
        drafts={},
        contexts=contexts,
    )


def counts(drafts: float, first: float, accepted: float = 0.0) -> ContextCounts:
    return ContextCounts(drafts, 3 * drafts, accepted or first, first)


def test_pods_are_summed_before_any_division() -> None:
    found = Contexts().updated(
        [
            window({SHORT: counts(900, 720, 1500), LONG: counts(100, 10)}),
            window({SHORT: counts(2100, 1080, 1500), LONG: counts(900, 190, 300)}, "pod-1"),
        ],
        30.0,
    )

    short, long = found.acceptance()
    assert (short.context_ge, short.context_le, short.contexts) == (0, 2047, "0-2k")
    assert (long.context_ge, long.context_le, long.contexts) == (32768, 65535, "32k-64k")
    assert (short.share, long.share, long.drafts) == (0.75, 0.25, 1000)
    assert (short.first, long.first) == (0.6, 0.2)
    assert (short.accepted, short.drafted) == (1.0, 3.0)


def test_the_last_range_has_no_end() -> None:
    (found,) = (
        Contexts().updated([window({ContextRange(131072): counts(900, 300)})], 30.0).acceptance()
    )
    assert (found.context_le, found.contexts) == (None, "128k and more")


def test_too_few_drafts_say_nothing_of_acceptance() -> None:
    found = Contexts().updated([window({LONG: counts(LEAST_DRAFTS - 1, 150)})], 30.0)
    (each,) = found.acceptance()
    assert (each.first, each.error, each.accepted, each.drafted) == (None, None, None, None)
    assert each.share == 1


def test_of_an_older_plugin_nothing_is_known() -> None:
    assert Contexts().updated([window({})], 30.0).acceptance() == ()


def test_what_is_old_counts_for_less_and_goes_in_the_end() -> None:
    before = Contexts().updated([window({LONG: counts(1000, 900)})], 30.0)
    later = before.updated([window({LONG: counts(1000, 300)})], 30.0 + HALF_LIFE_S)
    (found,) = later.acceptance()
    assert found.first == pytest.approx((450 + 300) / 1500)
    other = later.updated([window({SHORT: counts(1000, 700)})], 30.0 + 20 * HALF_LIFE_S)
    assert [each.context_ge for each in other.acceptance()] == [0]


def test_without_drafts_nothing_changes() -> None:
    before = Contexts().updated([window({LONG: counts(1000, 900)})], 30.0)
    assert before.updated([window({}), window({}, "pod-1")], 60.0) == before


def test_a_clock_that_goes_back_forgets_nothing() -> None:
    before = Contexts().updated([window({LONG: counts(1000, 900)})], 3000.0)
    (found,) = before.updated([window({LONG: counts(1000, 900)})], 30.0).acceptance()
    assert found.drafts == 2000


def test_the_error_of_independent_drafts_is_that_of_chance() -> None:
    (found,) = Contexts().updated([window({LONG: counts(10_000, 2000)})], 30.0).acceptance()
    assert found.error == pytest.approx(sqrt(0.2 * 0.8 / 10_000), rel=0.01)


def test_the_error_covers_texts_that_differ_from_window_to_window() -> None:
    """Windows scatter by 0.1: nine in ten of 200 histories or more lie within two errors."""
    within = 0
    for seed in range(200):
        random, found = Random(seed), Contexts()
        for number in range(20):
            share = min(1.0, max(0.0, random.gauss(0.4, 0.1)))
            found = found.updated([window({LONG: counts(2000, 2000 * share)})], 30.0 * (1 + number))
        (each,) = found.acceptance()
        assert each.first is not None
        assert each.error is not None
        within += abs(each.first - 0.4) <= 2 * each.error
    assert 180 <= within <= 198


@pytest.mark.parametrize("first", [0.0, 500.0])
def test_no_error_is_zero(first: float) -> None:
    (found,) = Contexts().updated([window({LONG: counts(500, first)})], 30.0).acceptance()
    assert found.error is not None
    assert found.error > 0.001


def test_a_page_that_shows_any_ranges_fills_no_more_than_there_are() -> None:
    strange = {ContextRange(at * 977): counts(1000, 500) for at in range(500)}
    found = Contexts().updated([window(strange)], 30.0)
    assert len(found.ranges) == 8
    assert sum(each.drafts for each in found.acceptance()) == 500_000


def test_it_survives_a_restart_of_the_operator() -> None:
    found = Contexts().updated([window({LONG: counts(1000, 300), SHORT: counts(900, 500)})], 30.0)
    state = TuningState(contexts=found)
    assert TuningState.from_json(state.to_json()).contexts == found


def test_counts_that_no_engine_can_have_are_passed_over() -> None:
    page = {SHORT: counts(1000, 700), LONG: ContextCounts(1e300, 1e300, 1e300, 1e300)}
    (found,) = Contexts().updated([window(page)], 30.0).acceptance()
    assert found.context_ge == 0


@given(
    st.lists(
        st.builds(
            ContextSums,
            index=st.integers(-2, 99),
            counts=st.builds(ContextCounts, *[st.floats(-1e308, 1e308)] * 4),
            drafts_squared=st.floats(-1e308, 1e308),
            first_squared=st.floats(-1e308, 1e308),
            first_by_drafts=st.floats(-1e308, 1e308),
        ),
        max_size=4,
    )
)
def test_what_was_kept_may_say_anything(ranges: list[ContextSums]) -> None:
    known = Contexts(ranges=tuple(ranges), at_s=30.0)
    for each in known.acceptance():
        assert each.row[0] == each.contexts
        assert each.first is None or 0 <= each.first <= 1
    for short, long in known.parted():
        assert short.error >= 0
        assert long.error >= 0
