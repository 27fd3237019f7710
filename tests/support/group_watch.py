"""What happens to groups and ComputeDomains in a namespace, seen from outside.

It looks again and again, whoever makes the groups: those that play it are told what was seen.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from kubernetes.aio.client.exceptions import ApiException

from local_cluster.kube import Object
from support.group_pods import index_of, set_of
from support.local_cluster import TestNamespace, is_ready

LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Look:
    """What was there, one kind after the other."""

    domains: list[Object]
    pods: list[Object]
    """Those of groups."""
    sets: list[Object]


class Player(Protocol):
    """Does after each look what a controller would."""

    async def act(self, look: Look) -> None: ...


class GroupWatch:
    """Watch of the groups of one namespace."""

    def __init__(self) -> None:
        self.restarted: list[str] = []
        """Groups that were made anew, by their leaders' names."""
        self.fewest_ready: dict[str, int] = {}
        """By SpeculativeDeployment: the fewest groups of all revisions that were ready at a look,
        since all had been once; reset by the test."""
        self.stranded: list[str] = []
        """Pods seen after their ComputeDomain was to go: they would have lost NVLink."""
        self._leaders: dict[str, str] = {}
        """By name: the uid of the leader seen last."""
        self._domains: set[str] = set()

    def see(self, look: Look) -> None:
        """One look at everything."""
        domains = {each["metadata"]["name"] for each in look.domains if not ending(each)}
        for pod in look.pods:
            if _owner(pod) in self._domains - domains:
                self.stranded.append(pod["metadata"]["name"])
        self._domains |= domains
        leaders = [pod for pod in look.pods if index_of(pod, "worker-index") == 0]
        for leader in leaders:
            name, uid = leader["metadata"]["name"], leader["metadata"]["uid"]
            if self._leaders.setdefault(name, uid) != uid:
                self.restarted.append(name)
                self._leaders[name] = uid
        self._count(leaders)

    def _count(self, leaders: Iterable[Object]) -> None:
        ready: dict[str, int] = {}
        for leader in leaders:
            serves = is_ready(leader) and not ending(leader)
            ready[_owner(leader)] = ready.get(_owner(leader), 0) + serves
        for name, fewest in self.fewest_ready.items():
            self.fewest_ready[name] = min(fewest, ready.get(name, fewest))


@asynccontextmanager
async def watched_groups(
    namespace: TestNamespace, players: Sequence[Player] = ()
) -> AsyncIterator[GroupWatch]:
    """Watches until it is left; what goes wrong in a player fails the test."""
    watch = GroupWatch()

    async def keep_looking() -> None:
        while True:
            look = await _look(namespace)
            watch.see(look)
            for player in players:
                await player.act(look)
            await asyncio.sleep(LOOK_SECONDS)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(keep_looking())
        try:
            yield watch
        finally:
            task.cancel()


async def _look(namespace: TestNamespace) -> Look:
    domains = await _all_of(namespace, "ComputeDomain")
    pods = [pod for pod in await namespace.all_of("Pod") if set_of(pod)]
    return Look(domains, pods, await _all_of(namespace, "LeaderWorkerSet"))


async def _all_of(namespace: TestNamespace, kind: str) -> list[Object]:
    try:
        return await namespace.all_of(kind)
    except ApiException as error:
        if error.status != 404:  # the kind goes at the end, while its last objects are still kept
            raise
        return []


async def unless(status: int, request: Awaitable[object]) -> None:
    """A request that may be answered so as well."""
    try:
        await request
    except ApiException as error:
        if error.status != status:
            raise


def ending(item: Object) -> bool:
    """Whether somebody has deleted it."""
    return "deletionTimestamp" in item["metadata"]


def _owner(pod: Object) -> str:
    name: str = pod["metadata"]["labels"]["fathom.dev/name"]
    return name
