"""What is carried out of a spec, and of the ones before it."""

import json
from typing import Any

import pytest

from fathom.api.resource import MAX_NESTING, SpeculativeDeployment, parse
from fathom.api.spec import MAX_REPLICAS
from fathom.reconcile.intent import earlier_spec, good_spec_text
from manifest_samples import manifest

EARLIER = good_spec_text(manifest())


def replicas(asked: Any) -> int | None:
    """Of the earlier spec, while the newest asks for so many."""
    found = earlier_spec(manifest({"replicas": asked}), EARLIER)
    return found.spec.replicas if found else None


@pytest.mark.parametrize("asked", [0, 1, 7, MAX_REPLICAS])
def test_an_earlier_spec_has_the_replicas_that_are_asked_for_now(asked: int) -> None:
    assert replicas(asked) == asked


@pytest.mark.parametrize("asked", [-1, MAX_REPLICAS + 1, True, "3", 2.5])
def test_nonsense_for_a_number_of_replicas_is_passed_over(asked: Any) -> None:
    assert replicas(asked) == 1


@pytest.mark.parametrize("text", ["", "[" * 20_000, "[]", "7", json.dumps({"model": "no object"})])
def test_what_is_no_spec_is_no_earlier_one(text: str) -> None:
    assert earlier_spec(manifest(), text) is None


@pytest.mark.parametrize("lists", [True, False])
def test_whatever_spec_is_taken_can_be_read_again_once_it_is_kept(*, lists: bool) -> None:
    """One that could not would be no fallback when the next one is bad."""
    value: Any = [] if lists else {}
    taken = 0
    for _ in range(MAX_NESTING + 5):
        resource = manifest({"podTemplate": {"spec": {"x": value}}})
        if isinstance(parse(resource), SpeculativeDeployment):
            taken += 1
            assert earlier_spec(resource, good_spec_text(resource)) is not None
        value = [value] if lists else {"a": value}
    assert taken > 60
