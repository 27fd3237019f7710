"""The CRD that the chart brings is the generated one."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fathom.api import names
from fathom.api.crd import custom_resource_definition

Render = Callable[[Mapping[str, Any]], dict[tuple[str, str], Any]]
"""Values in, manifests by kind and name out."""

PLURALS = {names.KIND: names.PLURAL, names.TUNER_KIND: names.TUNER_PLURAL}
of_each_kind = pytest.mark.parametrize("kind", PLURALS)


def file(kind: str) -> str:
    return f"fathom.dev_{PLURALS[kind]}.yaml"


def name(kind: str) -> tuple[str, str]:
    return "CustomResourceDefinition", f"{PLURALS[kind]}.fathom.dev"


@of_each_kind
def test_the_chart_s_copy_is_byte_equal(kind: str, root: Path, chart: Path) -> None:
    copy, original = chart / "files" / "crds" / file(kind), root / "crds" / file(kind)
    assert copy.read_bytes() == original.read_bytes()


@of_each_kind
def test_the_generated_file_is_what_the_models_say(kind: str, root: Path) -> None:
    generated = yaml.safe_load((root / "crds" / file(kind)).read_text())
    assert generated == custom_resource_definition(kind)


@of_each_kind
def test_what_is_installed_differs_only_in_labels_and_the_keep_annotation(
    kind: str, render: Render
) -> None:
    installed = render({})[name(kind)]
    metadata = installed.pop("metadata")
    expected = custom_resource_definition(kind)
    expected.pop("metadata")
    assert installed == expected
    assert metadata["annotations"] == {"helm.sh/resource-policy": "keep"}


@of_each_kind
def test_crd_can_be_left_out_and_can_be_left_unprotected(kind: str, render: Render) -> None:
    assert name(kind) not in render({"crds": {"install": False}})
    assert "annotations" not in render({"crds": {"keep": False}})[name(kind)]["metadata"]
