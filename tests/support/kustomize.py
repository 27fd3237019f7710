"""What kustomize makes of a folder: that of the machine's kubectl, where there is one.

The control plane's own kubectl is too old for components; it merges patches, though.
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from fathom.adapters.yaml_documents import to_yaml
from support.local_cluster import own_binaries
from support.waiting import GUARD_S

Object = dict[str, Any]
_READ: Final = frozenset({"apiVersion", "kind", "resources", "components", "patches", "namePrefix"})
_PASSED_OVER: Final = frozenset({"labels"})
"""Nothing that a test looks at."""


def kubectl(*words: str) -> str:
    """What it prints: the one of the machine or, where there is none, the control plane's."""
    path = shutil.which("kubectl") or str(own_binaries().directory / "kubectl")
    ran = subprocess.run(
        [path, *words], capture_output=True, text=True, timeout=GUARD_S, check=False
    )
    if ran.returncode:
        pytest.fail(f"kubectl {words[0]}: {ran.stderr}", pytrace=False)
    return ran.stdout


def documents(text: str) -> list[Object]:
    """The objects in a stream of YAML."""
    return [each for each in yaml.safe_load_all(text) if each]


def kustomized(folder: Path) -> list[Object]:
    """What kustomize makes of a folder."""
    if shutil.which("kubectl"):
        return documents(kubectl("kustomize", str(folder)))
    return read(folder)


def read(folder: Path) -> list[Object]:
    """The same, as far as its files alone tell."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert kustomization.keys() <= _READ | _PASSED_OVER
    found: list[Object] = []
    for each in kustomization["resources"]:
        path = (folder / each).resolve()
        found += read(path) if path.is_dir() else documents(path.read_text())
    for each in kustomization.get("components", ()):
        component = yaml.safe_load((folder / each / "kustomization.yaml").read_text())
        found = _with_patches(folder / each, found, component["patches"])
    found = _with_patches(folder, found, kustomization.get("patches", ()))
    prefix = kustomization.get("namePrefix", "")
    for each in found:
        each["metadata"]["name"] = prefix + each["metadata"]["name"]
    return found


def _with_patches(
    folder: Path, objects: Sequence[Object], patches: Sequence[Mapping[str, Any]]
) -> list[Object]:
    """Those that a patch names, patched; all others as they are."""
    found = list(objects)
    for each in patches:
        text = (folder / each["path"]).read_text() if "path" in each else each["patch"]
        patch = yaml.safe_load(text)
        (at,) = (
            number
            for number, one in enumerate(found)
            if (one["kind"], one["metadata"]["name"]) == (patch["kind"], patch["metadata"]["name"])
        )
        found[at] = patched(folder, found[at], patch)
    return found


def patched(
    folder: Path, manifest: Mapping[str, Any], patch: Mapping[str, Any], kind: str = "strategic"
) -> Object:
    """A manifest with a patch, merged as an API server merges it."""
    whole, added = folder / "manifest.yaml", folder / "patch.yaml"
    whole.write_text(to_yaml([manifest]))
    added.write_text(to_yaml([patch]))
    words = ("-f", str(whole), "--type", kind, "--patch-file", str(added), "-o", "yaml")
    result: Object = yaml.safe_load(kubectl("patch", "--local", *words))
    return result
