"""The chart's life on a real cluster, under traffic: what serves is never touched by it.

The operator runs in its own pod, as the chart has it. Its program is this checkout's in each of
them: what an upgrade changes here is the chart, with the rights, the CRD and the number of pods.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest
from kubernetes.aio.client.exceptions import ApiException

from e2e.observation import depth_in_force
from fathom.api import names
from fathom_local.demo.fleet import DemoFleet
from fathom_local.engine.traffic import LoadGenerator, Phase
from fathom_local.engine.walk import EASY
from fathom_local.kube import Object
from fathom_local.tools.helm import Helm, Release, find_helm
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
SERVING = {**SPEC, "speculation": {**SPEC["speculation"], "tuning": {"mode": "Advise"}}}


@dataclass(frozen=True)
class Installed:
    """A release in a namespace of its own, which is the one that it serves."""

    helm: Helm
    namespace: TestNamespace

    async def install(self, chart: Path, replicas: int) -> None:
        await self._run(self.helm.install, self._release(chart, replicas))

    async def upgrade(self, chart: Path, replicas: int) -> None:
        await self._run(self.helm.upgrade, self._release(chart, replicas))

    async def rollback(self, revision: int) -> None:
        await self._run(self.helm.rollback, "fathom", self.namespace.name, revision)

    async def uninstall(self) -> None:
        await self._run(self.helm.uninstall, "fathom", self.namespace.name)

    async def _run(self, command: Callable[..., None], *arguments: object) -> None:
        kubeconfig = self.namespace.cluster.kubeconfig
        await asyncio.to_thread(command, *arguments, kubeconfig=kubeconfig)

    def _release(self, chart: Path, replicas: int) -> Release:
        values = {
            "namespaces": [self.namespace.name],
            "replicas": replicas,
            "hub": {"enabled": False},
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
    release: Installed, namespace: TestNamespace
) -> None:
    resource = Resource(namespace)
    await release.install(PREVIOUS, replicas=1)
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

    print(f"{len(load.results)} requests")
    assert [result.error for result in load.results if not result.ok] == []
    await resource.delete()
    await release.uninstall()


@dataclass(frozen=True)
class Serving:
    """What a change of the operator must leave alone."""

    uid: str
    """Of the resource: it is not another one of the same name."""
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
            return await depth_in_force(fleet, batch=2) == tokens

        await until(followed, f"depth is {tokens} in all engines")


async def known_fields(namespace: TestNamespace) -> set[str]:
    """Fields of the spec that the CRD has."""
    (version,) = (await namespace.api.request("GET", CRD))["spec"]["versions"]
    return {*version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]}
