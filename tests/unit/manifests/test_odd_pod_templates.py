"""What people merge over pods: right in the pod, or refused with a field and a cure."""

from collections.abc import Mapping
from typing import Any

import pytest

from fathom.engine.plugin import PluginBundle
from fathom.manifests.pod_template import pod_template, worker_template
from manifest_samples import resource
from odd_pod_templates import GONE, ODD, Odd, Path
from support.validated import errors, warnings

REFUSED = {name: odd for name, odd in ODD.items() if odd.refused}
RIGHT = {name: odd for name, odd in ODD.items() if not odd.refused}
BUNDLE = PluginBundle({"fathom_vllm/__init__.py": ""}, "0123456789ab")


def found(value: Any, path: Path) -> Any:
    for key in path:
        if isinstance(value, list):
            numbered = enumerate(value)
            value = next((each for at, each in numbered if key in (str(at), *keys(each))), GONE)
        else:
            value = value.get(key, GONE)
        if value is GONE:
            return GONE
    return value


def keys(item: Any) -> list[str]:
    names = ("name", "mountPath", "containerPort")
    return [str(item[key]) for key in names if key in item] if isinstance(item, Mapping) else []


@pytest.mark.parametrize("odd", REFUSED.values(), ids=REFUSED.keys())
def test_is_refused_with_its_field_and_a_cure(odd: Odd) -> None:
    problems = errors(resource(odd.edits))

    assert str(problems[0]).startswith(f"spec.{odd.name}{odd.refused}")


@pytest.mark.parametrize("odd", RIGHT.values(), ids=RIGHT.keys())
def test_is_right_in_the_pod(odd: Odd) -> None:
    sd = resource(odd.edits)
    assert [str(problem) for problem in errors(sd)] == []
    build = worker_template if odd.workers else pod_template
    template: dict[str, Any] = build(sd, revision="abcd0123", bundle=BUNDLE)

    assert odd.pod, "a case that asserts nothing"
    assert {path: found(template["spec"], path) for path in odd.pod} == odd.pod


@pytest.mark.parametrize("odd", RIGHT.values(), ids=RIGHT.keys())
def test_leaves_to_the_user_what_it_says(odd: Odd) -> None:
    doubts = [str(doubt) for doubt in warnings(resource(odd.edits))]

    assert [each[: len(f"spec.{odd.name}{odd.doubt}")] for each in doubts] == (
        [f"spec.{odd.name}{odd.doubt}"] if odd.doubt else []
    )
