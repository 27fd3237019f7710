"""Measures one size, step by step."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Any, Final

from benchmarks.engine.view import BenchView
from benchmarks.scale.access import LEASE, USER
from benchmarks.scale.figures import Percentiles, SizeFigures
from benchmarks.scale.measurement import (
    EditSpan,
    Mark,
    MeasuredWindow,
    Started,
    TakenOver,
    answered,
    audited,
    load_in,
    start_of,
    takeover_in,
)
from benchmarks.scale.operator_process import OperatorProcess, warnings_in
from benchmarks.scale.plan import (
    GPUS_PER_NODE,
    MOST_UNFINISHED,
    Lot,
    Planned,
    ScaleRequest,
    Timing,
    planned,
)
from benchmarks.scale.played import manifests
from benchmarks.scale.played.cluster import PlayedCluster
from benchmarks.scale.played.page_server import PageServer
from benchmarks.scale.sampling import Profile
from benchmarks.scale.takeover import Ending
from benchmarks.scale.watcher import watched
from fathom.api import names
from local_cluster.control_plane.components import ControlPlane
from local_cluster.errors import LocalClusterError
from local_cluster.kube import MERGE_PATCH, KubeApi, Mirror, Object

_AT_ONCE: Final = 16
"""Requests of a user's that are on their way together."""
_PASSES_SECONDS: Final = 0.25
"""Between two looks at the passes of an operator that starts."""
_POLL_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 1200.0
"""For anything that is waited for."""


@dataclass(slots=True)
class SizeBench:
    """One size, step by step."""

    size: int
    request: ScaleRequest
    view: BenchView
    profile: Profile
    plane: ControlPlane
    user: KubeApi
    resources: Mirror
    played: PlayedCluster
    pages: PageServer
    operator: OperatorProcess
    standby: OperatorProcess
    """Not started before a takeover is measured."""

    @property
    def timing(self) -> Timing:
        return self.request.timing

    async def measure(self) -> SizeFigures:
        """All of it."""
        everything = planned(
            self.size, self.request.shares, one_namespace=self.request.one_namespace
        )
        build = await self._build(everything)
        await self._roll(everything)
        await self._settle()
        await self.operator.stop()
        # A former operator's lease is waited for, for 15 s at most: a constant of the operator's.
        await self.user.request("DELETE", LEASE)
        start = await self._cold_start(everything)
        await self._settle()
        rest = await self._window("rest", self.timing.rest_seconds)
        edits_at_rest = await self._edit("rest", everything)
        self.played.set_traffic(busy=True)
        await self._pause("traffic: warming up", self.timing.warm_seconds)
        traffic = await self._window("traffic", self.timing.traffic_seconds)
        edits_under_traffic = await self._edit("traffic", everything)
        steady = edits_when_steady = None
        if self.timing.steady_seconds:
            await self._pause("traffic: going on", self.timing.steady_seconds)
            steady = await self._window("steady", self.timing.traffic_seconds)
            edits_when_steady = await self._edit("steady", everything)
        memory = self.operator.memory
        taken = [await self._take_over(ending, everything) for ending in Ending]
        statuses = [
            float(len(json.dumps(each.get("status", {}), separators=(",", ":"))))
            for each in self.resources.items.values()
        ]
        await self.operator.stop()
        self.view.doing(f"{self.size}: reading the audit log")
        events = await asyncio.to_thread(audited, self.plane.audit_log)
        warnings = Counter[str]()
        for each in (self.operator, self.standby):
            said = await asyncio.to_thread(each.log.read_text, errors="replace")
            warnings += warnings_in(said)
        own = [each for each in events if each.user == USER]
        quick, lost_at_rest = answered(edits_at_rest, events, own)
        busy, lost_under_traffic = answered(edits_under_traffic, events, own)
        later, lost_when_steady = (
            ([], 0) if edits_when_steady is None else answered(edits_when_steady, events, own)
        )
        return SizeFigures(
            resources=self.size,
            pods=len(self.played.engines),
            namespaces=len({each.namespace for each in everything}),
            build=start_of(build, own),
            start=start_of(start, own),
            rest=load_in(rest, own),
            edits_at_rest=Percentiles.of(quick),
            traffic=load_in(traffic, own),
            edits_under_traffic=Percentiles.of(busy),
            steady=None if steady is None else load_in(steady, own),
            edits_when_steady=Percentiles.of(later),
            takeovers=tuple(takeover_in(each, own) for each in taken),
            memory=memory,
            edits_unanswered=lost_at_rest + lost_under_traffic + lost_when_steady,
            status_bytes=_some(Percentiles.of(statuses)),
            restarts=self.operator.restarts + self.standby.restarts,
            warnings=dict(warnings.most_common()),
        )

    async def _take_over(self, ending: Ending, everything: Sequence[Planned]) -> TakenOver:
        """End the leader beside one that stands by, and wait until that has looked at all."""
        self._doing(f"the leader is to be {ending}")
        self.standby.start()
        await self._until("a second operator stands by", self.standby.is_ready)
        former, self.operator, self.standby = self.operator, self.standby, self.operator
        since, first_pass = datetime.now(UTC), None
        if ending is Ending.KILLED:
            former.kill()
        else:
            former.terminate()
        deadline_s = time.monotonic() + self.timing.start_seconds
        while first_pass is None and time.monotonic() < deadline_s:
            if await self.operator.passes():
                first_pass = datetime.now(UTC)
            await asyncio.sleep(_PASSES_SECONDS)
        looked_at = datetime.now(UTC) if await self._all_looked_at(everything) else None
        await former.stop()
        self._say(f"the leader is {ending}: {'all' if looked_at else 'not all'} is looked at")
        return TakenOver(ending, since, first_pass, looked_at)

    async def _build(self, everything: Sequence[Planned]) -> Started:
        """Create some resources after the other, beside a running operator."""
        self._doing("building")
        nodes = ceil(self.size * self.request.pods_each / GPUS_PER_NODE)
        await self._all(
            self.user.request("POST", "/api/v1/nodes", body=manifests.node(number))
            for number in range(nodes)
        )
        await self._all(
            self.user.request("POST", "/api/v1/namespaces", body=manifests.namespace(name))
            for name in sorted({each.namespace for each in everything})
        )
        began = Mark.of(self.operator)
        self.operator.start()
        waiting, unfinished = list(everything), list[Planned]()
        deadline_s = time.monotonic() + _PATIENCE_SECONDS
        while waiting or unfinished:
            room = MOST_UNFINISHED - len(unfinished)
            new, waiting = waiting[:room], waiting[room:]
            await self._all(
                self.user.request(
                    "POST", _path(each), body=manifests.resource(each, self.request.pods_each)
                )
                for each in new
            )
            await asyncio.sleep(_POLL_SECONDS)
            before = [*unfinished, *new]
            unfinished = [each for each in before if not self._built(each)]
            self.view.advance((len(before) - len(unfinished)) * self.timing.per_resource_seconds)
            self._doing(f"{self.size - len(waiting) - len(unfinished)} are built")
            if time.monotonic() > deadline_s:
                raise LocalClusterError(
                    f"Not all children of {len(everything)} resources stand within "
                    f"{_PATIENCE_SECONDS:.0f} s: {len(waiting) + len(unfinished)} are left. Try "
                    "fewer with --sizes."
                )
        return await self._done("build", began, within=True)

    async def _cold_start(self, everything: Sequence[Planned]) -> Started:
        """Start an operator on what stands."""
        self._doing("cold start")
        began = Mark.of(self.operator)
        self.operator.start()
        within = await self._all_looked_at(everything)
        return await self._done("cold start", began, within=within)

    async def _all_looked_at(self, everything: Sequence[Planned]) -> bool:
        """Wait for a pass of each resource by an operator that has just begun; not for ever."""
        deadline_s = time.monotonic() + self.timing.start_seconds
        while (
            not (passes := await self.operator.passes())
            or passes < self.size
            or (not await self._looked_at(everything))
        ):
            self._doing(f"{passes} passes")
            if time.monotonic() > deadline_s:
                return False
            await asyncio.sleep(_PASSES_SECONDS)
        return True

    async def _done(self, what: str, began: Mark, *, within: bool) -> Started:
        ended = Mark.of(self.operator)
        started = Started(began, ended, within=within)
        await self._profiled(what)
        seconds = f"{started.seconds:.1f} s" if within else "not done"
        self._say(f"{what}: {seconds}, processor {ended.cpu_s - began.cpu_s:.1f} s")
        return started

    def _built(self, each: Planned) -> bool:
        """Whether its children stand, as far as its lot allows, and its status says so."""
        if each.lot is Lot.REFUSED:
            return self._observed(each)
        ready = f"{self.request.pods_each}/{self.request.pods_each}"
        return self._observed(each) and (
            self.played.revisions((each.namespace, each.name)) > 0
            if each.lot is Lot.UNSCHEDULABLE
            else self._found(each)["status"].get("ready") == ready
        )

    async def _looked_at(self, everything: Sequence[Planned]) -> bool:
        """Whether each resource has had a pass: those that are refused show it by their number."""
        decided = (await self.operator.told()).decided
        return all(
            each.lot is Lot.REFUSED or (each.namespace, each.name) in decided for each in everything
        ) and all(map(self._observed, everything))

    def _found(self, each: Planned) -> Object:
        return self.resources.items.get((each.namespace, each.name), {"metadata": {}})

    def _observed(self, each: Planned) -> bool:
        found = self._found(each)
        observed = found.get("status", {}).get("observedGeneration")
        return observed is not None and observed == found["metadata"]["generation"]

    async def _roll(self, everything: Sequence[Planned]) -> None:
        """Give the rolling resources a revision that never becomes ready."""
        rolling = [each for each in everything if each.lot is Lot.ROLLING]
        self._doing("rolling some")
        await self._all(
            self._patch(each, manifests.rolled(self._found(each)["spec"])) for each in rolling
        )

        async def have_a_pod() -> bool:
            return all(self.played.revisions((each.namespace, each.name)) > 1 for each in rolling)

        await self._until("the new revisions have a pod", have_a_pod)

    async def _edit(self, when: str, everything: Sequence[Planned]) -> EditSpan:
        """Take a replica from some resources, and give it back."""
        steady = [each for each in everything if each.lot is Lot.STEADY]
        edited = steady[:: max(1, len(steady) // self.timing.edits)][: self.timing.edits]
        began = datetime.now(UTC)
        for replicas in (self.request.pods_each - 1, self.request.pods_each):
            self._doing(f"{when}: editing")
            for each in edited:
                await self._patch(each, {"spec": {"replicas": replicas}})
                await asyncio.sleep(self.timing.edit_gap_seconds)
            await self._settle()
        self.view.advance(2 * len(edited) * self.timing.edit_gap_seconds)
        return EditSpan(began, datetime.now(UTC))

    async def _patch(self, each: Planned, body: Object) -> Object:
        path = f"{_path(each)}/{each.name}"
        return await self.user.request("PATCH", path, body=body, content_type=MERGE_PATCH)

    async def _settle(self) -> None:
        await self._pause("settling", self.timing.settle_seconds)

    async def _pause(self, what: str, seconds: float) -> None:
        self._doing(what)
        await asyncio.sleep(seconds)
        self.view.advance(seconds)

    async def _window(self, when: str, seconds: float) -> MeasuredWindow:
        """Watch the operator for a while, and do nothing."""
        self._doing(f"{when}: measuring")
        await self.operator.profile()
        found = await watched(self.operator, self.plane, self.pages, seconds)
        await self._profiled(when)
        self.view.advance(seconds)
        self._say(
            f"{when}: operator {found.operator_cores:.3f} cores, {found.rss_bytes / 2**20:.0f} MiB"
        )
        return found

    async def _profiled(self, what: str) -> None:
        if stacks := await self.operator.profile():
            self.profile.parts[f"{self.size}_resources;{what.replace(' ', '_')}"] = stacks

    async def _all(self, requests: Iterable[Coroutine[Any, Any, Object]]) -> None:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(request: Coroutine[Any, Any, Object]) -> None:
            async with slots:
                await request

        await asyncio.gather(*map(one, requests))

    async def _until(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        deadline_s = time.monotonic() + _PATIENCE_SECONDS
        while not await holds():
            if time.monotonic() > deadline_s:
                raise LocalClusterError(f"Not within {_PATIENCE_SECONDS:.0f} s: {what}.")
            await asyncio.sleep(_POLL_SECONDS)

    def _doing(self, what: str) -> None:
        self.view.doing(f"{self.size}: {what}")

    def _say(self, what: str) -> None:
        self.view.say(f"{self.size} resources, {what}")


def _path(each: Planned) -> str:
    return f"/apis/{names.API_VERSION}/namespaces/{each.namespace}/{names.PLURAL}"


def _some(spread: Percentiles | None) -> Percentiles:
    assert spread is not None  # noqa: S101 - there is no size of 0
    return spread
