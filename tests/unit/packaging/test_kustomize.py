"""deploy/kustomize: the chart's objects, for those who have no Helm."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fathom.api import names
from generators import kustomize_base
from support.kustomize import kustomized, read

Objects = dict[tuple[str, str], Any]
OF_HELM = ("app.kubernetes.io/managed-by", "helm.sh/chart")


@pytest.fixture(scope="module")
def base(root: Path) -> Path:
    return root / "deploy" / "kustomize"


def by_name(documents: list[Any]) -> Objects:
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


def without_helm(manifest: Any) -> Any:
    """As another tool installs it."""
    if isinstance(manifest, dict):
        return {
            key: without_helm(value)
            for key, value in manifest.items()
            if key not in {*OF_HELM, "helm.sh/resource-policy"}
        }
    return [without_helm(each) for each in manifest] if isinstance(manifest, list) else manifest


def test_is_fresh(base: Path) -> None:
    written = {path.name: path.read_text() for path in base.iterdir()}
    assert written == kustomize_base.base(), "Run: make regenerate"


def test_is_what_its_files_say(root: Path, base: Path) -> None:
    for folder in (base, root / "crds"):
        kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
        assert kustomization["kind"] == "Kustomization"
        assert kustomization.keys() == {"apiVersion", "kind", "resources"}
    assert by_name(kustomized(base)) == by_name(read(base))


def test_has_the_chart_s_objects_and_their_namespace(
    base: Path, render: Callable[[Mapping[str, Any]], Objects]
) -> None:
    objects = by_name(kustomized(base))
    assert objects.pop(("Namespace", "fathom-system"))
    charts = without_helm(render({}))
    assert objects.keys() == charts.keys()
    for plural in (names.PLURAL, names.TUNER_PLURAL):
        crd = ("CustomResourceDefinition", f"{plural}.fathom.dev")
        assert objects.pop(crd)["spec"] == charts.pop(crd)["spec"]
    assert objects == charts
