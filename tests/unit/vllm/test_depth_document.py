"""The depth document: what is obeyed, and what is refused with which sentence."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom_vllm.depth_document import DepthDocumentError, depth_table, parse_depth_document

MAX_DEPTH = 7


def document(**fields: object) -> str:
    return json.dumps({"generation": 1, "schedule": [[1, 256, 3]], **fields})


def probed(seconds: object) -> str:
    return document(pods={"pod-a": [[1, 256, 5]]}, ends={"pod-a": seconds})


@st.composite
def schedules(draw: st.DrawFn) -> list[list[int]]:
    """Any valid schedule: ascending ranges from 1, gaps allowed."""
    ranges: list[list[int]] = []
    last = 0
    for number in range(draw(st.integers(1, 6))):
        first = 1 if number == 0 else last + draw(st.integers(1, 5))
        last = first + draw(st.integers(0, 40))
        ranges.append([first, last, draw(st.integers(0, MAX_DEPTH))])
    return ranges


@given(schedules(), st.integers(1, 300))
def test_every_batch_gets_the_depth_of_the_last_range_that_began(
    schedule: list[list[int]], max_batch: int
) -> None:
    parsed = parse_depth_document(document(schedule=schedule), pod="", max_depth=MAX_DEPTH)
    table = depth_table(parsed.schedule, max_batch)
    assert len(table) == max_batch + 1
    for batch in range(1, max_batch + 1):
        assert table[batch] == next(k for first, _, k in reversed(schedule) if first <= batch)


@given(st.text())
def test_no_text_ever_raises_anything_but_a_document_error(text: str) -> None:
    with pytest.raises(DepthDocumentError):
        parse_depth_document(text, pod="pod", max_depth=MAX_DEPTH)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
)


@given(schedule=json_values, pods=json_values, tokens=json_values, ends=json_values)
def test_no_json_ever_yields_a_table_outside_the_engine(
    schedule: object, pods: object, tokens: object, ends: object
) -> None:
    text = document(schedule=schedule, pods=pods, tokens=tokens, ends=ends)
    try:
        parsed = parse_depth_document(text, pod="pod", max_depth=MAX_DEPTH)
    except DepthDocumentError:
        return
    for each in filter(None, (parsed.schedule, parsed.tokens)):
        assert all(0 <= depth <= MAX_DEPTH for depth in depth_table(each, 64))


@given(generation=json_values)
def test_no_json_ever_yields_a_generation_that_cannot_be_shown(generation: object) -> None:
    try:
        parsed = parse_depth_document(document(generation=generation), pod="", max_depth=MAX_DEPTH)
    except DepthDocumentError:
        return
    assert 1 <= parsed.generation == int(float(parsed.generation))


def test_a_pods_own_entry_replaces_the_schedule() -> None:
    text = document(pods={"pod-a": [[1, 256, 5]], "pod-b": [[1, 4, 2]]})
    assert parse_depth_document(text, pod="pod-a", max_depth=MAX_DEPTH).schedule == ((1, 256, 5),)
    assert parse_depth_document(text, pod="pod-c", max_depth=MAX_DEPTH).schedule == ((1, 256, 3),)
    assert parse_depth_document(text, pod="", max_depth=MAX_DEPTH).schedule == ((1, 256, 3),)


def test_an_entry_of_ones_own_may_end_and_another_pods_end_is_not_this_pods_business() -> None:
    text = document(pods={"pod-a": [[1, 256, 5]]}, ends={"pod-a": 90, "pod-b": "nonsense"})
    own = parse_depth_document(text, pod="pod-a", max_depth=MAX_DEPTH)
    assert (own.schedule, own.ends_s, own.common) == (((1, 256, 5),), 90, ((1, 256, 3),))
    other = parse_depth_document(text, pod="pod-b", max_depth=MAX_DEPTH)
    assert (other.schedule, other.ends_s) == (((1, 256, 3),), None)


def test_the_users_own_depth_comes_with_it() -> None:
    text = document(tokens=[[1, 8, 4], [9, 256, 2]])
    parsed = parse_depth_document(text, pod="", max_depth=MAX_DEPTH)
    assert parsed.tokens == ((1, 8, 4), (9, 256, 2))
    assert parse_depth_document(document(), pod="", max_depth=MAX_DEPTH).tokens == ()


def test_another_pods_bad_entry_is_not_this_pods_business() -> None:
    text = document(pods={"pod-b": "nonsense"})
    assert parse_depth_document(text, pod="pod-a", max_depth=MAX_DEPTH).generation == 1


def test_unknown_keys_of_a_newer_operator_are_passed_over() -> None:
    assert parse_depth_document(document(later=1), pod="", max_depth=MAX_DEPTH).generation == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "not JSON"),
        ("[]", "must be a JSON object"),
        (document(generation=0), "generation must be a positive integer, not 0"),
        (document(generation=True), "generation must be a positive integer, not True"),
        (document(generation="1"), "generation must be a positive integer, not '1'"),
        (document(generation=-(10**400)), r"generation must be a positive integer, not -1000"),
        (document(generation=2.0), "generation must be a positive integer, not 2.0"),
        ('{"generation": 1e400}', "generation must be a positive integer, not inf"),
        ('{"generation": NaN}', "generation must be a positive integer, not nan"),
        (document(generation=10**400), "generation must be at most 9007199254740992, not 1000"),
        (document(generation=2**53 + 1), "generation must be at most 9007199254740992, not 90071"),
        (document(schedule=[]), "schedule must be a non-empty list"),
        (document(schedule={"1": 3}), "schedule must be a non-empty list"),
        (document(schedule=[[1, 4]]), r"\[1, 4\] is not \[first, last, depth\]"),
        (document(schedule=[[1, 4, 3.0]]), r"\[1, 4, 3.0\] is not"),
        (document(schedule=[[2, 4, 3]]), "first range must start at 1, not 2"),
        (document(schedule=[[1, 4, 3], [4, 8, 2]]), "overlaps or precedes"),
        (document(schedule=[[1, 4, 3], [9, 8, 2]]), "ends before it starts"),
        (document(schedule=[[1, 4, 8]]), "depth 8 is outside 0..7"),
        (document(schedule=[[1, 4, -1]]), "depth -1 is outside 0..7"),
        (document(pods=[]), "pods must be an object"),
        (document(pods={"pod-a": [[1, 4, 9]]}), r"pods\['pod-a'\]: depth 9 is outside"),
        (document(tokens=None), "tokens must be a non-empty list"),
        (document(tokens=[[1, 4, 9]]), "tokens: depth 9 is outside 0..7"),
        (document(ends=[]), "ends must be an object: pod name to seconds"),
        (probed(0), r"ends\['pod-a'\] must be whole seconds from 1 to 86400, not 0"),
        (probed(2.5), "must be whole seconds from 1 to 86400, not 2.5"),
        (probed([]), r"must be whole seconds from 1 to 86400, not \[\]"),
        (probed(86401), "must be whole seconds from 1 to 86400, not 86401"),
        (probed("9"), "must be whole seconds from 1 to 86400, not '9'"),
    ],
)
def test_what_is_wrong_is_said(text: str, sentence: str) -> None:
    with pytest.raises(DepthDocumentError, match=sentence):
        parse_depth_document(text, pod="pod-a", max_depth=MAX_DEPTH)


def test_the_last_generation_that_can_be_reported_is_obeyed() -> None:
    text = document(generation=2**53)
    assert parse_depth_document(text, pod="", max_depth=MAX_DEPTH).generation == 2**53


@pytest.mark.parametrize(
    "damage",
    [
        {"generation": "x" * 100_000},
        {"schedule": [["x" * 100_000]]},
        {"schedule": [[10**4000, 10**4000, 1]]},
        {"schedule": [[1, 1, 10**4000]]},
    ],
)
def test_a_sentence_stays_short_whatever_was_written(damage: dict[str, object]) -> None:
    with pytest.raises(DepthDocumentError) as refused:
        parse_depth_document(document(**damage), pod="", max_depth=MAX_DEPTH)
    assert len(str(refused.value)) < 200
