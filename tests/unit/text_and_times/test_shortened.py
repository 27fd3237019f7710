import pytest

from fathom.text import shortened


@pytest.mark.parametrize("text", ["", "short", "x" * 100])
def test_what_fits_stays_as_it_is(text: str) -> None:
    assert shortened(text, 100) == text


@pytest.mark.parametrize("length", [101, 130, 999, 1000, 1080, 10_000, 1_000_000])
def test_both_ends_stay_and_what_is_left_out_is_counted(length: int) -> None:
    text = "".join(chr(0x100 + i % 0x1000) for i in range(length))
    found = shortened(text, 100)
    assert len(found) <= 100
    head, count, tail = found.split(" ... ")
    number = int(count.removesuffix(" more characters"))
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + number + len(tail) == length
