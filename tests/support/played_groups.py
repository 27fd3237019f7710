"""LeaderWorkerSet's controller and the ComputeDomain's driver, as far as pods notice them.

It looks at a namespace again and again and does what the real ones would: groups come with a
leader and its workers, a group is made anew when one of its pods goes, the last groups go first.
Source: `pkg/controllers` and `pkg/webhooks` of github.com/kubernetes-sigs/lws. A local cluster has
no names, so addresses stand where names would.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from kubernetes.aio.client.exceptions import ApiException

from fathom_local.kube import MERGE_PATCH, Object
from support.local_cluster import TestNamespace

LOOK_SECONDS = 0.2
PREFIX = "leaderworkerset.sigs.k8s.io"
GONE, THERE = 404, 409


class PlayedGroups:
    """Of one namespace."""

    def __init__(self, namespace: TestNamespace) -> None:
        self.namespace = namespace
        self.restarted: list[str] = []
        """Groups that were made anew, by their leaders' names."""
        self.fewest_ready: dict[str, int] = {}
        """By SpeculativeDeployment: the fewest groups of all revisions that were ready at a look,
        since all had been once; reset by the test."""
        self.stranded: list[str] = []
        """Pods seen after their ComputeDomain was gone: they would have lost NVLink."""
        self._workers: dict[str, int] = {}
        """By leader's uid: workers made for it."""
        self._domains: set[str] = set()

    async def look(self) -> None:
        """One look at everything."""
        domains = {
            each["metadata"]["name"] for each in await self.namespace.all_of("ComputeDomain")
        }
        pods = [pod for pod in await self.namespace.all_of("Pod") if _group(pod)]
        for pod in pods:
            owner = pod["metadata"]["labels"]["fathom.dev/name"]
            if owner in self._domains - domains:
                self.stranded.append(pod["metadata"]["name"])
        self._domains |= domains
        self._count(pods)
        for each in await self.namespace.all_of("LeaderWorkerSet"):
            if "deletionTimestamp" not in each["metadata"]:
                own = [pod for pod in pods if _group(pod) == each["metadata"]["name"]]
                await self._reconcile(each, own)

    def _count(self, pods: Iterable[Object]) -> None:
        ready: dict[str, int] = {}
        for pod in pods:
            name = pod["metadata"]["labels"]["fathom.dev/name"]
            ready[name] = ready.get(name, 0) + (_index(pod, "worker-index") == 0 and _ready(pod))
        for name, count in ready.items():
            if name in self.fewest_ready:
                self.fewest_ready[name] = min(self.fewest_ready[name], count)

    async def _reconcile(self, given: Object, pods: list[Object]) -> None:
        name, wanted = given["metadata"]["name"], given["spec"]["replicas"]
        size = given["spec"]["leaderWorkerTemplate"]["size"]
        leaders = {
            _index(pod, "group-index"): pod for pod in pods if _index(pod, "worker-index") == 0
        }
        for index in range(wanted):
            if index not in leaders:
                # As with a StatefulSet: its predecessor, workers included, is gone by now.
                if not any(_index(pod, "group-index") == index for pod in pods):
                    await self._create(given, index, 0, None)
                continue
            members = [pod for pod in pods if _index(pod, "group-index") == index]
            await self._keep(given, leaders[index], members, size)
        for index, leader in leaders.items():
            if index >= wanted and not _ending(leader):
                await self._delete(leader)
        ready = sum(_ready(leader) for leader in leaders.values())
        await self._report(name, given, {"replicas": len(leaders), "readyReplicas": ready})

    async def _keep(self, given: Object, leader: Object, members: list[Object], size: int) -> None:
        if _ending(leader):
            return
        uid = leader["metadata"]["uid"]
        workers = [pod for pod in members if pod is not leader]
        lost = len([pod for pod in workers if not _ending(pod)]) < self._workers.get(uid, 0)
        if lost or any(_restarted(pod) for pod in members):
            self.restarted.append(leader["metadata"]["name"])
            await self._delete(leader, propagationPolicy="Foreground")
        elif uid not in self._workers and leader.get("status", {}).get("podIP"):
            for number in range(1, size):
                await self._create(given, _index(leader, "group-index"), number, leader)
            self._workers[uid] = size - 1

    async def _create(self, given: Object, index: int, number: int, leader: Object | None) -> None:
        name = given["metadata"]["name"]
        group = given["spec"]["leaderWorkerTemplate"]
        template = copy.deepcopy(group["workerTemplate" if leader else "leaderTemplate"])
        labels = {
            **template["metadata"].get("labels", {}),
            f"{PREFIX}/name": name,
            f"{PREFIX}/group-index": str(index),
            f"{PREFIX}/worker-index": str(number),
            f"{PREFIX}/group-key": f"{name}-{index}",
        }
        address: Object = {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        if leader is not None:
            address = {"value": leader["status"]["podIP"]}
        variables = [
            {"name": "LWS_LEADER_ADDRESS", **address},
            {"name": "LWS_GROUP_SIZE", "value": str(group["size"])},
            {"name": "LWS_WORKER_INDEX", "value": str(number)},
        ]
        for container in template["spec"]["containers"]:
            container["env"] = variables + container.get("env", [])
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{index}" + (f"-{number}" if number else ""),
                "labels": labels,
                "ownerReferences": [_owned_by(leader or given)],
            },
            "spec": template["spec"],
        }
        await _unless(THERE, self.namespace.create(pod))

    async def _delete(self, pod: Object, **options: Any) -> None:
        await _unless(GONE, self.namespace.delete("Pod", pod["metadata"]["name"], **options))

    async def _report(self, name: str, given: Object, status: Object) -> None:
        if given.get("status") != status:
            path = self.namespace.path("LeaderWorkerSet", name) + "/status"
            request = self.namespace.api.request(
                "PATCH", path, body={"status": status}, content_type=MERGE_PATCH
            )
            await _unless(GONE, request)


@asynccontextmanager
async def played_groups(namespace: TestNamespace) -> AsyncIterator[PlayedGroups]:
    """Plays until it is left; what went wrong in it fails the test."""
    played = PlayedGroups(namespace)

    async def play() -> None:
        while True:
            await played.look()
            await asyncio.sleep(LOOK_SECONDS)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(play())
        yield played
        task.cancel()


async def _unless(status: int, request: Any) -> None:
    try:
        await request
    except ApiException as error:
        if error.status != status:
            raise


def _group(pod: Object) -> str:
    name: str = pod["metadata"].get("labels", {}).get(f"{PREFIX}/name", "")
    return name


def _index(pod: Object, which: str) -> int:
    return int(pod["metadata"]["labels"][f"{PREFIX}/{which}"])


def _ending(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return not _ending(pod) and any(
        each["type"] == "Ready" and each["status"] == "True" for each in conditions
    )


def _restarted(pod: Object) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return any(each["restartCount"] > 0 for each in statuses)


def _owned_by(owner: Object) -> Object:
    metadata = owner["metadata"]
    return {
        "apiVersion": owner.get("apiVersion", "v1"),
        "kind": owner.get("kind", "Pod"),
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
