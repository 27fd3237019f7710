"""Rate and time left, from successive looks."""

from fathom.fetch.state import FetchedBytes, FetchProgress, size

GIB = 1 << 30


def progress(*looks: tuple[float, float]) -> FetchProgress:
    """Looks at seconds, with GiB present of 100."""
    found = FetchProgress()
    for at_s, present in looks:
        found = found.after(FetchedBytes(at_s, int(present * GIB), 100 * GIB))
    return found


def test_nothing_is_said_of_what_was_not_seen() -> None:
    assert FetchProgress().summary == "starting"
    assert FetchProgress().percent is None
    assert FetchProgress().bytes_per_second is None


def test_one_look_has_no_rate() -> None:
    assert progress((0, 40)).summary == "40 GiB of 100 GiB"


def test_the_rate_is_that_of_the_last_minute() -> None:
    found = progress((0, 0), (100, 10), (130, 40))
    assert found.bytes_per_second == GIB
    assert found.summary == "40 GiB of 100 GiB, 1.0 GiB/s, 1 min left"
    assert found.percent == 40


def test_a_fetch_that_stalls_says_since_when_instead_of_a_time_left() -> None:
    assert progress((0, 40), (30, 40)).summary == (
        "40 GiB of 100 GiB, nothing came in the last 30 s"
    )


def test_fewer_bytes_than_before_begin_anew() -> None:
    """As after a kill: what was under way is lost."""
    found = progress((0, 40), (10, 50), (20, 30))
    assert found.bytes_per_second is None
    assert found.summary == "30 GiB of 100 GiB"


def test_another_total_begins_anew() -> None:
    found = progress((0, 40)).after(FetchedBytes(10, 50 * GIB, 200 * GIB))
    assert found.summary == "50 GiB of 200 GiB"


def test_times_left_are_told_in_the_unit_that_fits() -> None:
    assert progress((0, 0), (10, 50)).summary.endswith(", 10 s left")
    assert progress((0, 0), (50, 0.5)).summary.endswith(", 2.8 h left")


def test_sizes_have_few_digits() -> None:
    assert [size(each) for each in (0, 1023, 1536, 20 * 1024, 5 << 50)] == [
        "0 bytes",
        "1023 bytes",
        "1.5 KiB",
        "20 KiB",
        "5.0 PiB",
    ]
