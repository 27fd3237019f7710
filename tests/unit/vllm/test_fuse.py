"""When errors switch the hook off."""

from fathom_vllm.hook import FIRST_REST_SECONDS, MOST_ERRORS, WITHIN_STEPS, Fuse


def failing(fuse: Fuse, errors: int, *, apart: int = 1, at_s: float = 0.0) -> list[bool]:
    """So many errors, each so many steps after the one before it."""
    blown = []
    for _ in range(errors):
        fuse.steps += apart
        blown.append(fuse.error(at_s))
    return blown


def test_the_tenth_error_within_a_thousand_steps_blows_it() -> None:
    apart = (WITHIN_STEPS - 1) // (MOST_ERRORS - 1)
    fuse = Fuse()
    assert failing(fuse, MOST_ERRORS, apart=apart) == [False] * (MOST_ERRORS - 1) + [True]
    assert fuse.blown


def test_errors_further_apart_never_do() -> None:
    fuse = Fuse()
    assert not any(failing(fuse, 1000, apart=WITHIN_STEPS // (MOST_ERRORS - 1) + 1))
    assert not fuse.blown


def test_several_errors_in_one_step_count_each() -> None:
    assert failing(Fuse(), MOST_ERRORS, apart=0)[-1]


def test_only_the_first_error_in_a_while_is_news() -> None:
    fuse = Fuse()
    news = []
    for apart in (1, 1, WITHIN_STEPS - 1, WITHIN_STEPS):
        failing(fuse, 1, apart=apart)
        news.append(fuse.has_news)
    assert news == [True, False, False, True]


def test_it_rests_and_begins_anew() -> None:
    fuse = Fuse()
    failing(fuse, MOST_ERRORS, at_s=5.0)
    assert not fuse.mend(5.0 + FIRST_REST_SECONDS - 0.1)
    assert fuse.mend(5.0 + FIRST_REST_SECONDS)
    assert failing(fuse, MOST_ERRORS - 1) == [False] * (MOST_ERRORS - 1)


def test_it_rests_longer_when_it_blows_again_and_not_after_it_held() -> None:
    fuse = Fuse()
    now_s = 0.0
    rests = []
    for _ in range(8):
        failing(fuse, MOST_ERRORS, at_s=now_s)
        rests.append(fuse.rest_s)
        now_s += fuse.rest_s
        assert fuse.mend(now_s)
    assert rests == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    fuse.steps += WITHIN_STEPS
    failing(fuse, MOST_ERRORS, at_s=now_s)
    assert fuse.rest_s == FIRST_REST_SECONDS
