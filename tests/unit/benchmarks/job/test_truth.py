"""Rows of a bench beside the acceptance that the constructed pair has."""

import json

import pytest

from benchmarks.job.prompts import share_gpt, speed_bench
from benchmarks.job.truth import compared
from fathom.bench.log import heard
from fathom.bench.result import found
from fathom.measurement.bench_result import DepthBench
from local_cluster.engine.language import EASY, HARD, vocabulary
from unit.bench.benches import log, result_line, sample


def bench(*lines: str) -> DepthBench:
    return found(sample(), heard(log(*lines)), "2026-11-25T16:00:00Z")


def test_what_is_accepted_as_constructed_holds_and_nothing_else_does() -> None:
    truth = EASY.survival(3, 96)
    less = tuple(0.9 * share for share in truth)

    held, missed = compared(
        bench(
            result_line(3, 9.0, data="easy", drafts=2000, survival=truth),
            result_line(3, 9.0, data="easy", concurrency=4, drafts=2000, survival=less),
        ),
        {"easy": "easy"},
        96,
    )

    assert held.holds
    assert not missed.holds
    assert held.truth == pytest.approx(1 + sum(truth))


def test_only_rows_at_which_something_is_drafted_and_known_are_compared() -> None:
    made = bench(
        result_line(0, 9.0, data="easy"),
        result_line(None, 9.0, data="easy"),
        result_line(3, 9.0, data="random 64", drafts=10, survival=(0.5,)),
    )

    assert compared(made, {"easy": "easy"}, 96) == ()


def test_nothing_drafted_where_something_should_be_holds_no_truth() -> None:
    (row,) = compared(bench(result_line(3, 9.0, data="easy")), {"easy": "easy"}, 96)

    assert not row.holds


def test_prompts_are_words_of_their_class_from_all_around_its_cycle() -> None:
    words = vocabulary()
    told = [each["conversations"] for each in json.loads(share_gpt(HARD, 10))]

    texts = [turns[0]["value"].split() for turns in told]
    assert all(len(turns) == 2 for turns in told)
    assert all(len(text) == 8 and set(text) <= words.keys() for text in texts)
    assert [text[0] for text in texts] == [f"hard-{100 * index}" for index in range(10)]
    for text in texts:
        first = words[text[0]]
        assert [words[word] for word in text[1:]] == list(HARD.walk(first, 7))


def test_speed_bench_s_shape_has_a_category_in_each_line() -> None:
    lines = [json.loads(line) for line in speed_bench(EASY, 3).splitlines()]

    assert {line["category"] for line in lines} == {"easy"}
    assert all(line["messages"][0]["role"] == "user" for line in lines)
