"""The chart's life on a real cluster, under traffic: what serves is never touched by it.

The operator runs in its own pod, as the chart has it. Its program is this checkout's, or a copy
that renders pods otherwise: an upgrade changes that, the rights, the CRD and the number of pods.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from kubernetes.aio.client.exceptions import ApiException
from pydantic import JsonValue

import fathom
from fathom.api import names
from local_cluster.demo.fleet import DemoFleet
from local_cluster.engine.language import EASY
from local_cluster.engine.traffic import LoadGenerator, Phase
from local_cluster.helm import Helm, Release, find_helm
from local_cluster.kube import Object
from local_cluster.paths import cache_dir
from support.local_cluster import TestNamespace
from support.operated import SPEC, Resource
from support.operator_process import CRDS
from support.waiting import until

pytestmark = pytest.mark.cluster

CHART = Path(__file__).parents[2] / "charts" / "fathom"
PREVIOUS = Path(__file__).parents[1] / "support" / "charts" / "fathom-0.1.0-before-watches.tgz"
"""The chart as it was when the operator did not watch all children yet, as `helm package` made it
of that commit: fewer rights, an older CRD."""
CRD = f"{CRDS}/{names.PLURAL}.{names.GROUP}"
# Depth follows what the user writes, so that an edit shows whether an operator is at work.
SERVING = {
    **SPEC,
    "speculation": {**SPEC["speculation"], "tuning": {"mode": "Advise"}},
    "rollout": {"canaryMinutes": 0},
}
OURS = Path(fathom.__file__).parents[1]
"""This checkout's program."""
PROBE = ("fathom/manifests/pod_template.py", "LIVENESS_FAILURES: Final = 20")
HASH = ("fathom/manifests/workloads.py", " {_hash_of(manifest)}")
VERSION = ("fathom/__init__.py", 'version("fathom")')


def build(folder: Path, name: str, changes: Mapping[tuple[str, str], str]) -> Path:
    """Another build of the operator: a copy of this one with some places rewritten."""
    other = folder / name
    for package in ("fathom", "fathom_vllm", "fathom_fetch", "fathom_measure"):
        shutil.copytree(OURS / package, other / package)
    for (file, text), instead in changes.items():
        source = (other / file).read_text()
        assert source.count(text) == 1, f"{file} has to have {text} once"
        (other / file).write_text(source.replace(text, instead))
    return other


SOURCES: Final[JsonValue] = [
    {
        "name": name,
        "url": "https://prometheus.example.com",
        "namespaces": ["*"],
        **login,
    }
    for name, login in (
        ("missing", {"tokenFile": {"secretName": "missing", "key": "token"}}),
        ("projected", {"projectedToken": {"audience": "prometheus"}}),
    )
]
"""One without its Secret: the operator starts nevertheless."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a pod of the operator sees it: a volume hides what lies in /tmp."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir()) as folder:
        yield Path(folder)


@dataclass(frozen=True)
class Installed:
    """A release in a namespace of its own, which is the one that it serves."""

    helm: Helm
    namespace: TestNamespace

    async def install(self, chart: Path, replicas: int, program: Path = OURS) -> None:
        await self._run(self.helm.install, self._release(chart, replicas, program))

    async def upgrade(self, chart: Path, replicas: int, program: Path = OURS) -> None:
        await self._run(self.helm.upgrade, self._release(chart, replicas, program))

    async def rollback(self, revision: int) -> None:
        await self._run(self.helm.rollback, "fathom", self.namespace.name, revision)

    async def uninstall(self) -> None:
        await self._run(self.helm.uninstall, "fathom", self.namespace.name)

    async def _run(self, command: Callable[..., None], *arguments: object) -> None:
        kubeconfig = self.namespace.cluster.kubeconfig
        await asyncio.to_thread(command, *arguments, kubeconfig=kubeconfig)

    def _release(self, chart: Path, replicas: int, program: Path) -> Release:
        values: dict[str, JsonValue] = {
            "namespaces": [self.namespace.name],
            "replicas": replicas,
            "hub": {"enabled": False},
            "env": [{"name": "PYTHONPATH", "value": str(program)}],
            **({"prometheus": {"sources": SOURCES}} if chart == CHART else {}),
        }
        return Release(chart, "fathom", self.namespace.name, values)


@pytest.fixture
async def release(namespace: TestNamespace) -> AsyncIterator[Installed]:
    """None yet. A CRD of other tests belongs to no release, and goes first."""
    await remove_crd(namespace)
    yield Installed(await asyncio.to_thread(find_helm), namespace)
    await remove_crd(namespace)


async def remove_crd(namespace: TestNamespace) -> None:
    async def gone() -> bool:
        try:
            await namespace.api.request("DELETE", CRD)
        except ApiException as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return True
            raise
        return False

    await until(gone, "there is no CRD")


async def test_what_serves_outlives_upgrade_rollback_and_uninstall(
    release: Installed, namespace: TestNamespace, folder: Path
) -> None:
    """Also where each build of the operator renders pods otherwise, and what one offers is taken.

    The earlier one is of the same version, and of those that left no hash of what they rendered.
    """
    probe = PROBE[1].removesuffix("20")
    earlier = build(folder, "earlier", {PROBE: f"{probe}21", HASH: ""})
    later = build(folder, "later", {PROBE: f"{probe}22", VERSION: '"0.2.0"'})
    resource = Resource(namespace)
    await release.install(PREVIOUS, replicas=1, program=earlier)
    await resource.apply(SERVING)
    await resource.wait("Ready", "True")
    before = await Serving.of(resource)
    assert "workerTemplate" not in await known_fields(namespace)
    service = await namespace.get("Service", resource.name)
    assert service is not None
    url = f"http://{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"
    async with LoadGenerator(url, "pair") as load:
        load.set_phase(Phase(EASY, concurrency=2))

        await release.upgrade(CHART, replicas=2)
        await follows(resource, tokens=2)
        assert await Serving.of(resource) == before
        await rollout_is(resource, "Offered", "livenessProbe: failureThreshold 21 became 20")
        assert "workerTemplate" in await known_fields(namespace)

        async def two() -> bool:
            return len(await operators(namespace)) == 2

        await until(two, "two operators, and none of before")

        await release.rollback(1)
        await follows(resource, tokens=4)
        assert await Serving.of(resource) == before
        assert "workerTemplate" not in await known_fields(namespace)

        await release.uninstall()

        async def stopped() -> bool:
            return await operators(namespace) == []

        await until(stopped, "the operator is gone")
        served = len(load.results)
        assert await Serving.of(resource) == before
        assert await namespace.all_of("Role") == []

        async def still_serves() -> bool:
            return len(load.results) > served + 10

        await until(still_serves, "requests are answered without an operator")

        # As documented: the CRD that was kept is the release's again, and the resource, too.
        await release.install(CHART, replicas=1)
        await follows(resource, tokens=3)
        assert await Serving.of(resource) == before

        await release.upgrade(CHART, replicas=1, program=later)
        await follows(resource, tokens=1)
        assert await Serving.of(resource) == before

    print(f"{len(load.results)} requests")
    assert [result.error for result in load.results if not result.ok] == []
    await what_is_offered_is_taken(release, resource)
    await resource.delete()
    await release.uninstall()


async def what_is_offered_is_taken(release: Installed, resource: Resource) -> None:
    """And outlives a roll-back to the build before."""
    offered = await rollout_is(resource, "Offered", "livenessProbe: failureThreshold 21 became 22")
    await resource.annotate({names.ANNOTATION_ROLLOUT: offered})
    assert await rollout_is(resource, "Complete") == offered
    assert await resource.namespace.get("Deployment", f"{resource.name}-{offered}") is not None
    before = await Serving.of(resource)
    await release.rollback(1)
    await follows(resource, tokens=2)
    await rollout_is(resource, "Offered", "livenessProbe: failureThreshold 22 became 20")
    assert await Serving.of(resource) == before


@dataclass(frozen=True)
class Serving:
    """What a change of the operator must leave alone."""

    uid: str
    """Uid of the resource: it is not another one of the same name."""
    pods: frozenset[tuple[str, int]]
    """Each pod, and how often its container was restarted."""
    children: frozenset[str]
    """Its Service, and what its pods and its tuner live by."""

    @classmethod
    async def of(cls, resource: Resource) -> "Serving":
        namespace, label = resource.namespace, names.LABEL_NAME
        pods = [each for each in await namespace.all_of("Pod") if label in labels(each)]
        children = [
            each
            for kind in ("Service", "ConfigMap", "Deployment", "ServiceAccount")
            for each in await namespace.all_of(kind)
            if label in labels(each)
        ]
        return cls(
            (await resource.get())["metadata"]["uid"],
            frozenset(
                (pod["metadata"]["uid"], status["restartCount"])
                for pod in pods
                for status in pod["status"]["containerStatuses"]
            ),
            frozenset(each["metadata"]["uid"] for each in children),
        )


async def rollout_is(resource: Resource, stage: str, why: str = "") -> str:
    """Return the revision once the status tells of a rollout at this stage, for this reason."""

    async def told() -> str | None:
        rollout = (await resource.get())["status"].get("rollout", {})
        right = rollout.get("stage") == stage and rollout.get("why", "").startswith(why)
        return str(rollout["revision"]) if right else None

    return await until(told, f"a rollout is {stage}: {why}")


def labels(item: Object) -> dict[str, str]:
    found: dict[str, str] = item["metadata"].get("labels", {})
    return found


async def operators(namespace: TestNamespace) -> list[str]:
    """The operator's pods."""
    return [
        pod["metadata"]["name"]
        for pod in await namespace.all_of("Pod")
        if labels(pod).get("app.kubernetes.io/name") == "fathom"
    ]


async def follows(resource: Resource, tokens: int) -> None:
    """Edit the depth, which an operator has to see; return once all engines report it."""
    await resource.edit({"speculation": {"tokens": tokens}})
    async with aiohttp.ClientSession() as http:
        namespace = resource.namespace
        fleet = DemoFleet(namespace.api, http, namespace.name, resource.name)

        async def followed() -> bool:
            return await fleet.depth_in_force(2) == tokens

        await until(followed, f"depth is {tokens} in all engines")


async def known_fields(namespace: TestNamespace) -> set[str]:
    """Fields of the spec that the CRD has."""
    (version,) = (await namespace.api.request("GET", CRD))["spec"]["versions"]
    return {*version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]}
