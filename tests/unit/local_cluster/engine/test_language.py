"""The constructed language: successors, hard tokens, and the acceptance that follows."""

import pytest

from local_cluster.engine.language import (
    CYCLE_TOKENS,
    EAGLE3_CLASSES,
    EASY,
    HARD,
    VOCABULARY,
    TrafficClass,
    class_of,
    vocabulary,
)

CLASSES = pytest.mark.parametrize("traffic", [EASY, HARD], ids=lambda traffic: traffic.name)


@CLASSES
def test_a_walk_returns_to_its_start_after_the_whole_cycle(traffic: TrafficClass) -> None:
    walk = traffic.walk(traffic.first_token, CYCLE_TOKENS)
    assert walk[-1] == traffic.first_token
    assert len(set(walk)) == CYCLE_TOKENS
    assert all(class_of(token) is traffic for token in walk)
    assert walk[0] == traffic.successor(traffic.first_token)


@CLASSES
def test_drafts_are_right_up_to_the_first_hard_token(traffic: TrafficClass) -> None:
    for token in traffic.walk(traffic.first_token, CYCLE_TOKENS):
        drafted_from = (token, *traffic.walk(token, 6))
        right = traffic.accepted(token, 7)
        assert not any(source in traffic.hard_tokens for source in drafted_from[:right])
        assert right == 7 or drafted_from[right] in traffic.hard_tokens
        assert traffic.accepted(token, 0) == 0


@CLASSES
def test_survival_follows_the_share_of_hard_tokens(traffic: TrafficClass) -> None:
    survival = traffic.survival(7)
    assert survival == tuple(sorted(survival, reverse=True))
    for position, value in enumerate(survival, start=1):
        assert value == pytest.approx((1 - traffic.hard_share) ** position, abs=0.06)


def test_the_classes_call_for_different_depths() -> None:
    assert EASY.survival(7)[6] > 0.8
    assert HARD.survival(7)[0] < 0.15


def test_the_older_draft_is_worse_at_easy_text_and_still_wants_depth() -> None:
    easy, hard = EAGLE3_CLASSES
    assert (easy.name, easy.first_token, hard) == (EASY.name, EASY.first_token, HARD)
    older, newer = easy.survival(7), EASY.survival(7)
    assert sum(newer) > 1.3 * sum(older)
    # Each of the last drafts is worth more than the tenth of a step that it costs.
    assert older[6] > 0.1 * (1 + sum(older)) / 1.7


def test_hard_tokens_are_the_same_everywhere() -> None:
    again = TrafficClass("easy", EASY.first_token, EASY.hard_share)
    assert again.hard_tokens == EASY.hard_tokens
    assert len(EASY.hard_tokens) == 20
    assert len(HARD.hard_tokens) == 900


def test_every_token_has_its_word() -> None:
    words = vocabulary()
    assert sorted(words.values()) == list(range(VOCABULARY))
    assert words[EASY.word(EASY.first_token + 17)] == EASY.first_token + 17
    assert words["hard-0"] == HARD.first_token
    assert class_of(0) is None
    assert class_of(VOCABULARY - 1) is None
