"""Takes each right away from a running operator, alone, and sees what misses it.

A right is missed if the API server refuses the operator for the lack of it, and either a scenario
fails for it or the operator says so.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from kubernetes.aio.client.exceptions import ApiException

from local_cluster.cluster import LocalCluster
from local_cluster.control_plane.audit import AuditEvent
from local_cluster.kube import MERGE_PATCH
from rights.granted import NODE_RULES, Right, used_by, without
from rights.scenarios import SCENARIOS, Place, place_in
from support.local_cluster import a_namespace
from support.operator_process import ACCOUNT, RULES, cluster_role_of
from support.waiting import until

ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
ASKED_AT_THE_START = frozenset({"list", "watch"})
"""Verbs that a running operator uses again only after minutes: it is restarted."""
POLL_SECONDS = 0.5
SETTLES_SECONDS = 1.0
_SAYS = "forbidden"
"""In each sentence of the API server's about a right that is lacking."""


@dataclass(frozen=True, slots=True)
class Missed:
    """What became of one right."""

    right: Right
    scenario: str
    refused: int
    """Requests that the API server refused for the lack of it."""
    failed: str
    """What of the scenario did not come about; empty: nothing."""
    said: str
    """What the operator said of it; empty: nothing."""

    @property
    def holds(self) -> bool:
        """Whether anything misses it."""
        return bool(self.refused and (self.failed or self.said))


@dataclass(frozen=True, slots=True)
class Ran:
    """One scenario, undisturbed."""

    used: frozenset[Right]
    refused: int
    """Requests that the API server refused the operator."""


class Stage:
    """A cluster on which several scenarios are played at a time."""

    def __init__(
        self, cluster: LocalCluster, directory: Path, patience_seconds: float, at_once: int
    ) -> None:
        self._cluster = cluster
        self._directory = directory
        self._patience_seconds = patience_seconds
        self._free = asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[Place]:
        async with self._free, a_namespace(self._cluster) as namespace:
            directory = self._directory / namespace.name
            directory.mkdir()
            async with place_in(namespace, directory, self._patience_seconds) as place:
                yield place

    async def play(self, name: str) -> Ran:
        """One scenario with all rights."""
        async with self.place() as place:
            await SCENARIOS[name](place)
            # A watch is logged when it ends.
            place.operator.kill()
            asked = [each for each in await _all_requests(place) if each.resource]
        used = frozenset(right for each in asked if each.code < 400 for right in used_by(each))
        return Ran(used, sum(each.code == 403 for each in asked))

    async def without(self, right: Right, name: str) -> Missed:
        """One scenario with all rights but one."""
        async with self.place() as place:
            await _take(right, place)
            before = len(place.operator.said())
            if right.verb in ASKED_AT_THE_START:
                place.operator.kill()
                place.operator.start()
            failed = ""
            try:
                await SCENARIOS[name](place)
            except (pytest.fail.Exception, AssertionError, ApiException, ValueError) as failure:
                # Beyond that stands the whole status.
                failed = str(failure).splitlines()[0].partition(": {")[0]
            found = Missed(right, name, 0, failed, "")
            ends_s = time.monotonic() + self._patience_seconds
            while not found.holds and time.monotonic() < ends_s:
                # It may ask a moment later than what the scenario has waited for.
                await asyncio.sleep(POLL_SECONDS)
                found = _look(found, place, before)
        return found


async def _all_requests(place: Place) -> Sequence[AuditEvent]:
    """Requests of an operator that has ended, once the API server logs no more of them."""
    found = place.operator.requests()
    while True:
        await asyncio.sleep(SETTLES_SECONDS)
        more = place.operator.requests()
        if len(more) == len(found):
            return more
        found = more


def _look(missed: Missed, place: Place, before: int) -> Missed:
    """What has become of a right by now; of the operator's log, what was said since."""
    right = missed.right
    refused = sum(right.is_refused_in(each) for each in place.operator.requests())
    for line in place.operator.said()[before:].splitlines():
        if _SAYS in line and right.resource in line:
            # Without its time.
            return replace(missed, refused=refused, said=" ".join(line.split()[1:]))
    return replace(missed, refused=refused)


async def _take(right: Right, place: Place) -> None:
    """Take a right from a running operator."""
    namespace = place.namespace
    if right.resource == "nodes":
        path, rules = f"{ROLES}/{cluster_role_of(namespace)}", without(NODE_RULES, right)
    else:
        path, rules = namespace.path("Role", ACCOUNT), without(RULES, right)
    body = {"rules": rules}
    await namespace.api.request("PATCH", path, body=body, content_type=MERGE_PATCH)

    async def gone() -> bool:
        resource, _, subresource = right.resource.partition("/")
        attributes = {
            "namespace": "" if resource == "nodes" else namespace.name,
            "verb": right.verb,
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
        }
        spec = {"user": place.operator.user, "resourceAttributes": attributes}
        answer = await namespace.api.request("POST", REVIEWS, body={"spec": spec})
        return not answer["status"]["allowed"]

    await until(gone, f"{right} is gone")


async def all_missed(
    stage: Stage, ran: Mapping[str, Ran], only: str, told: Callable[[Missed], None]
) -> Sequence[Missed]:
    """Each right that is used, taken away in the first scenario that uses it.

    Args:
        stage: where.
        ran: what each scenario uses.
        only: rights in whose name this stands; empty: all.
        told: is told of each at once.
    """
    first = {right: name for name in reversed([*SCENARIOS]) for right in ran[name].used}

    async def one(right: Right) -> Missed:
        missed = await stage.without(right, first[right])
        told(missed)
        return missed

    return await asyncio.gather(*(one(right) for right in sorted(first) if only in str(right)))


def holes(missed: Iterable[Missed]) -> list[Missed]:
    return [each for each in missed if not each.holds]
