"""deploy/kustomize: the chart's objects, for those who have no Helm."""

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fathom.api import names
from generators import kustomize_base
from support.waiting import GUARD_S

Objects = dict[tuple[str, str], Any]
OF_HELM = ("app.kubernetes.io/managed-by", "helm.sh/chart")


@pytest.fixture(scope="module")
def base(root: Path) -> Path:
    return root / "deploy" / "kustomize"


def by_name(documents: list[Any]) -> Objects:
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


def built(folder: Path) -> list[Any]:
    """What kustomize makes of a base: kubectl's, where there is one."""
    if (kubectl := shutil.which("kubectl")) is None:
        return read(folder)
    command = [kubectl, "kustomize", str(folder)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=GUARD_S, check=True)
    return [*yaml.safe_load_all(made.stdout)]


def read(folder: Path) -> list[Any]:
    """What a base without patches is: the objects in its files, and in those of its bases."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert kustomization["kind"] == "Kustomization"
    assert kustomization.keys() == {"apiVersion", "kind", "resources"}
    found: list[Any] = []
    for resource in kustomization["resources"]:
        path = (folder / resource).resolve()
        found += read(path) if path.is_dir() else yaml.safe_load_all(path.read_text())
    return found


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


def test_is_what_its_files_say(base: Path) -> None:
    assert by_name(built(base)) == by_name(read(base))


def test_has_the_chart_s_objects_and_their_namespace(
    base: Path, render: Callable[[Mapping[str, Any]], Objects]
) -> None:
    objects = by_name(built(base))
    assert objects.pop(("Namespace", "fathom-system"))
    charts = without_helm(render({}))
    assert objects.keys() == charts.keys()
    for plural in (names.PLURAL, names.TUNER_PLURAL):
        crd = ("CustomResourceDefinition", f"{plural}.fathom.dev")
        assert objects.pop(crd)["spec"] == charts.pop(crd)["spec"]
    assert objects == charts
