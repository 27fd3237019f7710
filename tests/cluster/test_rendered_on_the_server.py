"""Every example, all that pages show, and every object that one or a case renders to, asked of the
real API server.

By server-side apply, which refuses a field that the server does not know, and as a dry run. What is
newer than this server is held against Kubernetes' and its owners' published schemas in tests/golden
(policy/v1), or said in its own words after a newer one's rules were applied (claims to devices,
`matchLabelKeys`).
"""

import copy
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio.client.exceptions import ApiException

from fathom.cluster.manifest import Manifest
from fathom.engine.plugin import PluginBundle
from fathom.fetch.state import FetchProgram
from fathom.manifests.render import children
from golden.rendering import SOURCES, WORKLOADS, pods, read
from manifest_samples import resource
from odd_pod_templates import ODD
from support.foreign_kinds import crd
from support.local_cluster import TestNamespace
from support.newer_server import as_older, refusals
from support.operator_process import CRDS, TUNER_CRD, install_crd
from support.pages import PAGES, manifests

pytestmark = pytest.mark.cluster

BUNDLE = PluginBundle({"fathom_vllm/__init__.py": '"""The plugin."""\n'}, "0123456789ab")
PROGRAM = FetchProgram({"fathom_fetch/__init__.py": '"""The program."""\n'}, "0123456789ab")
FOREIGN = ("podmonitors.yaml", "leaderworkersets.yaml", "computedomains.yaml")
SINCE = {"PodDisruptionBudget": (1, 21), "HorizontalPodAutoscaler": (1, 23)}
"""The release of Kubernetes from which on a server has a kind, where the oldest lacks it. Of those
on pages, tests/unit/packaging/test_docs.py asks the client's models."""
FOREIGN_ON_PAGES = {"InferencePool", "Kustomization", "ScaledObject"}
"""Shown as their owners' documentation has them; no server has their kinds."""
CURRENT_PODS = (1, 34)
"""The release from which on a server knows all fields of a pod that are rendered."""
APPLY = "application/apply-patch+yaml"


@pytest.fixture
async def foreign(namespace: TestNamespace) -> AsyncIterator[None]:
    definitions = [crd(file) for file in FOREIGN]
    for definition in definitions:
        await install_crd(namespace, definition)
    yield
    for definition in definitions:
        await namespace.api.request("DELETE", f"{CRDS}/{definition['metadata']['name']}")


async def refusal(namespace: TestNamespace, manifest: dict[str, Any]) -> str:
    """What the server says against an object; empty: nothing."""
    body = copy.deepcopy(manifest)
    body["metadata"]["namespace"] = namespace.name
    path = namespace.path(body["kind"], body["metadata"]["name"])
    query = {"dryRun": "All", "fieldManager": "fathom", "force": "true"}
    try:
        await namespace.api.request("PATCH", path, body=body, query=query, content_type=APPLY)
    except ApiException as error:
        return f"{body['kind']}: {HTTPStatus(error.status or 0).phrase}: {error.reason}"
    return ""


def without_its_surroundings(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod without what has to be there before it is admitted."""
    spec = {**pod["spec"]}
    for elsewhere in ("serviceAccountName", "priorityClassName"):
        spec.pop(elsewhere, None)
    return {**pod, "spec": spec}


async def test_the_server_takes_every_example(namespace: TestNamespace) -> None:
    await install_crd(namespace)
    refused = {}
    for source in SOURCES:
        written = yaml.safe_load(source.read_text())
        # One is as if it were there already.
        written["metadata"].pop("uid", None)
        if said := await refusal(namespace, written):
            refused[source.stem] = said

    assert refused == {}


async def test_the_server_takes_everything_that_a_page_shows(namespace: TestNamespace) -> None:
    await install_crd(namespace)
    await install_crd(namespace, yaml.safe_load(TUNER_CRD.read_text()))
    refused = {}
    for page in PAGES:
        for number, manifest in enumerate(manifests(page)):
            kind = manifest["kind"]
            if kind in FOREIGN_ON_PAGES or namespace.release < SINCE.get(kind, (1, 0)):
                continue
            if said := await refusal(namespace, manifest):
                refused[f"{page.name}, manifest {number + 1}"] = said

    assert refused == {}


@pytest.mark.usefixtures("foreign")
async def test_the_server_takes_everything_that_is_rendered(namespace: TestNamespace) -> None:
    refused = {}
    for source in SOURCES:
        for document in children(read(source), BUNDLE, PROGRAM):
            if said := await complaint(namespace, document):
                refused[f"{Path(source).stem}/{document['kind']}"] = said

    assert refused == {}


@pytest.mark.usefixtures("foreign")
async def test_the_server_takes_every_odd_pod_template_that_is_not_refused(
    namespace: TestNamespace,
) -> None:
    refused = {}
    for name, odd in ODD.items():
        if odd.refused:
            continue
        *_, workload = children(resource(odd.edits), BUNDLE, PROGRAM)
        if said := await complaint(namespace, workload):
            refused[name] = said

    assert refused.keys() == {name for name, odd in ODD.items() if "this Fathom knows" in odd.doubt}


async def complaint(namespace: TestNamespace, document: Manifest) -> str:
    """What stands against a document, and against the pods of one that has any."""
    manifest = dict(document)
    served = namespace.release >= SINCE.get(manifest["kind"], (1, 0))
    said = await refusal(namespace, manifest) if served else ""
    if manifest["kind"] in WORKLOADS:
        for pod in map(without_its_surroundings, pods(manifest)):
            known = pod if namespace.release >= CURRENT_PODS else as_older(pod)
            said += "".join(refusals(pod)) + await refusal(namespace, known)
    return said


async def test_what_the_server_does_not_know_would_be_found(namespace: TestNamespace) -> None:
    container = {"name": "a", "image": "b", "resources": {}, "wrong": 1}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"},
           "spec": {"containers": [container]}}  # fmt: skip
    assert "wrong" in await refusal(namespace, pod)
