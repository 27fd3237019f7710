"""What a resource read from the API server may nest: no file was parsed before it."""

from typing import Any

import pytest

from fathom.api.problem import Problem
from fathom.api.resource import MAX_NESTING, SpeculativeDeployment, parse
from manifest_samples import manifest


def nested(depth: int, *, lists: bool) -> Any:
    value: Any = "end"
    for _ in range(depth):
        value = [value] if lists else {"a": value}
    return value


@pytest.mark.parametrize("lists", [True, False])
@pytest.mark.parametrize("depth", [MAX_NESTING, 300, 20_000])
def test_what_nobody_can_walk_is_refused_at_its_field(depth: int, *, lists: bool) -> None:
    document = manifest({"podTemplate": {"spec": nested(depth, lists=lists)}})

    assert parse(document) == (
        Problem("spec.podTemplate", "nested more than 100 deep: no pod template is."),
    )


def test_what_a_pod_may_need_is_not() -> None:
    document = manifest({"podTemplate": {"spec": {"x": nested(60, lists=False)}}})

    assert isinstance(parse(document), SpeculativeDeployment)
