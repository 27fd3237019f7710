"""When the status may say something else: at once, unless it only comes and goes."""

from dataclasses import replace

import pytest

from fathom.api.status import MeasuredStatus, SpeculativeDeploymentStatus
from fathom.reconcile.last_status import (
    COMING_AND_GOING_S,
    HOUR_S,
    NEWS_AN_HOUR,
    QUIET_S,
    RETURNS_AN_HOUR,
    Said,
)

START_S = 1_800_000_000.0
NEVER = Said(at_s=float("-inf"))


def status(ready: int, **changes: object) -> SpeculativeDeploymentStatus:
    return SpeculativeDeploymentStatus(
        ready_replicas=ready, ready=f"{ready}/9", observed_generation=1
    ).model_copy(update=changes)


def told(said: Said, new: SpeculativeDeploymentStatus, now_s: float) -> tuple[Said, bool]:
    """What one look makes of it, and whether it is written."""
    if said.stands(new, said.written) or said.wait_s(new, said.written, now_s) > 0:
        return said, False
    return said.after(new, kept=new, version="1", now_s=now_s), True


def flapping(said: Said, begin_s: float, seconds: int) -> tuple[Said, list[float]]:
    """One pod of nine is ready, and is not, each ten seconds; and when the status is written."""
    written = []
    for at_s in range(int(begin_s), int(begin_s) + seconds, 10):
        said, wrote = told(said, status(9 - (at_s // 10) % 2), at_s)
        written += [float(at_s)] if wrote else []
    return said, written


def busiest_hour(written: list[float]) -> int:
    return max(sum(0 <= each - at_s < HOUR_S for each in written) for at_s in written)


def test_flapping_is_told_at_once_first_and_in_no_hour_often() -> None:
    _, written = flapping(NEVER, START_S, 5 * 3600)
    first = written[:RETURNS_AN_HOUR]
    assert first[-1] - first[0] <= 10 * RETURNS_AN_HOUR
    assert busiest_hour(written) <= RETURNS_AN_HOUR + HOUR_S / COMING_AND_GOING_S + 1


def test_what_stays_is_told_in_the_end_whatever_came_before() -> None:
    said, _ = flapping(NEVER, START_S, 3600)
    for ready in (8, 9):
        left = status(ready)
        wait_s = said.wait_s(left, said.written, START_S + 3600)
        assert said.stands(left, said.written) or 0 < wait_s <= COMING_AND_GOING_S
        assert said.wait_s(left, said.written, START_S + 3600 + COMING_AND_GOING_S) == 0


def test_what_was_not_told_lately_is_told_at_once_amid_the_flapping() -> None:
    said, _ = flapping(NEVER, START_S, 3600)
    now_s = START_S + 3600
    assert said.wait_s(status(0), said.written, now_s) == 0
    assert said.wait_s(status(9, observed_generation=2), said.written, now_s) == 0
    said, wrote = told(said, status(0), now_s)
    assert wrote


def test_an_hour_later_it_is_told_at_once_again() -> None:
    said, _ = flapping(NEVER, START_S, 3600)
    assert said.wait_s(status(8), said.written, START_S + 3 * HOUR_S) == 0


def test_what_never_says_the_same_twice_is_bounded_too() -> None:
    said, written = NEVER, []
    for at_s in range(int(START_S), int(START_S) + 2 * 3600, 2):
        said, wrote = told(said, status(9, observed_generation=at_s), at_s)
        written += [float(at_s)] if wrote else []
    assert busiest_hour(written) <= NEWS_AN_HOUR + HOUR_S / QUIET_S + 1


def test_measurements_do_not_wait_for_readiness() -> None:
    """They are written once a minute, and what comes and goes with them."""
    said, _ = flapping(NEVER, START_S, 3600)
    written = said.written
    assert written is not None
    other = status(17 - written.ready_replicas)
    measured = other.model_copy(update={"measured": MeasuredStatus(tokens_per_second=7)})
    assert said.wait_s(measured, written, said.at_s + 1) == QUIET_S - 1
    assert said.wait_s(other, written, said.at_s + 1) == COMING_AND_GOING_S - 1


@pytest.mark.parametrize("back_s", [1.0, 7200.0])
def test_a_clock_that_is_set_back_keeps_nothing_waiting(back_s: float) -> None:
    said, _ = flapping(NEVER, START_S, 3600)
    assert said.wait_s(status(8), replace(said, written=status(9)).written, START_S - back_s) == 0
