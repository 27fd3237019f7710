"""What a resource read from the API server may nest: no file was parsed before it."""

import subprocess
import sys
from typing import Any

import pytest

from fathom.api.bounded_json import DEEPEST
from fathom.api.problem import Problem
from fathom.resource import SpeculativeDeployment, parse
from manifest_samples import manifest
from support.waiting import GUARD_S


def nested(depth: int, *, lists: bool) -> Any:
    value: Any = "end"
    for _ in range(depth):
        value = [value] if lists else {"a": value}
    return value


@pytest.mark.parametrize("lists", [True, False])
@pytest.mark.parametrize("depth", [DEEPEST, 300, 20_000])
def test_what_nobody_can_walk_is_refused_at_its_field(depth: int, *, lists: bool) -> None:
    document = manifest({"podTemplate": {"spec": nested(depth, lists=lists)}})

    assert parse(document) == (
        Problem(field="spec.podTemplate", message="nested more than 100 deep: no pod template is."),
    )


def test_what_a_pod_may_need_is_not() -> None:
    document = manifest({"podTemplate": {"spec": {"x": nested(60, lists=False)}}})

    assert isinstance(parse(document), SpeculativeDeployment)


def test_what_the_server_keeps_beside_the_spec_is_passed_over() -> None:
    document = manifest()
    document["metadata"]["managedFields"] = [nested(20_000, lists=False)]

    assert isinstance(parse(document), SpeculativeDeployment)


READ = """
import json
from fathom.runtime.operator_process import make_room_for_deep_json
make_room_for_deep_json()
for opening, closing in ('[', ']'), ('{"a":', '}'):
    deep = opening * 10_000 + ('1' if closing == '}' else '') + closing * 10_000
    json.loads('{"type": "ADDED", "object": {"items": [%s]}}' % deep)
assert json.loads('[1, "a", {"b": [null]}]') == [1, 'a', {'b': [None]}]
for broken in '', '[', '{"a":' * 20_000, '1 2':
    try:
        json.loads(broken)
    except (json.JSONDecodeError, RecursionError):
        continue
    raise AssertionError(broken)
print("read")
"""


def test_an_operator_reads_json_as_deep_as_a_server_takes_it() -> None:
    """In a process of its own: the limit is one of the whole process."""
    done = subprocess.run(
        [sys.executable, "-c", READ], capture_output=True, text=True, timeout=GUARD_S, check=False
    )

    assert (done.stdout, done.returncode) == ("read\n", 0), done.stderr[-2000:]
