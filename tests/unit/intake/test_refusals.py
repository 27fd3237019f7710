"""A code and numbers become a sentence: the cause, where it is, what to do."""

import json

import pytest

from fathom_intake.model_weights import FaultKind
from fathom_intake.verdict import LONGEST_MESSAGE, Code, Refusal


@pytest.mark.parametrize("code", Code)
def test_each_code_has_sentences_with_or_without_its_numbers(code: Code) -> None:
    for numbers in ({}, {"found": 7, "most": 5}):
        refusal = Refusal(code, numbers)
        assert refusal.sentence.count(". ") + refusal.sentence.count(": ") >= 1
        assert refusal.sentence.endswith(".")
        assert not {"{found}", "{most}"} & {*refusal.sentence.split()}
        assert Refusal.from_json(refusal.to_json()) == refusal
        assert len(refusal.to_json()) < LONGEST_MESSAGE


def test_numbers_are_in_the_sentence() -> None:
    said = Refusal(Code.TOO_LARGE, {"found": 4 << 40, "most": 1 << 30}).sentence
    assert said.startswith("The draft's files have 4398046511104 of at most 1073741824 bytes: ")


def test_a_result_is_shown_as_it_is_written() -> None:
    assert '{"schema": 1, "draft": "draft"}' in Refusal(Code.BAD_RESULT).sentence


@pytest.mark.parametrize("fault", FaultKind)
def test_each_fault_of_weights_has_its_words(fault: FaultKind) -> None:
    refusal = Refusal(Code.BAD_WEIGHTS, {}, fault)
    assert Refusal.from_json(refusal.to_json()) == refusal
    others = {Refusal(Code.BAD_WEIGHTS, {}, each).sentence for each in {*FaultKind} - {fault}}
    assert refusal.sentence not in others


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        '"refused"',
        "[" * 5000,
        json.dumps({"schema": 1, "draft": {}}),
        json.dumps({"refused": "of another release"}),
        json.dumps({"refused": ["noResult"]}),
        json.dumps({"refused": "badWeights", "fault": "of another release"}),
    ],
    ids=lambda text: text[:20],
)
def test_anything_else_is_no_refusal(text: str) -> None:
    assert Refusal.from_json(text) is None


def test_numbers_that_are_none_are_not_repeated() -> None:
    refusal = Refusal.from_json(json.dumps({"refused": "tooLarge", "found": "x", "most": True}))
    assert refusal == Refusal(Code.TOO_LARGE)
