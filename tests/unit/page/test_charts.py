from math import nan

from fathom.page.history import MOST_LINES, HistoryPoint, charts_of


def point(at_s: float, depths: list[int], speed: float = 800.0) -> HistoryPoint:
    return HistoryPoint(
        at_s=at_s,
        tokens_per_second=speed,
        mean_batch=4.0,
        acceptance_length=3.14159,
        gain_percent=nan,
        depths=bytes(depths),
    )


def test_batches_that_always_had_the_same_depth_are_one_line() -> None:
    charts = charts_of([point(1, [5, 5, 3, 3]), point(2, [5, 4, 3, 3])], ())

    assert [(each.batches, each.depths) for each in charts.depths] == [
        ("batch 1", (5, 5)),
        ("batch 2", (5, 4)),
        ("batch 3 and more", (3, 3)),
    ]


def test_one_depth_for_all_is_said_so() -> None:
    (line,) = charts_of([point(1, [3] * 12)], ()).depths
    assert line.batches == "every batch"


def test_an_engine_that_had_fewer_batches_has_no_depth_at_the_others() -> None:
    charts = charts_of([point(1, [3, 3]), point(2, [3, 3, 3])], ())
    assert [each.depths for each in charts.depths] == [(3, 3), (None, 3)]


def test_of_too_many_lines_those_with_load_are_shown_and_the_rest_is_counted() -> None:
    # Depths 0 to 11 at batches 1 to 8, 9-10, 11-12, 13-14 and more; the load is at the last.
    charts = charts_of([point(1, list(range(12)))], {14, 16})

    assert len(charts.depths) == MOST_LINES
    assert charts.left_out == 12 - MOST_LINES
    assert [each.batches for each in charts.depths][-2:] == ["batch 13-14", "batch 15 and more"]


def test_what_was_not_measured_is_nothing_and_not_zero() -> None:
    charts = charts_of([point(1.6, [3], nan)], ())

    assert charts.at_s == (2,)
    assert (charts.tokens_per_second, charts.gain_percent) == ((None,), (None,))
    assert charts.acceptance_length == (3.14,)


def test_no_point_is_no_line() -> None:
    charts = charts_of([], ())
    assert (charts.at_s, charts.depths) == ((), ())
