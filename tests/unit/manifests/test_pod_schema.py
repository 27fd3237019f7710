"""The schema of a pod template is the Kubernetes client's, and misspelling is told from news."""

import json
from pathlib import Path

import pytest

import fathom.manifests
from fathom.api.problem import Severity
from fathom.manifests.strategic_merge import _meant, schema_problems
from generators.pod_schema import schema

(FOLDER,) = fathom.manifests.__path__


def test_it_is_fresh() -> None:
    written = (Path(FOLDER) / "pod_schema.json").read_text(encoding="utf-8")

    assert written == schema(), "Run: make regenerate"


@pytest.mark.parametrize(
    ("field", "certain"),
    [
        ("volume", True),
        ("Volumes", True),
        ("imagePullSecret", True),
        ("terminatonGracePeriodSecond", True),
        ("terminationGracePeriod", False),
        ("hostnameSource", False),
        ("quantum", False),
    ],
)
def test_what_looks_misspelt_is_refused_and_what_may_be_new_is_not(
    field: str, *, certain: bool
) -> None:
    (problem,) = schema_problems({"spec": {field: 1}}, "podTemplate")

    assert problem.field == f"podTemplate.spec.{field}"
    assert (problem.severity is Severity.ERROR) is certain


def test_what_kubernetes_has_beside_another_field_would_not_have_been_taken_for_it() -> None:
    """As a schema of years ago would have judged today's fields."""
    taken = {
        (added, meant)
        for fields in json.loads(schema()).values()
        for added in fields
        if (meant := _meant(added, fields.keys() - {added}))
    }

    assert taken == set()
