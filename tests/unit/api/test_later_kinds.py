"""What a later Fathom has written is read as far as this one has names for it."""

from dataclasses import dataclass
from enum import StrEnum

import pytest
from pydantic import JsonValue, TypeAdapter

from fathom.api.newer_release import read_known
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.cluster.snapshot import status_in


class Kind(StrEnum):
    ONE = "one"


@dataclass(frozen=True)
class Entry:
    kind: Kind
    size: int = 0


@dataclass(frozen=True)
class Document:
    name: str
    entries: tuple[Entry, ...] = ()
    last: Entry | None = None
    nested: tuple[tuple[Entry, ...], ...] = ()


READ = TypeAdapter(Document).validate_python
ONE: JsonValue = {"kind": "one", "size": 1}
LATER: JsonValue = {"kind": "two", "size": 1}


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ({"name": "a", "entries": [ONE]}, (Document("a", (Entry(Kind.ONE, 1),)), True)),
        (
            {"name": "a", "entries": [LATER, ONE, LATER]},
            (Document("a", (Entry(Kind.ONE, 1),)), False),
        ),
        ({"name": "a", "last": LATER}, (Document("a"), False)),
        (
            {"name": "a", "nested": [[ONE, LATER], [LATER]]},
            (Document("a", nested=((Entry(Kind.ONE, 1),), ())), False),
        ),
        # What is wrong otherwise is junk, whatever else is there.
        ({"name": "a", "entries": [{"kind": "two", "size": "large"}]}, (None, False)),
        ({"name": 1, "entries": [LATER]}, (None, False)),
        ({"name": "a", "entries": [{"kind": 2}]}, (None, False)),
        ([LATER], (None, False)),
        ("two", (None, False)),
    ],
)
def test_a_kind_without_a_name_costs_the_entry_or_the_field(
    document: JsonValue, found: tuple[Document | None, bool]
) -> None:
    assert read_known(document, READ) == found


def test_what_cannot_do_without_it_is_not_read() -> None:
    assert read_known({"kind": "two"}, TypeAdapter(Entry).validate_python) == (None, False)


def condition(kind: str) -> dict[str, str]:
    at = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": "True", "reason": "Any", "lastTransitionTime": at}


def test_a_condition_of_a_later_kind_does_not_cost_the_status() -> None:
    status = {
        "conditions": [condition("Ready"), condition("DraftTooWarm"), condition("DraftMismatch")],
        "tuning": {"summary": "Auto/AtBest"},
        "quality": {"requestId": "one", "at": "then", "result": "NearlyLossless"},
    }
    found = status_in({"status": status}, SpeculativeDeploymentStatus)
    assert found is not None
    assert [each.type for each in found.conditions] == ["Ready", "DraftMismatch"]
    assert found.tuning.summary == "Auto/AtBest"
    assert found.quality is None


@pytest.mark.parametrize(("later", "whole"), [(1000, Document("a")), (1001, None)])
def test_where_nothing_is_known_it_is_junk(later: int, whole: Document | None) -> None:
    """To list all errors of a quarter of a megabyte of it took 13 s, and 300 MiB."""
    document: JsonValue = {"name": "a", "entries": [LATER] * later}

    assert read_known(document, READ) == (whole, False)
