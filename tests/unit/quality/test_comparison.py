"""Where two answers part, and what of that is a near-tie."""

import pytest

from fathom.quality.comparison import (
    LIKELIEST,
    TIE_NATS,
    Completion,
    Difference,
    continuations,
    differences,
    gap_nats,
    gap_request,
    tokens_compared,
)


def said(*token_ids: int, text: str = "") -> Completion:
    return Completion(token_ids=token_ids, text=text, prompt_token_ids=(7, 8))


@pytest.mark.parametrize(
    ("other", "position", "compared"),
    [
        (said(1, 2, 3), None, 3),
        (said(9, 2, 3), 0, 1),
        (said(1, 2, 9), 2, 3),
        (said(1, 2), 2, 3),
        (said(1, 2, 3, 4), 3, 4),
    ],
    ids=["same", "at once", "last", "ends earlier", "ends later"],
)
def test_the_first_difference_ends_the_comparison(
    other: Completion, position: int | None, compared: int
) -> None:
    one = said(1, 2, 3)

    found = differences([one], [other])

    assert found == (() if position is None else (Difference(0, position),))
    assert tokens_compared([one], [other]) == compared


def test_each_prompt_is_compared_with_its_own() -> None:
    reference = [said(1, 2), said(3), said(4, 5)]
    speculating = [said(1, 2), said(9), said(4, 6)]

    assert differences(reference, speculating) == (Difference(1, 0), Difference(2, 1))
    assert tokens_compared(reference, speculating) == 2 + 1 + 2


def test_the_gap_is_asked_where_they_parted() -> None:
    request = gap_request(said(1, 2, 3), Difference(0, 2))

    assert request.prompt == (7, 8, 1, 2)
    assert (request.most_tokens, request.likeliest) == (1, LIKELIEST)


@pytest.mark.parametrize(
    ("logprobs", "gap"),
    [
        ({3: -0.7, 9: -0.9, 5: -4.0}, 0.2),
        # The candidate of the other one is the likelier now.
        ({9: -0.6, 3: -0.8}, -0.2),
        ({3: -0.1, 5: -2.0}, None),
        ({}, None),
    ],
)
def test_the_gap_is_between_the_two_candidates(
    logprobs: dict[int, float], gap: float | None
) -> None:
    again = Completion(token_ids=(3,), text="", logprobs=logprobs)

    found = gap_nats(Difference(0, 2), said(1, 2, 3), said(1, 2, 9), again)

    assert found == (None if gap is None else pytest.approx(gap))


def test_an_end_has_no_gap() -> None:
    again = Completion(token_ids=(3,), text="", logprobs={3: -0.1})

    assert gap_nats(Difference(0, 2), said(1, 2, 3), said(1, 2), again) is None


@pytest.mark.parametrize(
    ("gap", "tie", "taken_back"),
    [
        (0.0, True, False),
        (TIE_NATS, True, False),
        (-TIE_NATS, True, False),
        (TIE_NATS + 0.01, False, False),
        (-TIE_NATS - 0.01, False, True),
        (None, False, False),
    ],
)
def test_only_a_small_known_gap_is_a_tie(gap: float | None, *, tie: bool, taken_back: bool) -> None:
    found = Difference(0, 0, gap)
    assert (found.is_tie, found.is_taken_back) == (tie, taken_back)


def test_continuations_begin_where_the_texts_part() -> None:
    one, other = continuations(said(text=" the old man" + "!" * 60), said(text=" the sea"))

    assert (one[:8], other) == ("old man!", "sea")
    assert len(one) == 40
    assert continuations(said(text="same"), said(text="same")) == ("", "")
