"""One SpeculativeDeployment on a cluster, as its user and its pods show it."""

import asyncio
import time
from dataclasses import dataclass
from typing import Final

import aiohttp

from fathom.adapters.metrics_page import parse
from fathom.api import names
from fathom.engine.depth import DepthDocument, depth_at
from fathom.measurement.counters import PodCounters
from fathom_vllm.environment import DEPTH_KEY
from local_cluster.errors import LocalClusterError
from local_cluster.kube import MERGE_PATCH, KubeApi, Object

_PORT: Final = 8000
_POLL_SECONDS: Final = 0.25
_SCRAPE_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class ServingPod:
    """A pod that serves, or will."""

    name: str
    ip: str
    ready: bool
    restarts: int


@dataclass(frozen=True, slots=True)
class DemoFleet:
    """The pods of one SpeculativeDeployment. Times are Unix seconds."""

    api: KubeApi
    http: aiohttp.ClientSession
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """The resource's path at the API server."""
        return f"/apis/{names.API_VERSION}/namespaces/{self.namespace}/{names.PLURAL}/{self.name}"

    async def service_url(self) -> str:
        """Where clients send requests: the Service, by its address."""
        service = await self.api.request(
            "GET", f"/api/v1/namespaces/{self.namespace}/services/{self.name}"
        )
        port = service["spec"]["ports"][0]["port"]
        return f"http://{service['spec']['clusterIP']}:{port}"

    async def resource(self) -> Object:
        """The resource as the API server has it."""
        return await self.api.request("GET", self.path)

    async def pods(self) -> tuple[ServingPod, ...]:
        """Its pods, by name."""
        listed = await self.api.request(
            "GET",
            f"/api/v1/namespaces/{self.namespace}/pods",
            query={"labelSelector": f"{names.LABEL_NAME}={self.name}"},
        )
        return tuple(
            sorted((_serving_pod(item) for item in listed["items"]), key=lambda pod: pod.name)
        )

    async def document(self) -> DepthDocument:
        """The depths the operator asks for.

        Raises:
            LocalClusterError: the ConfigMap holds no depth document.
        """
        config_map = await self.api.request(
            "GET",
            f"/api/v1/namespaces/{self.namespace}/configmaps/{names.depth_config_map(self.name)}",
        )
        document = DepthDocument.from_json(config_map["data"][DEPTH_KEY])
        if document is None:
            raise LocalClusterError(
                f"ConfigMap {names.depth_config_map(self.name)} holds no depth document."
            )
        return document

    async def depth_in_force(self, batch: int) -> int | None:
        """The depth at a batch that every engine reports; None while one lags behind."""
        document = await self.document()
        counters = await self.counters()
        if any(pod.depth_generation < document.generation for pod in counters):
            return None
        return depth_at(document.schedule, batch)

    async def counters(self) -> tuple[PodCounters, ...]:
        """What each pod's /metrics shows now."""
        return tuple(await asyncio.gather(*map(self._scrape, await self.pods())))

    async def pin(self, depth: int | None, *, within_seconds: float = 60.0) -> None:
        """Hold every pod at one depth, or let the tuner have them back; return when in force.

        An engine reads its depth when it steps, so there must be traffic.

        Raises:
            LocalClusterError: it was not in force in time.
        """
        try:
            async with asyncio.timeout(within_seconds):
                pods = await self.pods()
                await self._annotate(pods, depth)
                while not await self._in_force(pods, depth):
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError as error:
            asked = "The tuner's depth" if depth is None else f"Depth {depth}"
            raise LocalClusterError(
                f"{asked} was not in force within {within_seconds:.0f} s. See the operator's "
                "and the engines' output with `fathom local logs`."
            ) from error

    async def _annotate(self, pods: tuple[ServingPod, ...], depth: int | None) -> None:
        value = None if depth is None else str(depth)
        annotations = {"metadata": {"annotations": {names.ANNOTATION_PIN_DEPTH: value}}}
        for pod in pods:
            await self.api.request(
                "PATCH",
                f"/api/v1/namespaces/{self.namespace}/pods/{pod.name}",
                body=annotations,
                content_type=MERGE_PATCH,
            )

    async def _in_force(self, pods: tuple[ServingPod, ...], depth: int | None) -> bool:
        document = await self.document()
        if depth is None:
            # A probe may override one pod; all of them overridden is the pin.
            asked = len(document.pods) < len(pods)
        else:
            asked = all(_flat_at(document, pod.name, depth) for pod in pods)
        if not asked:
            return False
        counters = await self.counters()
        return all(pod.depth_generation >= document.generation for pod in counters)

    async def _scrape(self, pod: ServingPod) -> PodCounters:
        timeout = aiohttp.ClientTimeout(total=_SCRAPE_SECONDS)
        url = f"http://{pod.ip}:{_PORT}/metrics"
        async with self.http.get(url, timeout=timeout) as response:
            response.raise_for_status()
            text = await response.text()
        return parse(text, pod=pod.name, at_s=time.time())


def _flat_at(document: DepthDocument, pod: str, depth: int) -> bool:
    schedule = document.for_pod(pod)
    return {depth_at(schedule, part.first) for part in schedule} == {depth}


def _serving_pod(item: Object) -> ServingPod:
    status = item.get("status", {})
    containers = status.get("containerStatuses", [])
    return ServingPod(
        name=item["metadata"]["name"],
        ip=status.get("podIP", ""),
        ready=any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in status.get("conditions", [])
        ),
        restarts=sum(container["restartCount"] for container in containers),
    )
