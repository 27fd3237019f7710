"""What follows from the pages' benchmark, and that its page is what it says."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.pages.command import page_table, prometheus_table, verdict, window_table
from benchmarks.pages.figures import PageCost, PageFigures, PrometheusCost, TunerCost
from benchmarks.pages.page import ShownEngine
from benchmarks.pages.reference import read_by_library
from fathom.adapters.metrics_page import PageReader
from fathom.adapters.series import FAMILIES

PAGE = PageCost(100_000, 1200, 15.0, 18.0, 0.75, 0.25, 2.5, 1.5)
STEADY = TunerCost("steady", pods=4, decide_ms=2.0, looks=1.5)
SLO = TunerCost("goodput-slo", pods=4, decide_ms=4.0, looks=1.5)
PROMETHEUS = PrometheusCost(whole_ms=30.0, whole_kib=2000.0, last_ms=6.0, last_kib=400.0)
FIGURES = PageFigures(PAGE, PROMETHEUS, (STEADY, SLO))


def test_a_window_holds_looks_and_a_share_of_each_decision() -> None:
    assert STEADY.window_ms(PAGE) == 3.0
    assert STEADY.cores(PAGE) == pytest.approx(0.4)
    assert PAGE.ratio == 20
    assert FIGURES.dearest is SLO


@pytest.mark.parametrize(
    ("look_ms", "words"),
    [
        (1.5, "0.50 of a core (world goodput-slo), at most 0.5 that"),
        (1.6, "0.52 of a core (world goodput-slo), more than the 0.5 that"),
    ],
)
def test_the_dearest_world_decides(look_ms: float, words: str) -> None:
    figures = replace(FIGURES, page=replace(PAGE, look_ms=look_ms))
    assert figures.holds is ("at most" in words)
    assert words in verdict(figures)
    assert (page_table(figures).row_count, window_table(figures).row_count) == (6, 2)


def test_a_prometheus_stands_with_how_much_less_is_asked_for() -> None:
    cells = [list(column.cells) for column in prometheus_table(PROMETHEUS).columns]
    assert [row[1] for row in cells] == ["the last scrape", "6.00", "0.200", "400", "0.200"]


def test_the_page_shows_all_that_is_read_and_moves_in_a_few_cells(tmp_path: Path) -> None:
    engine = ShownEngine("model", tmp_path)
    reader, before, after = PageReader(), engine.page(), engine.page_after_work()
    first, second = (reader.read(each, pod="p", at_s=0) for each in (before, after))

    shown = {line.partition(b"{")[0].partition(b" ")[0].decode() for line in after.splitlines()}
    assert shown >= FAMILIES
    assert second == read_by_library(after, "p", at_s=0)
    moved = {cell for cell, counts in second.cells.items() if counts != first.cells[cell]}
    assert len(moved) == 4
    assert len(second.cells) > 100
