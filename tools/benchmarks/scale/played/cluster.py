"""Deployments get pods without processes: what controllers, scheduler and kubelets would do.

What the operator sees of it is real, objects and watches alike; nothing is started. A pod is on a
node and ready at once, or never, as its resource's lot has it.
"""

import asyncio
import hashlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from kubernetes.aio.client.exceptions import ApiException

from benchmarks.scale.plan import Lot, lot_of
from benchmarks.scale.played import manifests
from benchmarks.scale.played.engine import PlayedEngine
from benchmarks.scale.played.page_server import address
from fathom.api import names
from fathom.manifests.config_maps import DEPTH_COMPONENT
from fathom_vllm.environment import DEPTH_KEY
from local_cluster.kube import MERGE_PATCH, Key, KubeApi, Mirror, Object, is_status

_AT_ONCE: Final = 16
"""Writes that are on their way together."""
_DEPLOYMENTS: Final = "/apis/apps/v1/deployments"
_CONFIG_MAPS: Final = "/api/v1/configmaps"


@dataclass(slots=True)
class _Workload:
    """One Deployment, and the pods that were made for it."""

    deployment: Object | None
    pods: list[tuple[str, str]] = field(default_factory=list)
    """Name and address, the address empty where there is none."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def wanted(self) -> int:
        return 0 if self.deployment is None else self.deployment["spec"]["replicas"]


class PlayedCluster:
    """Plays until its task is cancelled."""

    def __init__(self, api: KubeApi) -> None:
        """Begin with nothing.

        Args:
            api: as somebody whom the audit log can tell from the operator.
        """
        self.engines: dict[str, PlayedEngine] = {}
        """By address: the engines of the pods that are ready."""
        self._api = api
        self._workloads: dict[Key, _Workload] = {}
        self._deployments = defaultdict[Key, list[Key]](list)
        """Deployments of each resource, the oldest first."""
        self._serving = defaultdict[Key, set[str]](set)
        """Addresses of the pods of each resource that are ready."""
        self._documents: dict[Key, str] = {}
        self._busy = False
        self._addresses = 0
        """Given out so far; those of pods that went are given to others."""
        self._free: list[str] = []
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._mirrors = (
            Mirror(api, _DEPLOYMENTS, changed=self._deployment_changed),
            Mirror(
                api,
                _CONFIG_MAPS,
                changed=self._document_changed,
                selector=f"{names.LABEL_COMPONENT}={DEPTH_COMPONENT}",
            ),
        )
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Watch and play; returns never."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for mirror in self._mirrors:
                tasks.create_task(mirror.run())

    def set_traffic(self, *, busy: bool) -> None:
        """Requests at every engine from now on, or at none."""
        self._busy = busy
        now_s = time.time()
        for engine in self.engines.values():
            engine.set_traffic(busy=busy, now_s=now_s)

    def revisions(self, resource: Key) -> int:
        """Deployments of this resource that have pods."""
        return sum(bool(self._workloads[key].pods) for key in self._deployments[resource])

    def _owner(self, key: Key, workload: _Workload) -> Key:
        deployment = workload.deployment
        labels = {} if deployment is None else deployment["metadata"].get("labels", {})
        return key[0], labels.get(names.LABEL_NAME, "")

    def _deployment_changed(self, key: Key, deployment: Object | None) -> None:
        workload = self._workloads.get(key)
        if workload is None:
            workload = self._workloads[key] = _Workload(deployment)
            self._deployments[self._owner(key, workload)].append(key)
            assert self._tasks is not None  # noqa: S101 - a mirror runs, so `run` does
            self._tasks.create_task(self._follow(key, workload))
        workload.deployment = deployment
        workload.changed.set()

    def _document_changed(self, key: Key, config_map: Object | None) -> None:
        if config_map is None:
            return
        resource = key[0], config_map["metadata"]["labels"][names.LABEL_NAME]
        document = self._documents[resource] = config_map["data"][DEPTH_KEY]
        for at in self._serving[resource]:
            self.engines[at].obey(document)

    async def _follow(self, key: Key, workload: _Workload) -> None:
        """Make and remove pods until there are as many as the Deployment asks for."""
        while True:
            await workload.changed.wait()
            workload.changed.clear()
            while len(workload.pods) > workload.wanted:
                await self._remove(self._owner(key, workload), *workload.pods.pop())
            while workload.deployment is not None and len(workload.pods) < workload.wanted:
                workload.pods.append(await self._made(key, workload, workload.deployment))

    async def _made(self, key: Key, workload: _Workload, deployment: Object) -> tuple[str, str]:
        """A pod, and the status that its lot gives it."""
        resource = self._owner(key, workload)
        lot = lot_of(resource[1])
        if lot is Lot.UNSCHEDULABLE:
            pod = await self._create(manifests.pod(deployment, None))
            await self._say(pod, manifests.unschedulable())
            return pod["metadata"]["name"], ""
        at = self._address()
        pod = await self._create(manifests.pod(deployment, manifests.node_name(0)))
        ready = lot is not Lot.ROLLING or self._deployments[resource][0] == key
        if ready:
            engine = PlayedEngine(pod["metadata"]["name"], _phase(resource), time.time())
            engine.obey(self._documents.get(resource, ""))
            engine.set_traffic(busy=self._busy, now_s=time.time())
            self.engines[at] = engine
            self._serving[resource].add(at)
        await self._say(pod, manifests.running(at, ready=ready))
        return pod["metadata"]["name"], at

    async def _create(self, pod: Object) -> Object:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
        return await self._slotted(lambda: self._api.request("POST", path, body=pod))

    async def _say(self, pod: Object, status: Object) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        body = {"status": status}
        await self._slotted(
            lambda: self._api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        )

    async def _remove(self, resource: Key, name: str, at: str) -> None:
        path = f"/api/v1/namespaces/{resource[0]}/pods/{name}"
        try:
            await self._slotted(
                lambda: self._api.request("DELETE", path, body={"gracePeriodSeconds": 0})
            )
        except ApiException as error:
            # The operator deletes pods, too.
            if not is_status(error, HTTPStatus.NOT_FOUND):
                raise
        if at:
            self.engines.pop(at, None)
            self._serving[resource].discard(at)
            self._free.append(at)

    def _address(self) -> str:
        if self._free:
            return self._free.pop()
        self._addresses += 1
        return address(self._addresses - 1)

    async def _slotted(self, request: Callable[[], Awaitable[Object]]) -> Object:
        async with self._slots:
            return await request()


def _phase(resource: Key) -> float:
    """Where in its wave of requests a resource is: the same in each run."""
    digest = hashlib.blake2b("/".join(resource).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") / 2**32
