"""What the demo says of what it saw, and with which exit code."""

import random
from dataclasses import replace

import pytest

from local_cluster.demo.measure import Comparison, Slice, Turns
from local_cluster.demo.phases import SCENES, Asks
from local_cluster.demo.verdict import (
    DemoOutcome,
    Move,
    Served,
    last_word,
    loop_claims,
    not_compared,
    outcome,
    speed_claim,
)

EASY, HARD = SCENES
ALL_SERVED = Served(requests=1000, failed=0, first_error="", restarts=0)
FOLLOWED = (
    Move(scene=EASY, before=3, after=7, seconds=31.0),
    Move(scene=HARD, before=7, after=1, seconds=24.0),
)


def compared(truth: float, noise: float) -> Comparison:
    rng = random.Random(1)
    sides = (
        tuple(Slice(100.0, 200 * times + rng.gauss(0, noise)) for _ in range(6))
        for times in (truth, 1.0)
    )
    return Comparison(phase=HARD.phase, depth=1, static_depth=3, turns=Turns(*sides))


FASTER, SLOWER, UNCLEAR = compared(1.3, 5), compared(0.8, 5), compared(1.05, 40)


def ended(
    *comparisons: Comparison,
    moves: tuple[Move, ...] = FOLLOWED,
    served: Served = ALL_SERVED,
    strict: bool = False,
) -> DemoOutcome:
    return outcome(loop_claims(moves, served), [*map(speed_claim, comparisons)], strict=strict)


def test_exit_codes_are_what_the_command_documents() -> None:
    assert [(each.name, each.value) for each in DemoOutcome] == [
        ("HELD", 0),
        ("REFUTED", 1),
        ("TOO_NOISY", 3),
    ]


@pytest.mark.parametrize("comparisons", [(FASTER, FASTER), (FASTER, UNCLEAR), (SLOWER,), ()])
def test_a_loop_that_worked_is_enough_however_noisy_the_machine(
    comparisons: tuple[Comparison, ...],
) -> None:
    assert ended(*comparisons) is DemoOutcome.HELD


@pytest.mark.parametrize(
    ("comparisons", "code"),
    [
        ((FASTER, FASTER), DemoOutcome.HELD),
        ((FASTER, UNCLEAR), DemoOutcome.TOO_NOISY),
        ((UNCLEAR, SLOWER), DemoOutcome.REFUTED),
    ],
)
def test_with_strict_what_is_not_clear_is_a_failure(
    comparisons: tuple[Comparison, ...], code: DemoOutcome
) -> None:
    assert ended(*comparisons, strict=True) is code


def test_the_same_depth_is_no_gain_whatever_was_measured() -> None:
    claim = speed_claim(replace(FASTER, depth=3))
    assert claim.holds is None
    assert "tuned depth is 3, too, so there is nothing to compare" in claim.text


@pytest.mark.parametrize(
    "served",
    [
        Served(requests=1000, failed=1, first_error="HTTP 500", restarts=0),
        Served(requests=1000, failed=0, first_error="", restarts=1),
        Served(requests=0, failed=0, first_error="", restarts=0),
    ],
)
def test_what_was_lost_was_lost(served: Served) -> None:
    assert ended(FASTER, served=served) is DemoOutcome.REFUTED


@pytest.mark.parametrize("strict", [True, False])
def test_depth_that_does_not_follow_is_a_failure_that_says_what_was_asked(*, strict: bool) -> None:
    stuck = (FOLLOWED[0], Move(scene=HARD, before=7, after=7, seconds=300.0))
    assert ended(FASTER, moves=stuck, strict=strict) is DemoOutcome.REFUTED
    followed, missed, *_ = loop_claims(stuck, ALL_SERVED)
    assert (followed.holds, followed.text) == (True, "easy × 4: depth 3 → 7 after 31 s")
    assert missed.text == (
        "hard × 4: depth was 7 and is 7 after 300 s; this traffic asks for a shallower one"
    )


def test_a_move_is_one_in_the_direction_that_the_traffic_asks() -> None:
    assert Asks.DEEPER.moved(3, 4)
    assert not Asks.DEEPER.moved(3, 3)
    assert not Asks.DEEPER.moved(3, 1)
    assert Asks.SHALLOWER.moved(7, 6)
    assert not Asks.SHALLOWER.moved(7, 7)


def test_a_gain_is_a_number_with_its_bounds_and_says_when_it_decides_nothing() -> None:
    faster, slower, unclear = map(speed_claim, (FASTER, SLOWER, UNCLEAR))
    assert (faster.holds, slower.holds, unclear.holds) == (True, False, None)
    assert faster.text.startswith("hard × 4: 1.3")
    assert "times the tokens of the static depth (95 %: 1.2" in faster.text
    assert unclear.text.endswith(": which one is faster is not clear")


def test_a_comparison_that_ended_early_says_nothing_about_speed() -> None:
    early = not_compared(EASY.phase, "Depth 3 was not in force within 60 s.")
    assert early.text == "easy × 4: not compared: Depth 3 was not in force within 60 s."
    loop = loop_claims(FOLLOWED, ALL_SERVED)
    assert outcome(loop, [early], strict=False) is DemoOutcome.HELD
    assert outcome(loop, [speed_claim(FASTER), early], strict=True) is DemoOutcome.TOO_NOISY


def test_the_last_word_names_the_exit_code() -> None:
    speed = [speed_claim(FASTER)]
    assert last_word(DemoOutcome.HELD, speed) == "Depth followed the traffic (exit code 0)."
    assert "--strict makes it a failure" in last_word(DemoOutcome.HELD, [speed_claim(UNCLEAR)])
    assert "(exit code 3)" in last_word(DemoOutcome.TOO_NOISY, speed)
    assert "(exit code 1)" in last_word(DemoOutcome.REFUTED, speed)
