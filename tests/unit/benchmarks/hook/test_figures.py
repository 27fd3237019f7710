"""What follows from the hook's benchmark."""

from dataclasses import replace

import pytest

from benchmarks.hook.command import table, verdict
from benchmarks.hook.figures import Figures, Rounds, SlowStat


def rounds(batch: int, added_us: float) -> Rounds:
    return Rounds(batch, "decode", [1000.0] * 25, [added_us - 12 + at for at in range(25)])


KEPT = Figures(
    [rounds(16, 500.0), rounds(256, 40.0), rounds(1024, 100.0)], SlowStat(300, 6, 499.0), 0.5
)


def test_a_round_tells_its_median_interval_and_ratio() -> None:
    found = rounds(256, 40.0)
    assert (found.step_us, found.hook_us, found.ratio) == (1000, 40, 1.04)
    assert found.interval_us == (35, 45)


def test_figures_survive_the_way_between_the_processes() -> None:
    assert Figures.from_json(KEPT.to_json()) == KEPT


def test_bounds_that_are_kept() -> None:
    assert KEPT.holds
    assert verdict(KEPT).endswith("no step waited for it.\nEvery bound is kept.")
    assert table(KEPT).row_count == 3


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (replace(KEPT, rounds=[rounds(256, 41.0)]), "At batch 256 (decode) the hook adds 41.0 µs"),
        (replace(KEPT, rounds=[rounds(1024, 101.0)]), "more than the 100 that it may"),
        (replace(KEPT, slow_stat=SlowStat(300, 6, 500.0)), "a step may have waited for it"),
        (replace(KEPT, slow_stat=SlowStat(300, 0, 1.0)), "a step may have waited for it"),
    ],
)
def test_each_bound_that_is_broken_is_told(broken: Figures, words: str) -> None:
    assert not broken.holds
    assert words in verdict(broken)
    assert "busy" not in verdict(broken)
    assert "The machine was busy (load 9.0" in verdict(replace(broken, load_per_processor=9.0))
