"""`fathom local bench-scale`: one size after the other, each on a control plane of its own."""

import asyncio
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
import psutil
from kubernetes.aio.client.exceptions import ApiException
from rich.console import Console

from fathom.api import names
from fathom_bench.engine.main import ended_by_sigterm
from fathom_bench.engine.view import BenchView
from fathom_bench.scale import manifests
from fathom_bench.scale.access import LEASE, USER, install, write_kubeconfig
from fathom_bench.scale.figures import (
    Load,
    Reading,
    ScaleReport,
    SizeFigures,
    Spread,
    Start,
    between,
    first_write_seconds,
    load_of,
)
from fathom_bench.scale.operator_process import OperatorProcess, warnings_in
from fathom_bench.scale.page_server import PageServer
from fathom_bench.scale.plan import (
    GPUS_PER_NODE,
    MOST_UNFINISHED,
    Lot,
    Planned,
    Shares,
    Timing,
    planned,
)
from fathom_bench.scale.played_cluster import PlayedCluster
from fathom_bench.scale.received import Received
from fathom_bench.scale.sampling import Stacks, to_text
from fathom_local.control_plane.api_server import api_server
from fathom_local.control_plane.audit import AuditEvent, read_events
from fathom_local.control_plane.components import ControlPlane
from fathom_local.control_plane.credentials import ADMIN, KUBELET
from fathom_local.errors import LocalClusterError
from fathom_local.kube import MERGE_PATCH, KubeApi, Mirror, Object, connect

_AT_ONCE: Final = 16
"""Requests of a user's that are on their way together."""
_LOOK_SECONDS: Final = 2.0
"""Between two looks at memory and connections."""
_PASSES_SECONDS: Final = 0.25
"""Between two looks at the passes of an operator that starts."""
_POLL_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 1200.0
"""For anything that is waited for."""
_RESOURCES: Final = f"/apis/{names.API_VERSION}/{names.PLURAL}"

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be measured."""

    sizes: tuple[int, ...]
    pods_each: int
    shares: Shares
    one_namespace: bool
    timing: Timing
    quick: bool
    profiled: bool


@dataclass(slots=True)
class Profile:
    """Samples of the operator, by what it was doing."""

    parts: dict[str, Stacks] = field(default_factory=dict)

    def to_text(self) -> str:
        """As one file of stacks; what it was doing is their outermost frame."""
        return "".join(to_text(stacks, what) for what, stacks in self.parts.items())


def run_bench(console: Console, request: Request) -> tuple[ScaleReport, Profile]:
    """Measure all sizes. Leaves no process behind, however it ends.

    Raises:
        LocalClusterError: a part does not start, or does not do as it should.
    """
    seconds = sum(request.timing.size_seconds(size) for size in request.sizes)
    view, profile = BenchView(console, seconds), Profile()
    with ExitStack() as stack:
        stack.enter_context(ended_by_sigterm())
        stack.enter_context(view)
        versions, measured, failure = list[str](), list[SizeFigures](), ""
        for size in request.sizes:
            try:
                version, figures = asyncio.run(_one_size(size, request, view, profile))
            except LocalClusterError as error:
                if not measured:
                    raise
                # What was measured of smaller sizes took minutes, and counts all the same.
                failure = f"{size} resources: {error}"
                break
            versions.append(version)
            measured.append(figures)
    report = ScaleReport(
        kubernetes=versions[0],
        python=platform.python_version(),
        processors=len(os.sched_getaffinity(0)),
        pods_each=request.pods_each,
        one_namespace=request.one_namespace,
        quick=request.quick,
        minutes=view.minutes,
        sizes=tuple(measured),
        failure=failure,
    )
    return report, profile


async def _one_size(
    size: int, request: Request, view: BenchView, profile: Profile
) -> tuple[str, SizeFigures]:
    """The version of Kubernetes, and what was measured."""
    view.say(f"[bold]{size} resources[/bold]: starting etcd and kube-apiserver")
    view.doing(f"{size}: starting a control plane")
    with tempfile.TemporaryDirectory(prefix="fathom-bench-scale-") as directory:
        async with (
            api_server() as plane,
            connect(plane.kubeconfig) as user,
            connect(plane.credentials.kubeconfig(KUBELET)) as cluster,
        ):
            folder = Path(directory)
            kubeconfig = folder / "operator.kubeconfig"
            write_kubeconfig(kubeconfig, plane.kubeconfig, await install(KubeApi(user)))
            played = PlayedCluster(KubeApi(cluster))
            mirror = Mirror(KubeApi(cluster), _RESOURCES)
            pages = PageServer(played.engines)
            operator = OperatorProcess(kubeconfig, folder, profiled=request.profiled)
            # A rolling resource has one more while its new revision starts.
            await pages.listen(size * (request.pods_each + 1))
            bench = _ScaleBench(
                size=size,
                request=request,
                view=view,
                profile=profile,
                plane=plane,
                user=KubeApi(user),
                resources=mirror,
                played=played,
                pages=pages,
                operator=operator,
            )
            try:
                players = (played.run(), mirror.run(), operator.supervise())
                figures = await _while_playing(players, bench.measure())
            except (ApiException, aiohttp.ClientError, TimeoutError, ExceptionGroup) as error:
                raise LocalClusterError(
                    f"The API server does not do what it is asked, or not in time: {error!r}. "
                    "Where the machine is too small or has much else to do, take fewer resources "
                    "with --sizes."
                ) from error
            finally:
                operator.kill()
                await pages.close()
            return plane.version, figures


async def _while_playing(
    playing: Iterable[Coroutine[Any, Any, None]], work: Coroutine[Any, Any, _Result]
) -> _Result:
    """Do some work beside what never ends; what ends all the same, ends it all."""
    players = [asyncio.create_task(each) for each in playing]
    working = asyncio.create_task(work)
    try:
        done, _ = await asyncio.wait([*players, working], return_when=asyncio.FIRST_COMPLETED)
        for each in done - {working}:
            await each
        return await working
    finally:
        for each in (*players, working):
            each.cancel()
        await asyncio.gather(*players, working, return_exceptions=True)


@dataclass(slots=True)
class _ScaleBench:
    """One size, step by step."""

    size: int
    request: Request
    view: BenchView
    profile: Profile
    plane: ControlPlane
    user: KubeApi
    resources: Mirror
    played: PlayedCluster
    pages: PageServer
    operator: OperatorProcess
    _rss_bytes: int = 0

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
        statuses = [
            float(len(json.dumps(each.get("status", {}), separators=(",", ":"))))
            for each in self.resources.items.values()
        ]
        await self.operator.stop()
        self.view.doing(f"{self.size}: reading the audit log")
        events = await asyncio.to_thread(_audited, self.plane.audit_log)
        said = await asyncio.to_thread(self.operator.log.read_text, errors="replace")
        own = [each for each in events if each.user == USER]
        quick, lost_at_rest = _answered(edits_at_rest, events, own)
        busy, lost_under_traffic = _answered(edits_under_traffic, events, own)
        return SizeFigures(
            resources=self.size,
            pods=len(self.played.engines),
            namespaces=len({each.namespace for each in everything}),
            build=_start(build, own),
            start=_start(start, own),
            rest=_load(rest, own),
            edits_at_rest=Spread.of(quick),
            traffic=_load(traffic, own),
            edits_under_traffic=Spread.of(busy),
            edits_unanswered=lost_at_rest + lost_under_traffic,
            status_bytes=_some(Spread.of(statuses)),
            restarts=self.operator.restarts,
            warnings=dict(warnings_in(said).most_common()),
        )

    async def _build(self, everything: Sequence[Planned]) -> "_Started":
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
        began = _Mark.of(self.operator)
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

    async def _cold_start(self, everything: Sequence[Planned]) -> "_Started":
        """Start an operator on what stands."""
        self._doing("cold start")
        began = _Mark.of(self.operator)
        self.operator.start()
        deadline_s = time.monotonic() + self.timing.start_seconds
        while (
            not (passes := await self.operator.passes())
            or passes < self.size
            or (not await self._looked_at(everything))
        ):
            self._doing(f"cold start, {passes} passes")
            if time.monotonic() > deadline_s:
                return await self._done("cold start", began, within=False)
            await asyncio.sleep(_PASSES_SECONDS)
        return await self._done("cold start", began, within=True)

    async def _done(self, what: str, began: "_Mark", *, within: bool) -> "_Started":
        ended = _Mark.of(self.operator)
        started = _Started(began, ended, within=within)
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
        await self._until(
            "the new revisions have a pod",
            lambda: all(self.played.revisions((each.namespace, each.name)) > 1 for each in rolling),
        )

    async def _edit(self, when: str, everything: Sequence[Planned]) -> "_Span":
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
        return _Span(began, datetime.now(UTC))

    async def _patch(self, each: Planned, body: Object) -> Object:
        path = f"{_path(each)}/{each.name}"
        return await self.user.request("PATCH", path, body=body, content_type=MERGE_PATCH)

    async def _settle(self) -> None:
        await self._pause("settling", self.timing.settle_seconds)

    async def _pause(self, what: str, seconds: float) -> None:
        self._doing(what)
        await asyncio.sleep(seconds)
        self.view.advance(seconds)

    async def _window(self, when: str, seconds: float) -> "_Window":
        """Watch the operator for a while, and do nothing."""
        self._doing(f"{when}: measuring")
        await self.operator.profile()
        before = await self._read(first=True)
        received, rss_bytes, api_server_bytes, known = Received(), 0, 0, True
        until_s = time.monotonic() + seconds
        while True:
            by_connection = await self.operator.received(self.plane.port)
            if by_connection is None:
                known = False
            else:
                received.look(by_connection)
            rss_bytes = max(rss_bytes, self.operator.rss_bytes())
            api_server_bytes = max(api_server_bytes, self._part("kube-apiserver").memory_info().rss)
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                break
            await asyncio.sleep(min(_LOOK_SECONDS, left_s))
        after = await self._read(first=False)
        await self._profiled(when)
        self.view.advance(seconds)
        cores = (after.operator_s - before.operator_s) / (after.at_s - before.at_s)
        self._say(f"{when}: operator {cores:.3f} cores, {rss_bytes / 2**20:.0f} MiB")
        return _Window(
            before, after, rss_bytes, api_server_bytes, received.total if known else None
        )

    async def _read(self, *, first: bool) -> Reading:
        """Everything that grows. What asking takes of the operator falls outside of the window."""
        if first:
            told = await self.operator.told_by_all()
        machine = psutil.cpu_times()
        parts = {name: self._part(name).cpu_times() for name in ("kube-apiserver", "etcd")}
        own = psutil.Process().cpu_times()
        at_s, operator_s, shown = time.time(), self.operator.cpu_s(), self.pages.shown
        if not first:
            told = await self.operator.told_by_all()
        return Reading(
            at_s=at_s,
            operator_s=operator_s,
            waited_s=self.operator.waited_s(),
            api_server_s=sum(parts["kube-apiserver"][:2]),
            etcd_s=sum(parts["etcd"][:2]),
            bench_s=own.user + own.system,
            machine_s=machine.user + machine.nice + machine.system + machine.irq + machine.softirq,
            passes=told.passes,
            failures=told.failures,
            decisions=told.decisions,
            pages=shown,
            restarts=self.operator.restarts,
        )

    def _part(self, name: str) -> psutil.Process:
        """A process of the control plane."""
        (record,) = [each for each in self.plane.processes if each.name == name]
        if (process := record.find()) is None:
            raise LocalClusterError(f"{name} has ended; see why in its log.")
        return process

    async def _profiled(self, what: str) -> None:
        if stacks := await self.operator.profile():
            self.profile.parts[f"{self.size}_resources;{what.replace(' ', '_')}"] = stacks

    async def _all(self, requests: Iterable[Coroutine[Any, Any, Object]]) -> None:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(request: Coroutine[Any, Any, Object]) -> None:
            async with slots:
                await request

        await asyncio.gather(*map(one, requests))

    async def _until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + _PATIENCE_SECONDS
        while not holds():
            if time.monotonic() > deadline_s:
                raise LocalClusterError(f"Not within {_PATIENCE_SECONDS:.0f} s: {what}.")
            await asyncio.sleep(_POLL_SECONDS)

    def _doing(self, what: str) -> None:
        self.view.doing(f"{self.size}: {what}")

    def _say(self, what: str) -> None:
        self.view.say(f"{self.size} resources, {what}")


@dataclass(frozen=True, slots=True)
class _Span:
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class _Mark:
    """A moment in the operator's life."""

    at: datetime
    cpu_s: float
    restarts: int

    @classmethod
    def of(cls, operator: OperatorProcess) -> "_Mark":
        return cls(datetime.now(UTC), operator.cpu_s(), operator.restarts)


@dataclass(frozen=True, slots=True)
class _Started:
    began: _Mark
    ended: _Mark
    within: bool
    """Whether it was done in time."""

    @property
    def seconds(self) -> float:
        return (self.ended.at - self.began.at).total_seconds()


@dataclass(frozen=True, slots=True)
class _Window:
    before: Reading
    after: Reading
    rss_bytes: int
    api_server_bytes: int
    received_bytes: int | None


def _start(started: _Started, own: Sequence[AuditEvent]) -> Start:
    began, ended = started.began, started.ended
    events = between(own, began.at, ended.at)
    return Start(
        seconds=started.seconds if started.within else None,
        cpu_seconds=ended.cpu_s - began.cpu_s,
        restarts=ended.restarts - began.restarts,
        reads=sum(not each.is_write and each.verb != "watch" for each in events),
        writes=sum(each.is_write for each in events),
    )


def _load(window: _Window, own: Sequence[AuditEvent]) -> Load:
    return load_of(
        window.before,
        window.after,
        own,
        rss_bytes=window.rss_bytes,
        api_server_bytes=window.api_server_bytes,
        received_bytes=window.received_bytes,
    )


def _answered(
    span: _Span, events: Sequence[AuditEvent], own: Sequence[AuditEvent]
) -> tuple[list[float], int]:
    edits = [
        each
        for each in between(events, span.since, span.until)
        if each.user == ADMIN and each.verb == "patch" and each.resource == names.PLURAL
    ]
    writes = [each for each in between(own, span.since, span.until) if each.is_write]
    return first_write_seconds(edits, writes)


def _audited(log: Path) -> list[AuditEvent]:
    """All requests, also those of files that the API server has put aside for their size."""
    files = [*sorted(log.parent.glob(f"{log.stem}-*{log.suffix}")), log]
    wanted = {USER, ADMIN}
    return [each for file in files for each in read_events(file) if each.user in wanted]


def _path(each: Planned) -> str:
    return f"/apis/{names.API_VERSION}/namespaces/{each.namespace}/{names.PLURAL}"


def _some(spread: Spread | None) -> Spread:
    assert spread is not None  # noqa: S101 - there is no size of 0
    return spread
