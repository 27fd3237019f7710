"""What the operator takes for a depth document: no more than an engine would."""

import json

import pytest

from fathom.core.depth import DepthDocument, DepthRange


def read(generation: object) -> DepthDocument | None:
    return DepthDocument.from_json(json.dumps({"generation": generation, "schedule": [[1, 8, 3]]}))


def test_a_document_is_read_back() -> None:
    document = DepthDocument(2**53, (DepthRange(1, 8, 3),))
    assert read(2**53) == document == DepthDocument.from_json(document.to_json())


@pytest.mark.parametrize(
    "generation", [0, -1, 2**53 + 1, 10**400, 1.0, True, "1", None, float("inf")]
)
def test_what_no_engine_can_report_is_no_generation(generation: object) -> None:
    assert read(generation) is None
