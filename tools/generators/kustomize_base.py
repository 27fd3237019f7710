"""Writes deploy/kustomize, a kustomize base, from what Helm makes of the chart's defaults.

Run as `python -m generators.kustomize_base FOLDER`. The chart is the one source: a file for
each of its templates, without what only says that Helm has put it there.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from local_cluster.helm import Release, find_helm

CHART: Final = Path(__file__).parents[2] / "charts" / "fathom"
NAMESPACE: Final = "fathom-system"
_CRD: Final = "crd.yaml"
"""The template that is left out: crds/ is a base of its own, so that nobody keeps a copy more."""
_GENERATED: Final = "# Generated from charts/fathom by `make regenerate`: edit that.\n"
_OF_HELM: Final = re.compile(
    r"^ *(?:app\.kubernetes\.io/managed-by|helm\.sh/[\w-]+): .*\n", re.MULTILINE
)
_SOURCE: Final = re.compile(r"^# Source: fathom/templates/(\S+)\n", re.MULTILINE)
_BETWEEN: Final = re.compile(r"^---[ \t]*\n", re.MULTILINE)


def base() -> Mapping[str, str]:
    """Each file's name and text.

    Raises:
        LocalClusterError: there is no Helm, or it refuses the chart.
    """
    rendered = find_helm().template(Release(CHART, "fathom", NAMESPACE))
    files = _by_template(rendered)
    files.pop(_CRD)
    files["namespace.yaml"] = yaml.safe_dump(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        sort_keys=False,
    )
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../../crds", *sorted(files)],
    }
    files["kustomization.yaml"] = yaml.safe_dump(kustomization, sort_keys=False)
    return {name: _GENERATED + text for name, text in files.items()}


def _by_template(rendered: str) -> dict[str, str]:
    """What each template has made, whichever Helm it was: some name it once, some per document."""
    found: dict[str, list[str]] = {}
    template = ""
    for document in _BETWEEN.split(rendered):
        if (source := _SOURCE.search(document)) is not None:
            template = source[1]
        text = _OF_HELM.sub("", _SOURCE.sub("", document)).strip()
        if text:
            found.setdefault(template, []).append(f"{text}\n")
    return {name: "---\n".join(documents) for name, documents in found.items()}


def write(folder: Path) -> None:
    """Write the base; what is there and belongs to it no more goes."""
    files = base()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.yaml"):
        if old.name not in files:
            old.unlink()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
