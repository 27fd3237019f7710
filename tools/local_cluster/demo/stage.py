"""Sets the stage: a cluster, the operator by Helm, and one SpeculativeDeployment that serves."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp
import yaml
from kubernetes.aio.client.exceptions import ApiException
from pydantic import JsonValue

from fathom.api import names
from local_cluster.cluster import LocalCluster
from local_cluster.demo.fleet import DemoFleet
from local_cluster.errors import LocalClusterError
from local_cluster.helm import Release, find_helm
from local_cluster.kube import KubeApi, Object
from local_cluster.paths import REPOSITORY

CHART: Final = REPOSITORY / "charts" / "fathom"
EXAMPLE: Final = REPOSITORY / "examples" / "local-eagle3.1.yaml"
OPERATOR_NAMESPACE: Final = "fathom-system"
NAMESPACE: Final = "llm"
READY_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 1.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DemoStage:
    """What runs."""

    cluster: LocalCluster
    api: KubeApi
    fleet: DemoFleet


@asynccontextmanager
async def set_stage(cluster: LocalCluster, say: Say) -> AsyncIterator[DemoStage]:
    """Install the chart, apply the example, and wait until it serves.

    Raises:
        LocalClusterError: it is not ready in time; the message carries its conditions.
    """
    say("helm install fathom charts/fathom")
    await install_operator(cluster)
    async with on_stage(cluster) as stage:
        say(f"kubectl apply -f {EXAMPLE.relative_to(REPOSITORY)}")
        await create_namespace(stage.api, NAMESPACE)
        await create(stage.fleet, _example())
        say("two engines start: a minute or two")
        await wait_ready(stage.fleet, say)
        yield stage


@asynccontextmanager
async def on_stage(cluster: LocalCluster) -> AsyncIterator[DemoStage]:
    """The example of a cluster, whoever applied it, or will."""
    async with cluster.api() as api, aiohttp.ClientSession() as http:
        yield DemoStage(
            cluster, api, DemoFleet(api, http, NAMESPACE, _example()["metadata"]["name"])
        )


def _example() -> Object:
    manifest: Object = yaml.safe_load(EXAMPLE.read_text())
    return manifest


async def install_operator(cluster: LocalCluster) -> None:
    """The chart, as a user installs it."""
    helm = await asyncio.to_thread(find_helm)
    # With the page within reach, since nothing here forwards ports.
    values: dict[str, JsonValue] = {"page": {"service": True}}
    release = Release(CHART, "fathom", OPERATOR_NAMESPACE, values)
    await asyncio.to_thread(helm.install, release, kubeconfig=cluster.kubeconfig)


async def create_namespace(api: KubeApi, name: str) -> None:
    body: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await api.request("POST", "/api/v1/namespaces", body=body)


async def create(fleet: DemoFleet, manifest: Object) -> None:
    """Create the resource in the fleet's namespace."""
    body = manifest | {"metadata": {"name": fleet.name, "namespace": fleet.namespace}}
    path = f"/apis/{names.API_VERSION}/namespaces/{fleet.namespace}/{names.PLURAL}"
    await fleet.api.request("POST", path, body=body)


async def wait_ready(fleet: DemoFleet, say: Say, within_seconds: float = READY_SECONDS) -> None:
    """Return when the resource is Ready for its current generation.

    Raises:
        LocalClusterError: it is not in time; the message carries its conditions.
    """
    shown = ""
    try:
        async with asyncio.timeout(within_seconds):
            while not is_ready(resource := await fleet.resource()):
                if (now := progress_of(resource)) != shown:
                    shown = now
                    say(now)
                await asyncio.sleep(_POLL_SECONDS)
    except (TimeoutError, ApiException) as error:
        raise LocalClusterError(
            f"{fleet.name} was not ready within {within_seconds:.0f} s: {shown}. "
            "See `fathom local logs`."
        ) from error


def condition(resource: Object, kind: str) -> Object:
    """A condition of the resource; empty if it is not reported yet."""
    conditions: list[Object] = resource.get("status", {}).get("conditions", [])
    return next((found for found in conditions if found["type"] == kind), {})


def is_ready(resource: Object) -> bool:
    """Whether the resource is Ready, and the status speaks of the spec as it is now."""
    ready = condition(resource, "Ready")
    generation = resource["metadata"]["generation"]
    return ready.get("status") == "True" and ready.get("observedGeneration") == generation


def progress_of(resource: Object) -> str:
    """How far the resource is, in one line."""
    status = resource.get("status", {})
    told = [
        f"{found['reason']}: {found['message']}"
        for kind in ("Progressing", "Degraded")
        if (found := condition(resource, kind)).get("status") == "True"
    ]
    return f"ready {status.get('ready', '–')}  {'; '.join(told)}"
