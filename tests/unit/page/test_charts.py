from dataclasses import replace
from math import nan

from fathom.page.charts import charts_of, panels_of
from fathom.page.history import HistoryPoint


def point(at_s: float, depths: list[int], speed: float = 800.0) -> HistoryPoint:
    return HistoryPoint(
        at_s=at_s,
        tokens_per_second=speed,
        mean_batch=4.0,
        acceptance_length=3.14159,
        gain_percent=nan,
        gained_percent=nan,
        gained_error_percent=nan,
        depths=bytes(depths),
    )


def test_batches_that_always_had_the_same_depth_are_one_row() -> None:
    charts = charts_of([point(1, [5, 5, 3, 3]), point(2, [5, 4, 3, 3])])

    assert [(each.batches, each.depths) for each in charts.depths] == [
        ("1", (5, 5)),
        ("2", (5, 4)),
        ("3+", (3, 3)),
    ]


def test_one_depth_for_all_is_said_so() -> None:
    (row,) = charts_of([point(1, [3] * 12)]).depths
    assert row.batches == "all"


def test_an_engine_that_had_fewer_batches_has_no_depth_at_the_others() -> None:
    charts = charts_of([point(1, [3, 3]), point(2, [3, 3, 3])])
    assert [each.depths for each in charts.depths] == [(3, 3), (None, 3)]


def test_every_range_of_batches_has_its_row() -> None:
    # Depths 0 to 11 at batches 1 to 8, 9-10, 11-12, 13-14 and more.
    charts = charts_of([point(1, list(range(12)))])
    assert [each.batches for each in charts.depths][-3:] == ["11-12", "13-14", "15+"]
    assert len(charts.depths) == 12


def test_what_was_not_measured_is_nothing_and_not_zero() -> None:
    charts = charts_of([point(1.6, [3], nan)])

    assert charts.at_s == (2,)
    assert (charts.tokens_per_second, charts.gain_percent) == ((None,), (None,))
    assert charts.acceptance_length == (3.14,)


def test_no_point_is_no_row() -> None:
    charts = charts_of([])
    assert (charts.at_s, charts.depths) == ((), ())


def bare(depths: list[int], speed: float = nan) -> HistoryPoint:
    return replace(point(1, depths, speed), mean_batch=nan, acceptance_length=nan)


def test_charts_without_anything_to_draw_say_what_is_missing() -> None:
    panels, empty = panels_of(charts_of([bare([3])]), 3)

    assert panels == ("depth",)
    (measured,) = empty
    assert measured.names == (
        *("tokens_per_second", "mean_batch", "acceptance_length", "gain_percent"),
    )
    assert "the first window that has requests" in measured.missing


def test_what_is_missing_of_a_window_is_said_of_each_chart() -> None:
    panels, empty = panels_of(charts_of([bare([], 800.0)]), 3, "mode is Static.")

    assert panels == ("tokens_per_second",)
    missing = {name: each.missing for each in empty for name in each.names}
    assert missing["depth"] == "It does not change while the engines run: mode is Static."
    assert missing["acceptance_length"] == "No window verified a draft."
    assert "the speeds at depth 3 and at the depth in force" in missing["gain_percent"]


def test_the_gain_in_all_is_drawn_where_no_window_has_one() -> None:
    known = replace(point(1, [3]), gained_percent=4.0, gained_error_percent=1.0)
    panels, empty = panels_of(charts_of([known]), 3)
    assert panels[-1] == "gain_percent"
    assert empty == ()
