"""What the operator takes for a depth document: no more than an engine would."""

import json
from dataclasses import replace

import pytest

from fathom.engine.depth import DepthDocument, DepthRange, same_depths, summary
from fathom_vllm.depth_document import DepthDocumentError, parse_depth_document, schedule_hash


def read(generation: object) -> DepthDocument | None:
    return DepthDocument.from_json(json.dumps({"generation": generation, "schedule": [[1, 8, 3]]}))


def test_a_document_is_read_back() -> None:
    document = DepthDocument(generation=2**53, schedule=(DepthRange(1, 8, 3),))
    assert read(2**53) == document == DepthDocument.from_json(document.to_json())


@pytest.mark.parametrize(
    "generation", [0, -1, 2**53 + 1, 10**400, 1.0, True, "1", None, float("inf")]
)
def test_what_no_engine_can_report_is_no_generation(generation: object) -> None:
    assert read(generation) is None


@pytest.mark.parametrize(
    "empty", [{"schedule": []}, {"schedule": [[1, 8, 3]], "pods": {"pod-0": []}}], ids=str
)
def test_a_schedule_of_nothing_is_none(empty: dict[str, object]) -> None:
    assert DepthDocument.from_json(json.dumps({"generation": 1, **empty})) is None


def test_what_engines_go_back_to_and_when_entries_end_are_read_back() -> None:
    one, three = (DepthRange(1, 8, 1),), (DepthRange(1, 8, 3),)
    document = DepthDocument(
        generation=4, schedule=three, pods={"pod-0": one}, tokens=one, ends={"pod-0": 90}
    )
    assert DepthDocument.from_json(document.to_json()) == document
    told = parse_depth_document(document.to_json(), pod="pod-0", max_depth=3)
    assert (told.ends_s, told.tokens) == (90, ((1, 8, 1),))


def test_a_document_without_them_is_as_an_earlier_operator_wrote_it() -> None:
    plain = DepthDocument(generation=1, schedule=(DepthRange(1, 8, 3),))
    assert plain.to_json() == '{"generation":1,"schedule":[[1,8,3]],"pods":{}}'


@pytest.mark.parametrize(
    "more",
    [{"tokens": None}, {"tokens": []}, {"tokens": [[1, 8]]}, {"ends": {"pod-0": 0}}, {"ends": []}],
    ids=str,
)
def test_what_engines_refuse_is_no_document(more: dict[str, object]) -> None:
    whole = {"generation": 1, "schedule": [[1, 8, 3]], "pods": {"pod-0": [[1, 8, 1]]}, **more}
    assert DepthDocument.from_json(json.dumps(whole)) is None
    with pytest.raises(DepthDocumentError):
        parse_depth_document(json.dumps(whole), pod="pod-0", max_depth=3)


def test_a_pod_shows_its_own_depths_and_the_common_ones_once_these_may_have_ended() -> None:
    one, three = (DepthRange(1, 8, 1),), (DepthRange(1, 8, 3),)
    pods = {"pod-0": one, "pod-1": one}
    document = DepthDocument(generation=4, schedule=three, pods=pods, ends={"pod-0": 90})
    assert document.hash_for_pod("pod-0") == schedule_hash([[1, 8, 1]])
    assert document.hashes_for_pod("pod-1") == {schedule_hash([[1, 8, 1]])}
    both = {schedule_hash([[1, 8, 1]]), schedule_hash([[1, 8, 3]])}
    assert document.hashes_for_pod("pod-0") == both


@pytest.mark.parametrize(
    "part", [[0, 8, 3], [1, 2**31 + 1, 3], [1, 8, -1], [1, 8, 2**31 + 1], [1, 8]], ids=str
)
def test_batches_and_depths_that_no_engine_has_make_no_document(part: list[int]) -> None:
    text = json.dumps({"generation": 1, "schedule": [part]})
    assert DepthDocument.from_json(text) is None


def test_a_key_of_a_later_operator_is_passed_over_as_the_engines_do() -> None:
    later = {"generation": 7, "schedule": [[1, 8, 3]], "pods": {}, "later": {"a": 1}}
    text = json.dumps(later)
    assert DepthDocument.from_json(text) == read(7)
    assert parse_depth_document(text, pod="pod-0", max_depth=3).generation == 7


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ([(1, 16, 3), (17, 1024, 1)], True),
        ([(1, 8, 3), (9, 16, 3), (17, 256, 1)], True),
        ([(1, 16, 3), (17, 32, 1), (33, 256, 1)], True),
        ([(1, 17, 3), (18, 256, 1)], False),
        ([(1, 16, 3), (17, 256, 2)], False),
        ([(1, 16, 3)], False),
    ],
    ids=str,
)
def test_schedules_are_the_same_if_engines_make_the_same_of_them(
    other: list[tuple[int, int, int]],
    same: bool,  # noqa: FBT001 - the column of the table above
) -> None:
    one = (DepthRange(1, 16, 3), DepthRange(17, 256, 1))
    assert same_depths(one, tuple(DepthRange(*each) for each in other)) == same


def test_documents_ask_for_the_same_depths_if_every_pod_has_the_same() -> None:
    three, one = (DepthRange(1, 16, 3),), (DepthRange(1, 16, 1),)
    document = DepthDocument(generation=1, schedule=three, pods={"pod-0": one})

    assert document.same_depths(DepthDocument(generation=2, schedule=three, pods={"pod-0": one}))
    assert not document.same_depths(DepthDocument(generation=1, schedule=one, pods={"pod-0": one}))
    assert not document.same_depths(
        DepthDocument(generation=1, schedule=three, pods={"pod-0": three})
    )
    assert document.same_depths(replace(document, tokens=one))
    assert not document.same_depths(replace(document, ends={"pod-0": 90}))


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ([(1, 1024, 7)], "7"),
        ([(1, 4, 7), (5, 256, 7)], "7"),
        ([(1, 4, 7), (5, 256, 3)], "7 at 1-4, 3 beyond"),
        ([(1, 1, 7), (2, 256, 0)], "7 at 1, 0 beyond"),
        ([(1, 4, 7), (5, 8, 5), (9, 256, 3)], "7 at 1-4, 5 at 5-8, 3 beyond"),
        ([(1, 2, 7), (3, 4, 7), (5, 8, 5), (9, 256, 3)], "7 at 1-4, 5 at 5-8, 3 beyond"),
        # Which depth is where beyond that is in the schedule.
        ([(1, 4, 7), (5, 8, 5), (9, 16, 3), (17, 256, 1)], "7 at 1-4, 5 at 5-8, 1 to 3 beyond"),
        (
            [(1, 4, 7), (5, 8, 5), (9, 16, 1), (17, 32, 3), (33, 256, 1)],
            "7 at 1-4, 5 at 5-8, 1 to 3 beyond",
        ),
        ([], ""),
    ],
    ids=str,
)
def test_a_summary_says_at_which_batches_each_depth_is(
    schedule: list[tuple[int, int, int]], said: str
) -> None:
    assert summary(tuple(DepthRange(*part) for part in schedule)) == said
