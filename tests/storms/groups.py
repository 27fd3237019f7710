"""LeaderWorkerSet's controller of a history: each group is a leader that serves, and its workers.

A group is made again as a whole when one of its pods fails, goes or restarts. A name is used again
once who had it is gone; the last groups go first.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fathom.cluster.kinds import LEADER_WORKER_SET, POD
from storms.server import Objects
from support.group_pods import PREFIX, group_pod, hash_of, index_of, set_of, template_hash

CHANGED: Final = "its workload's template changed"
SHRANK: Final = "its workload shrank"
RESTARTED: Final = "its group is made again"
"""Why a pod goes."""


@dataclass(kw_only=True)
class Groups:
    """The controller; its pods run elsewhere."""

    objects: Objects
    start: Callable[[dict[str, Any], tuple[Any, ...]], bool]
    """Make a pod for an owner that has and is to have so much, unless the cluster refuses it."""
    content: Callable[[str], None]
    """Told of an owner's uid: no pod is to be made for it."""
    leave: Callable[[Mapping[str, Any], str], None]
    """Tell a pod to go, and why."""
    give_up: Callable[[Mapping[str, Any]], None]
    """End the engine of a leader whose group has lost a rank, and keep its object until the last
    worker is gone."""
    broken: Callable[[Mapping[str, Any]], bool]
    """Whether a pod has failed, or its engine was started again."""
    _made: dict[str, set[int]] = field(default_factory=dict, init=False)
    """By leader's uid: numbers of the workers that were made for it."""
    _hashes: dict[str, str] = field(default_factory=dict, init=False)
    """Hashes of templates, by resource version."""

    def step(self) -> None:
        """Make what is asked for and is not there, and let go what is too much."""
        sets = self.objects.each(LEADER_WORKER_SET)
        if not sets:
            return
        owned = defaultdict[str, list[dict[str, Any]]](list)
        for pod in self.objects.each(POD):
            for uid in _owners(pod):
                owned[uid].append(pod)
        for each in sets:
            self._reconcile(each, owned)

    def _reconcile(self, given: dict[str, Any], owned: Mapping[str, list[dict[str, Any]]]) -> None:
        leaders = {index_of(pod, "group-index"): pod for pod in owned[given["metadata"]["uid"]]}
        wanted = given["spec"].get("replicas", 1)
        if leaders.keys() >= set(range(wanted)):
            self.content(given["metadata"]["uid"])
        for index in range(wanted):
            if index not in leaders:
                self._start(given, index, 0, given, (len(leaders), wanted))
            elif not _goes(leaders[index]):
                workers = owned[leaders[index]["metadata"]["uid"]]
                self._keep(given, leaders[index], workers)
        for index, leader in leaders.items():
            if index >= wanted and not _goes(leader):
                self.leave(leader, SHRANK)

    def _keep(
        self, given: dict[str, Any], leader: dict[str, Any], workers: list[dict[str, Any]]
    ) -> None:
        if hash_of(leader) != self._hash(given):
            self.leave(leader, CHANGED)
            return
        made = self._made.setdefault(leader["metadata"]["uid"], set())
        alive = {index_of(pod, "worker-index") for pod in workers if not _goes(pod)}
        if made - alive or any(map(self.broken, (leader, *workers))):
            self.give_up(leader)
            for pod in (leader, *workers):
                self.leave(pod, RESTARTED)
            return
        for number in range(1, given["spec"]["leaderWorkerTemplate"]["size"]):
            if number not in made and self._start(
                given, index_of(leader, "group-index"), number, leader, (len(alive),)
            ):
                made.add(number)

    def _start(
        self,
        given: dict[str, Any],
        index: int,
        number: int,
        owner: dict[str, Any],
        asked: tuple[Any, ...],
    ) -> bool:
        """Make a pod, unless another of its name still goes, or the cluster refuses it."""
        body = group_pod(given, index, number, owner)
        body["metadata"]["namespace"] = given["metadata"]["namespace"]
        if self.objects.look(POD, body["metadata"]["namespace"], body["metadata"]["name"]):
            return False
        return self.start(body, asked)

    def _hash(self, given: dict[str, Any]) -> str:
        version = given["metadata"]["resourceVersion"]
        if version not in self._hashes:
            self._hashes[version] = template_hash(given)
        return self._hashes[version]

    def gathered_at_s(
        self, leader: dict[str, Any], began_s: Callable[[Mapping[str, Any]], float | None]
    ) -> float | None:
        """When the last rank of a leader's group began, which all others wait for.

        Args:
            leader: a pod that serves; one without a group is its own.
            began_s: when a pod's engine began; None: it has not.

        Returns:
            Simulated seconds; None: a rank is missing.
        """
        ranks = [leader]
        if set_of(leader):
            uid = leader["metadata"]["uid"]
            ranks += [pod for pod in self.objects.each(POD) if uid in _owners(pod)]
            size = leader["metadata"]["annotations"][f"{PREFIX}/size"]
            if len(ranks) < int(size):
                return None
        began = [at_s for each in ranks if (at_s := began_s(each)) is not None]
        return max(began) if len(began) == len(ranks) else None


def _owners(pod: Mapping[str, Any]) -> list[str]:
    return [each["uid"] for each in pod["metadata"].get("ownerReferences") or ()]


def _goes(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]
