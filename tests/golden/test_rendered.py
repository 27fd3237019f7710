"""What examples and cases render to, kept as files: a review sees what a change does to pods.

After a change that is meant: `pytest tests/golden --update-golden`, and read the diff.
"""

import re
from pathlib import Path

import jsonschema
import pytest
from kubernetes.aio.client import models

from fathom import __version__
from fathom.adapters.yaml_documents import to_yaml
from fathom.cluster.manifest import Manifest
from fathom.engine.plugin import PluginBundle
from fathom.engine.profile import profile_of
from fathom.fetch.state import FetchProgram
from fathom.manifests.config_maps import tuning_config_map
from fathom.manifests.render import children
from fathom.rollout.replicas import arm_of
from golden.rendering import SOURCES, WORKLOADS, pod_templates, read
from support.foreign_kinds import schema_of
from support.validated import errors

HERE = Path(__file__).parent
BUNDLE = PluginBundle(
    {
        "fathom_vllm/__init__.py": '"""The plugin."""\n',
        "fathom_vllm.dist-info/METADATA": "Name: x\n",
    },
    "0123456789ab",
)
"""Bundle of its own, so that these files do not change with the plugin."""
PROGRAM = FetchProgram({"fathom_fetch/__init__.py": '"""Fetches."""\n'}, "fedcba987654")
"""As above."""

MODELS = {
    "ConfigMap": models.V1ConfigMap,
    "Deployment": models.V1Deployment,
    "Job": models.V1Job,
    "PersistentVolumeClaim": models.V1PersistentVolumeClaim,
    "PodDisruptionBudget": models.V1PodDisruptionBudget,
    "Service": models.V1Service,
    "ServiceAccount": models.V1ServiceAccount,
}

FOREIGN = {
    "ComputeDomain": schema_of("computedomains.yaml"),
    "LeaderWorkerSet": schema_of("leaderworkersets.yaml"),
    "PodMonitor": schema_of("podmonitors.yaml"),
}
"""Kinds of others, by what Fathom uses of their published schemas."""


def rendered(source: Path) -> tuple[Manifest, ...]:
    return children(read(source), BUNDLE, PROGRAM)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_renders_as_recorded(source: Path, *, update_golden: bool) -> None:
    found = re.sub(
        f"(?<=fathom.dev/rendered-by: ){re.escape(__version__)} [0-9a-f]{{16}}$",
        "VERSION",
        to_yaml(rendered(source)),
        flags=re.MULTILINE,
    )
    recorded = HERE / "rendered" / source.name
    if update_golden:
        recorded.write_text(found, encoding="utf-8")

    assert recorded.read_text(encoding="utf-8") == found


def test_nothing_is_recorded_that_is_not_rendered() -> None:
    recorded = sorted(path.name for path in (HERE / "rendered").glob("*.yaml"))

    assert recorded == sorted(source.name for source in SOURCES)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_is_what_kubernetes_knows(source: Path) -> None:
    tuning = tuning_config_map(read(source), {"state": "{}"})

    for document in (*rendered(source), tuning):
        if document["kind"] in WORKLOADS:
            for template in pod_templates(document):
                models.V1PodTemplateSpec.model_validate(template)
        if document["kind"] in FOREIGN:
            jsonschema.validate(document, FOREIGN[str(document["kind"])])
        else:
            MODELS[str(document["kind"])].model_validate(document)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_nothing_stands_against_it(source: Path) -> None:
    sd = read(source)

    assert errors(sd) == ()


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_what_a_pod_mounts_comes_before_it(source: Path) -> None:
    kinds = [document["kind"] for document in rendered(source)]
    spec = read(source).spec

    one_for_each = 1 if arm_of(spec) is None else 2
    workloads = spec.replicas if profile_of(spec).layout.spans_nodes else one_for_each
    assert all(kind in WORKLOADS for kind in kinds[-workloads:])
    assert sum(kind in WORKLOADS for kind in kinds) == workloads
