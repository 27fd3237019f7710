"""LeaderWorkerSet's controller, as far as pods notice it.

Groups come with a leader and its workers, each named behind the set's headless Service; a group is
made anew when one of its pods goes; the last groups go first. The real one does it with a
StatefulSet for the leaders and one for each group's workers, whose own labels are missing here.
Source: `pkg/controllers`, `pkg/webhooks` and `pkg/utils` of github.com/kubernetes-sigs/lws.
"""

from typing import Any

from local_cluster.kube import MERGE_PATCH, Object
from support.group_pods import PREFIX, group_pod, index_of, owned_by, set_of
from support.group_watch import Look, ending, unless
from support.local_cluster import TestNamespace, is_ready

GONE, THERE = 404, 409


class PlayedGroups:
    """Groups of one namespace."""

    def __init__(self, namespace: TestNamespace) -> None:
        self.namespace = namespace
        self._served: set[str] = set()
        """Sets that have their Service, by uid."""
        self._made: dict[str, set[int]] = {}
        """By leader's uid: numbers of the workers made for it."""

    async def act(self, look: Look) -> None:
        """See `Player`."""
        for each in look.sets:
            if not ending(each):
                own = [pod for pod in look.pods if set_of(pod) == each["metadata"]["name"]]
                await self._reconcile(each, own)

    async def _reconcile(self, given: Object, pods: list[Object]) -> None:
        name, wanted = given["metadata"]["name"], given["spec"]["replicas"]
        if given["metadata"]["uid"] not in self._served:
            await unless(THERE, self.namespace.create(_service(given)))
            self._served.add(given["metadata"]["uid"])
        leaders = {
            index_of(pod, "group-index"): pod for pod in pods if index_of(pod, "worker-index") == 0
        }
        for index in range(wanted):
            if index not in leaders:
                await self._create(group_pod(given, index, 0, given))
            elif not ending(leaders[index]):
                await self._keep(given, leaders[index], pods)
        for index, leader in leaders.items():
            if index >= wanted and not ending(leader):
                await self._delete(leader)
        size = given["spec"]["leaderWorkerTemplate"]["size"]
        ready = 0
        for leader in leaders.values():
            members = [leader, *_workers(leader, pods)]
            ready += len(members) == size and all(map(_serves, members))
        await self._report(name, given, {"replicas": len(leaders), "readyReplicas": ready})

    async def _keep(self, given: Object, leader: Object, pods: list[Object]) -> None:
        made = self._made.setdefault(leader["metadata"]["uid"], set())
        workers = _workers(leader, pods)
        alive = {index_of(pod, "worker-index") for pod in workers if not ending(pod)}
        if made - alive or any(_restarted(pod) for pod in (leader, *workers)):
            await self._delete(leader, propagationPolicy="Foreground")
            return
        taken = {pod["metadata"]["name"] for pod in pods}
        for number in range(1, given["spec"]["leaderWorkerTemplate"]["size"]):
            pod = group_pod(given, index_of(leader, "group-index"), number, leader)
            # A worker of a leader that is gone may still be ending.
            if number not in made and pod["metadata"]["name"] not in taken:
                await self._create(pod)
                made.add(number)

    async def _create(self, pod: Object) -> None:
        await unless(THERE, self.namespace.create(pod))

    async def _delete(self, pod: Object, **options: Any) -> None:
        await unless(GONE, self.namespace.delete("Pod", pod["metadata"]["name"], **options))

    async def _report(self, name: str, given: Object, status: Object) -> None:
        if given.get("status") != status:
            path = self.namespace.path("LeaderWorkerSet", name) + "/status"
            request = self.namespace.api.request(
                "PATCH", path, body={"status": status}, content_type=MERGE_PATCH
            )
            await unless(GONE, request)


def _service(given: Object) -> Object:
    name = given["metadata"]["name"]
    own = {f"{PREFIX}/name": name}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": own, "ownerReferences": [owned_by(given)]},
        "spec": {"clusterIP": "None", "selector": own, "publishNotReadyAddresses": True},
    }


def _workers(leader: Object, pods: list[Object]) -> list[Object]:
    """Its own: those of a leader of that name before it may still be ending."""
    uid = leader["metadata"]["uid"]
    return [
        pod
        for pod in pods
        if any(owner["uid"] == uid for owner in pod["metadata"]["ownerReferences"])
    ]


def _serves(pod: Object) -> bool:
    return is_ready(pod) and not ending(pod)


def _restarted(pod: Object) -> bool:
    status = pod.get("status", {})
    statuses = (*status.get("initContainerStatuses", []), *status.get("containerStatuses", []))
    return any(each["restartCount"] > 0 for each in statuses)
