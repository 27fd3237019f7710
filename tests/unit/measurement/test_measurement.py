from dataclasses import replace

import pytest

from fathom.engine.depth import DepthDocument, Schedule, flat
from fathom.measurement.counters import (
    NO_CONTEXT,
    Cell,
    CellCounts,
    ContextCounts,
    ContextRange,
    DraftCell,
    DraftCounts,
    EngineCounts,
    PodCounters,
    StepKind,
)
from fathom.measurement.deltas import bucket_of, delta, pooled_cells, pooled_drafts

CELL = Cell(4, 3, StepKind.DECODE)
OTHER = Cell(8, 3, StepKind.DECODE)
DRAFTS = DraftCell(4, 3)


def look(
    at_s: float, *, tokens: float = 0.0, steps: float = 0.0, drafts: float = 0.0
) -> PodCounters:
    return PodCounters(
        pod="a",
        at_s=at_s,
        started_at_s=1000.0,
        engine=EngineCounts(generation_tokens=tokens, requests_running=tokens / 10),
        live_depth=True,
        depth_generation=1,
        cells={CELL: CellCounts(steps, steps / 100, steps * 2, steps * 4)},
        drafts={DRAFTS: DraftCounts(drafts, (drafts / 2, drafts / 4, 0.0))},
    )


def test_counters_are_subtracted_and_gauges_are_as_they_are_now() -> None:
    d = delta(look(10, tokens=20, steps=100, drafts=40), look(15, tokens=70, steps=300, drafts=48))

    assert d is not None
    assert (d.from_s, d.to_s, d.seconds, d.steps) == (10, 15, 5, 200)
    assert d.engine.generation_tokens == 50
    assert d.engine.requests_running == 7
    assert d.cells == {CELL: CellCounts(200, 2, 400, 800)}
    assert d.drafts == {DRAFTS: DraftCounts(8, (4, 2, 0))}


COMMON, OWN = flat(3, 16), flat(7, 16)


@pytest.mark.parametrize(
    ("generation", "running", "ends", "runs", "follows"),
    [
        (4, OWN, {"a": 90}, True, True),
        (4, COMMON, {"a": 90}, False, True),
        (4, COMMON, {}, False, False),
        (4, COMMON, {"b": 90}, False, False),
        (4, flat(5, 16), {"a": 90}, False, False),
        (3, OWN, {"a": 90}, False, False),
        # It does not tell what it runs.
        (4, None, {"a": 90}, True, True),
        (3, None, {"a": 90}, False, False),
    ],
)
def test_an_engine_runs_a_document_or_follows_it_after_the_end_of_its_own_entry(
    generation: int, running: Schedule | None, ends: dict[str, int], *, runs: bool, follows: bool
) -> None:
    document = DepthDocument(generation=4, schedule=COMMON, pods={"a": OWN}, ends=ends)
    told = 0
    if running is not None:
        told = DepthDocument(generation=1, schedule=running).hash_for_pod("a")
    counters = replace(look(10), depth_generation=generation, schedule_hash=told)
    assert (counters.runs(document), counters.follows(document)) == (runs, follows)


def test_what_an_engine_tells_of_itself_is_as_it_was_told_last() -> None:
    d = delta(look(10), replace(look(20), device="NVIDIA GB200", token_budget=2048))

    assert d is not None
    assert (d.device, d.token_budget) == ("NVIDIA GB200", 2048)


def test_a_cell_that_appears_counts_from_zero_and_one_at_rest_is_left_out() -> None:
    before = look(10, steps=5, drafts=4)
    after = replace(
        look(20, steps=5, drafts=4), cells={**before.cells, OTHER: CellCounts(1, 2, 3, 8)}
    )

    d = delta(before, after)

    assert d is not None
    assert d.cells == {OTHER: CellCounts(1, 2, 3, 8)}
    assert d.drafts == {}


@pytest.mark.parametrize(
    "after",
    [
        look(10, tokens=20, steps=200),
        look(9, tokens=20, steps=200),
        replace(look(20, tokens=20, steps=200), started_at_s=1010.0),
        look(20, tokens=9, steps=200),
        look(20, tokens=20, steps=99),
        look(20, tokens=20, steps=200, drafts=-1),
        replace(look(20, tokens=20), cells={}),
        replace(look(20, tokens=20, steps=200), transition_steps=-1.0),
        replace(look(20, tokens=20, steps=200), pod="b"),
    ],
    ids=[
        "no newer sample",
        "older sample",
        "another start",
        "engine counter back",
        "cell back",
        "drafts back",
        "cell gone",
        "transitions back",
        "another pod",
    ],
)
def test_what_cannot_be_subtracted_is_none(after: PodCounters) -> None:
    assert delta(look(10, tokens=10, steps=100), after) is None


def test_an_unknown_start_time_is_not_a_restart() -> None:
    unknown = replace(look(10), started_at_s=0.0)
    assert delta(unknown, look(11)) is not None
    assert delta(look(10), replace(look(11), started_at_s=1000.4)) is not None


def test_deltas_are_summed_over_pods() -> None:
    one = delta(look(0), look(1, steps=10, drafts=4))
    two = delta(look(0), look(1, steps=30, drafts=8))
    assert one is not None
    assert two is not None

    assert pooled_cells([one, two]) == {CELL: CellCounts(40, 0.4, 80, 160)}
    assert pooled_drafts([one, two]) == {DRAFTS: DraftCounts(12, (6, 3, 0))}


def counted(batch_le: int, depth: int, batch: float, mixed_batch: float) -> PodCounters:
    """An engine's page after a hundred steps of each kind, at such mean batches."""
    return replace(
        look(20),
        cells={
            Cell(batch_le, depth, StepKind.DECODE): CellCounts(100, 1.0, 200, 100 * batch),
            Cell(batch_le, depth, StepKind.MIXED): CellCounts(100, 2.0, 200, 100 * mixed_batch),
        },
        drafts={DraftCell(batch_le, depth): DraftCounts(70, (60, 50, 40)[:depth])},
    )


@pytest.mark.parametrize(
    ("batch_le", "batch", "mixed_batch", "bucket"),
    [(8, 5.0, 5.4, 5), (8, 6.2, 7.4, 7), (8, 8.0, 8.0, 8), (16, 11.0, 12.8, 12), (4, 3.2, 3.6, 3)],
)
def test_what_an_older_plugin_counted_goes_where_its_mean_batch_lies(
    batch_le: int, batch: float, mixed_batch: float, bucket: int
) -> None:
    """The mean is that of both kinds of steps, so that a depth's steps and drafts stay together."""
    d = delta(replace(look(10), cells={}, drafts={}), counted(batch_le, 3, batch, mixed_batch))

    assert d is not None
    assert {cell.batch_le for cell in d.cells} == {bucket}
    assert d.drafts.keys() == {DraftCell(bucket, 3)}
    assert d.steps == 200


@pytest.mark.parametrize("batch", [3, 5, 6, 7, 8, 9, 12, 97, 128])
def test_what_a_newer_plugin_counted_stays_where_it_was_counted(batch: int) -> None:
    bucket = bucket_of(batch)
    d = delta(replace(look(10), cells={}, drafts={}), counted(bucket, 2, batch, batch))

    assert d is not None
    assert {cell.batch_le for cell in d.cells} == {bucket}
    assert d.drafts.keys() == {DraftCell(bucket, 2)}


@pytest.mark.parametrize("requests", [-5.0, 0.0, 1e9])
def test_steps_with_an_impossible_batch_stay_within_their_bucket(requests: float) -> None:
    after = replace(look(20), cells={OTHER: CellCounts(1, 2, 3, requests)}, drafts={})
    d = delta(replace(look(10), cells={}, drafts={}), after)

    assert d is not None
    assert all(cell.batch_le <= OTHER.batch_le for cell in d.cells)


def test_drafts_without_steps_stay_in_their_own_bucket() -> None:
    d = delta(look(10), replace(look(20), drafts={DraftCell(8, 3): DraftCounts(5, (1, 1, 1))}))

    assert d is not None
    assert d.drafts.keys() == {DraftCell(8, 3)}


def test_pods_of_both_plugins_are_counted_together() -> None:
    """One counted 5 to 8 together, the other 7 alone."""
    before = replace(look(10), cells={}, drafts={})
    old, new = delta(before, counted(8, 3, 5.6, 5.6)), delta(before, counted(7, 3, 7.0, 7.0))

    assert old is not None
    assert new is not None
    pooled = pooled_cells([old, new, new])
    assert {cell.batch_le: counts.steps for cell, counts in pooled.items()} == {6: 100, 7: 200}


def test_no_more_drafts_are_accepted_than_reached_a_position() -> None:
    """Whatever a page shows: two engines behind one name, say. What is learned stays a share."""
    after = replace(look(20), drafts={DRAFTS: DraftCounts(40, (60, 20, 30))})
    d = delta(look(10), after)

    assert d is not None
    assert d.drafts == {DRAFTS: DraftCounts(40, (40, 20, 20))}


def by_context(at_s: float, *counts: float) -> PodCounters:
    return replace(look(at_s), contexts={ContextRange(4096): ContextCounts(*counts)})


def test_drafts_by_context_are_subtracted_and_a_range_at_rest_is_left_out() -> None:
    before = by_context(10, 40, 120, 60, 30)
    resting = replace(before, at_s=20, contexts={**before.contexts, ContextRange(0): NO_CONTEXT})
    for after, expected in (
        (by_context(20, 50, 150, 72, 38), {ContextRange(4096): ContextCounts(10, 30, 12, 8)}),
        (resting, {}),
    ):
        found = delta(before, after)
        assert found is not None
        assert found.contexts == expected


@pytest.mark.parametrize("at", range(4))
def test_a_context_that_went_back_is_a_restart(at: int) -> None:
    counts = [40.0, 120.0, 60.0, 30.0]
    assert delta(by_context(10, *counts), by_context(20, *counts)) is not None
    less = [*counts]
    less[at] -= 1
    assert delta(by_context(10, *counts), by_context(20, *less)) is None


def test_no_more_is_accepted_by_context_than_was_drafted() -> None:
    found = delta(by_context(10, 0, 0, 0, 0), by_context(20, 10, 30, 99, 99))
    assert found is not None
    assert found.contexts == {ContextRange(4096): ContextCounts(10, 30, 30, 10)}
