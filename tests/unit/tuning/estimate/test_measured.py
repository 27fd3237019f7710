"""What people are shown of a window."""

from dataclasses import replace

import pytest

from fathom.measurement.counters import (
    Cell,
    CellCounts,
    DraftCell,
    DraftCounts,
    EngineCounts,
    StepKind,
)
from fathom.measurement.deltas import PodDelta
from fathom.tuning.estimate.measured import Measured, measure, pooled


def drafted(pod: str, *accepted: float) -> PodDelta:
    """A window of one pod: a hundred drafts, and how many were accepted at each position."""
    drafts = {DraftCell(4, len(accepted)): DraftCounts(100.0, accepted)}
    return PodDelta(
        pod=pod,
        from_s=0.0,
        to_s=10.0,
        engine=EngineCounts(generation_tokens=500.0),
        cells={},
        drafts=drafts,
    )


def test_survival_is_over_the_drafts_of_all_pods_that_were_deep_enough() -> None:
    measured = measure([drafted("a", 80.0), drafted("b", 60.0, 30.0)], 10.0, None)
    assert measured is not None
    assert measured.survival == pytest.approx((0.7, 0.7 * 0.5))


def test_tokens_per_step_count_decode_steps_with_drafts_or_without() -> None:
    def steps(kind: StepKind, depth: int, tokens: float) -> PodDelta:
        cells = {Cell(4, depth, kind): CellCounts(10.0, 1.0, tokens, 40.0)}
        return replace(drafted("a", 80.0), cells=cells)

    decodes = [steps(StepKind.DECODE, 3, 100.0), steps(StepKind.DECODE, 0, 40.0)]
    measured = measure([*decodes, steps(StepKind.MIXED, 3, 400.0)], 10.0, None)

    assert measured is not None
    assert measured.tokens_per_step == pytest.approx(140 / 80)


def test_survival_ends_where_no_draft_got() -> None:
    measured = measure([drafted("a", 80.0, 0.0, 0.0)], 10.0, None)
    assert measured is not None
    assert measured.survival == pytest.approx((0.8, 0.0))


def part(rate: float, length: float, batch: float, gain: float | None = 0.0) -> Measured:
    """One window of some pods."""
    return Measured(
        at_s=100.0,
        window_seconds=30.0,
        tokens_per_second=rate,
        mean_batch=batch,
        acceptance_length=length,
        acceptance_rate=(length - 1) / 3,
        survival=(0.5,),
        tpot_seconds=0.01,
        gain=gain,
    )


def test_what_pods_make_that_are_tuned_apart_adds_up() -> None:
    assert pooled([part(300.0, 2.0, 4.0), part(100.0, 2.0, 4.0)]).tokens_per_second == 400


def test_means_over_drafts_are_weighted_by_drafts_and_those_over_steps_by_steps() -> None:
    # 100 drafts a second that make 3 tokens each, and 300 that make 1; 25 steps a second, and 25.
    both = pooled([part(300.0, 3.0, 4.0), part(300.0, 1.0, 12.0)])

    assert both.acceptance_length == pytest.approx(600 / 400)
    assert both.mean_batch == pytest.approx((25 * 4 + 25 * 12) / 50)


def test_the_gain_of_all_is_told_from_the_seconds_that_their_tokens_would_have_taken() -> None:
    both = pooled([part(300.0, 2.0, 4.0, gain=0.5), part(100.0, 2.0, 4.0, gain=0.0)])

    assert both.gain == pytest.approx(400 / (300 / 1.5 + 100) - 1)


def test_a_gain_that_is_unknown_of_some_is_unknown_of_all() -> None:
    assert pooled([part(300.0, 2.0, 4.0, gain=0.5), part(100.0, 2.0, 4.0, gain=None)]).gain is None


def test_survival_at_a_position_is_that_of_those_who_draft_so_deep() -> None:
    deep = replace(part(100.0, 2.0, 4.0), survival=(0.8, 0.6))
    shallow = replace(part(300.0, 2.0, 4.0), survival=(0.4,))

    assert pooled([deep, shallow]).survival == pytest.approx((0.5, 0.6))


def test_of_pods_that_draft_nothing_no_acceptance_is_made_up() -> None:
    idle = replace(part(100.0, 1.0, 4.0), acceptance_length=None, acceptance_rate=None, survival=())
    both = pooled([idle, idle])

    assert both.acceptance_length is None
    assert both.survival == ()
    assert both.mean_batch == pytest.approx(4.0)


def test_the_rate_of_acceptance_is_over_all_tokens_that_were_drafted() -> None:
    # 100 drafts a second of one token, 80 accepted; 100 of five, 150 of 500 accepted.
    shallow = replace(part(180.0, 1.8, 4.0), acceptance_rate=0.8)
    deep = replace(part(250.0, 2.5, 4.0), acceptance_rate=0.3)

    assert pooled([shallow, deep]).acceptance_rate == pytest.approx(230 / 600)


def test_pods_that_serve_no_more_are_no_part_of_the_window() -> None:
    now, before = part(100.0, 2.0, 4.0), replace(part(300.0, 3.0, 4.0), at_s=-200.0)
    assert pooled([before, now]) == now
