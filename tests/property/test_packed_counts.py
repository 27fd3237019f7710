"""Counts that are packed say the same as those that are objects, to whomever asks."""

import pickle
from dataclasses import astuple, replace
from typing import TypeVar

from hypothesis import example, given
from hypothesis import strategies as st

from fathom.measurement.counters import (
    Cell,
    CellCounts,
    DraftCell,
    DraftCounts,
    EngineCounts,
    PodCounters,
    StepKind,
)
from fathom.measurement.deltas import delta
from fathom.measurement.packed_counts import DRAFTS_FORM, STEPS_FORM, PackedCounts

_Key = TypeVar("_Key")
_Sums = TypeVar("_Sums", CellCounts, DraftCounts)
Cells = dict[Cell, CellCounts]
Drafts = dict[DraftCell, DraftCounts]

_COUNT = st.sampled_from([0.0, 1.0, 2.5, 40.0, 1e15, 1e-9, -5.0])
_CELL = st.builds(Cell, st.sampled_from([1, 4, 6]), st.integers(0, 3), st.sampled_from(StepKind))


@st.composite
def _cells(draw: st.DrawFn) -> Cells:
    numbers = (_COUNT, _COUNT, _COUNT, _COUNT)
    mixed, decode = st.builds(CellCounts, *numbers, _COUNT), st.builds(CellCounts, *numbers)
    return {
        cell: draw(mixed if cell.step is StepKind.MIXED else decode)
        for cell in draw(st.lists(_CELL, max_size=6, unique=True))
    }


_CELLS = _cells()


@st.composite
def _drafts(draw: st.DrawFn) -> Drafts:
    cells = draw(st.sets(st.builds(DraftCell, st.sampled_from([1, 4]), st.integers(0, 3))))
    return {
        cell: DraftCounts(draw(_COUNT), tuple(draw(_COUNT) for _ in range(cell.depth)))
        for cell in sorted(cells)
    }


def packed_cells(cells: Cells) -> PackedCounts[Cell, CellCounts]:
    return PackedCounts(
        STEPS_FORM,
        tuple(cells),
        (
            number
            for cell, each in cells.items()
            for number in astuple(each)[: STEPS_FORM.width(cell)]
        ),
    )


def packed_drafts(drafts: Drafts) -> PackedCounts[DraftCell, DraftCounts]:
    numbers = (number for each in drafts.values() for number in (each.drafts, *each.accepted))
    return PackedCounts(DRAFTS_FORM, tuple(drafts), numbers)


def look(at_s: float, cells: Cells, drafts: Drafts) -> PodCounters:
    return PodCounters(
        pod="a",
        at_s=at_s,
        started_at_s=1000.0,
        engine=EngineCounts(),
        live_depth=True,
        depth_generation=1,
        cells=cells,
        drafts=drafts,
    )


def packed(of: PodCounters) -> PodCounters:
    return replace(of, cells=packed_cells(dict(of.cells)), drafts=packed_drafts(dict(of.drafts)))


@given(_CELLS, _drafts())
def test_a_look_that_is_packed_is_the_look(cells: Cells, drafts: Drafts) -> None:
    objects = look(10, cells, drafts)
    kept = packed(objects)
    assert kept == objects
    assert (dict(kept.cells), dict(kept.drafts)) == (cells, drafts)
    assert [*kept.cells] == [*cells]
    assert len(kept.drafts) == len(drafts)
    assert all(kept.cells[cell] == counts for cell, counts in cells.items())
    assert kept.cells.get(Cell(99, 9, StepKind.DECODE)) is None
    assert pickle.loads(pickle.dumps(kept)) == objects


@given(_CELLS, _drafts(), _CELLS, _drafts())
@example(
    {Cell(1, 1, StepKind.DECODE): CellCounts(5)},
    {},
    {Cell(4, 1, StepKind.DECODE): CellCounts(5)},
    {},
)
@example(
    {}, {DraftCell(1, 2): DraftCounts(5, (4, 3))}, {}, {DraftCell(1, 2): DraftCounts(6, (4, 2))}
)
def test_what_was_counted_between_two_looks_does_not_depend_on_how_they_are_kept(
    cells: Cells, drafts: Drafts, more_cells: Cells, more_drafts: Drafts
) -> None:
    before = look(10, cells, drafts)
    # As often as not an engine goes on, and does not start anew.
    for after in (
        look(20, more_cells, more_drafts),
        look(20, _sum(cells, more_cells), _sum(drafts, more_drafts)),
    ):
        expected = delta(before, after)
        assert delta(packed(before), packed(after)) == expected
        assert delta(packed(before), after) == expected
        assert delta(before, packed(after)) == expected
        if expected is not None:
            found = delta(packed(before), packed(after))
            assert found is not None
            assert [*found.cells] == [*expected.cells]


def _sum(one: dict[_Key, _Sums], other: dict[_Key, _Sums]) -> dict[_Key, _Sums]:
    both = {**one, **other}
    return both | {key: one[key] + other[key] for key in one.keys() & other.keys()}
