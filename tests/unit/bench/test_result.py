"""From what a pod said to rows, ratios and an interval."""

import random
from math import sqrt

import pytest

from fathom.bench.log import Heard, heard
from fathom.bench.result import acceptance_length, found, result_config_map
from fathom.measurement.bench_result import DepthBench
from unit.bench.benches import log, result_line, sample

AT = "2026-11-25T16:00:00Z"


def bench(*lines: str) -> DepthBench:
    return found(sample(), heard(log(*lines)), AT)


def test_each_row_has_its_ratio_to_depth_0_and_to_true_off() -> None:
    made = bench(
        result_line(0, 100.0),
        result_line(3, 180.0, drafts=400, survival=(0.9, 0.8, 0.7)),
        result_line(None, 120.0),
    )

    assert [(row.depth, row.over_depth_0, row.over_true_off) for row in made.rows] == [
        (0, 1.0, 0.8333),
        (3, 1.8, 1.5),
        (None, 1.2, 1.0),
    ]
    assert made.rows[1].tokens_per_second_per_user == 250.0
    assert made.rows[1].input_tokens == 9
    assert made.rows[0].acceptance is None


def test_ratios_are_among_equal_prompts_at_equal_concurrency() -> None:
    made = bench(
        result_line(0, 100.0, concurrency=1),
        result_line(3, 300.0, concurrency=4),
        result_line(None, 50.0, data="others", concurrency=4),
    )

    assert made.rows[1].over_depth_0 is None
    assert made.rows[1].over_true_off is None


def test_a_run_that_nobody_answered_is_not_measured_and_is_no_divisor() -> None:
    made = bench(result_line(0, 0.0, completed=0, failed=8), result_line(3, 180.0))

    assert [row.depth for row in made.rows] == [3]
    assert made.rows[0].over_depth_0 is None
    assert made.not_measured[0].startswith("chats, 1 at a time, depth 0: none of 8 requests")


def test_acceptance_length_is_vllm_s_and_its_interval_narrows_with_drafts() -> None:
    few = acceptance_length(100, (0.9, 0.8, 0.7))
    many = acceptance_length(10_000, (0.9, 0.8, 0.7))

    assert few.mean == many.mean == 3.4
    assert (few.high - few.low) / (many.high - many.low) == pytest.approx(10, rel=1e-3)


def test_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    """Drafts that are accepted one by one with probability 0.8, three at most."""
    dice = random.Random(7)
    truth = 1 + 0.8 + 0.64 + 0.512
    held = 0
    for _ in range(1000):
        counts = [0, 0, 0]
        for _ in range(300):
            for position in range(3):
                if dice.random() >= 0.8:
                    break
                counts[position] += 1
        found_length = acceptance_length(300, [count / 300 for count in counts])
        held += found_length.low <= truth <= found_length.high
    assert abs(held / 1000 - 0.95) < 3 * sqrt(0.95 * 0.05 / 1000)


def test_a_result_survives_its_config_map() -> None:
    made = bench(result_line(3, 180.0, drafts=400, survival=(0.9,)), result_line(None, 90.0))

    kept = result_config_map(sample(), made)

    data = kept["data"]
    assert isinstance(data, dict)
    assert DepthBench.from_json(str(data["result.json"])) == made
    assert DepthBench.from_json("{}") is None


def test_what_else_is_in_a_log_is_passed_over() -> None:
    text = (
        'INFO vllm starts\n{"said":"end"}\n'
        + log('{"said":"plan","runs":2}', result_line(3, 1.0))
        + 'fathom-bench {"said":"res'
    )

    told = heard(text)

    assert (told.runs, len(told.results), told.ended, told.failures) == (2, 1, False, ())


def test_a_result_that_lacks_something_is_not_measured_and_said_so() -> None:
    line = result_line(3, 1.0).replace("mean_tpot_ms", "mean_tpot")

    told = heard(log(line))

    assert told.results == ()
    assert told.failures[0].startswith("the pod wrote what this Fathom does not understand: {")


def test_what_it_is_at_is_the_last_that_began() -> None:
    assert heard("") == Heard()
    told = heard(
        log(
            '{"said":"starting","drafts":true}',
            '{"said":"running","data":"chats","concurrency":4,"depth":null,"prompts":32}',
        )
    )
    assert told.now == "chats, 4 at a time, true off: 32 requests"
