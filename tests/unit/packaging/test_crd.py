"""The CRD that the chart brings is the generated one."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from fathom.api.crd import custom_resource_definition

Render = Callable[[Mapping[str, Any]], dict[tuple[str, str], Any]]
"""Values in, manifests by kind and name out."""

FILE = "fathom.dev_speculativedeployments.yaml"
NAME = ("CustomResourceDefinition", "speculativedeployments.fathom.dev")


def test_the_chart_s_copy_is_byte_equal(root: Path, chart: Path) -> None:
    assert (chart / "files" / "crds" / FILE).read_bytes() == (root / "crds" / FILE).read_bytes()


def test_the_generated_file_is_what_the_models_say(root: Path) -> None:
    assert yaml.safe_load((root / "crds" / FILE).read_text()) == custom_resource_definition()


def test_what_is_installed_differs_only_in_labels_and_the_keep_annotation(render: Render) -> None:
    installed = render({})[NAME]
    metadata = installed.pop("metadata")
    expected = custom_resource_definition()
    expected.pop("metadata")
    assert installed == expected
    assert metadata["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_crd_can_be_left_out_and_can_be_left_unprotected(render: Render) -> None:
    assert NAME not in render({"crds": {"install": False}})
    assert "annotations" not in render({"crds": {"keep": False}})[NAME]["metadata"]
