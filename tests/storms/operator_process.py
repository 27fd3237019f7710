"""The operator of a history: its own parts, put together as `fathom run` does, in one process."""

import asyncio
import copy
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.leaderelection import leaderelection

from fathom.adapters.kube import Kube
from fathom.adapters.pod_metrics import FetchMetrics
from fathom.adapters.ports import KubePort
from fathom.cluster.kinds import SPECULATIVE_DEPLOYMENT, ObjectKey
from fathom.engine.plugin import plugin_bundle
from fathom.fetch.state import fetch_program
from fathom.manifests.intake_job import intake_program
from fathom.quality.comparison import Completion, CompletionRequest
from fathom.runtime.caches import ModelCache, NodeCache, ServedCache
from fathom.runtime.child_cache import ChildCache
from fathom.runtime.gather import read_nodes
from fathom.runtime.handlers import sweep
from fathom.runtime.informer import informed
from fathom.runtime.leadership import LeadershipLostError, lead
from fathom.runtime.loop_registry import Loops
from fathom.runtime.operator_process import Pulse
from fathom.runtime.ports import MetricsSources, World
from fathom.runtime.telemetry import Telemetry
from fathom.runtime.tenure import FencedKube, Leader, Tenure
from fathom.tuning.tuner import decide
from storms.hub import Hub
from storms.server import Server, Transport
from storms.simulated_time import Process, SimulatedLoop, current
from storms.watch import Watches

NAMESPACE: Final = "fathom-system"
RESTART_S: Final = 5.0
"""From a process's end to the next one's start, as its kubelet does it."""
_THIS: Final = plugin_bundle()
_OTHER: Final = replace(_THIS, content=f"1{_THIS.content[1:]}")
BUILDS: Final = (_THIS, _OTHER, replace(_OTHER, version="0.2.0"))
"""Builds of the operator. The second renders pods otherwise than the first, since it mounts another
plugin; the third renders them as the second does, and is of a newer version than both."""
_CLIENT: Final = ApiClient(Configuration(host="http://simulated"))
"""Copied for each process: a new one reads all certificates of this machine."""


class _Completions:
    async def complete(self, pod: object, model: str, request: CompletionRequest) -> Completion:
        del pod, model, request
        return Completion(token_ids=(1, 2, 3), text="abc", prompt_token_ids=(9,))


class _Wall:
    """`Clock` of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now_s(self) -> float:
        return self._process.wall_s()


class _TimeModule:
    """What the client library's election reads the time from."""

    @staticmethod
    def time() -> float:
        process = current()
        assert process is not None
        return process.wall_s()


leaderelection.time = _TimeModule  # type: ignore[assignment]


class Operator:
    """One replica of the operator, started anew whenever it ends."""

    def __init__(
        self,
        name: str,
        loop: SimulatedLoop,
        server: Server,
        watches: Watches,
        hub: Hub,
        *,
        build: int = 0,
        namespaces: tuple[str, ...] = (),
        lease_in: str = NAMESPACE,
    ) -> None:
        self.name = name
        self._namespaces = namespaces
        self._lease_in = lease_in
        self._loop = loop
        self._server = server
        self._watches = watches
        self._hub = hub
        self.build = build
        """Build of its next process: one of `BUILDS`."""
        self.starts = 0
        """Processes so far."""
        self.crash = ""
        """Why a process of it ended by itself, but for a lost lease; empty: none did."""
        self.process = Process(loop, name)
        self.loops: Loops | None = None
        self._keeping = loop.create_task(self._keep(), name=f"kubelet of {name}")
        self._ended = asyncio.Event()

    async def _keep(self) -> None:
        wall_offset_s = 0.0
        while True:
            self.process = Process(self._loop, self.name)
            self.process.wall_offset_s = wall_offset_s
            self._ended = asyncio.Event()
            self.starts += 1
            task = self.process.start(self._main(self.process))
            # Its own event: a process that was killed may unwind while the next one runs.
            task.add_done_callback(lambda _, ended=self._ended: ended.set())
            await self._ended.wait()
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                self.crash = repr(error)
            self.loops = None
            wall_offset_s = self.process.wall_offset_s
            self.process.alive = False
            self.process.resume()
            await asyncio.sleep(RESTART_S)

    def kill(self) -> None:
        """End its process where it stands; its kubelet starts another one."""
        self.process.kill()
        self._ended.set()

    def stop(self) -> None:
        """For good."""
        self._keeping.cancel()
        self.process.kill()

    @property
    def leads(self) -> bool:
        return self.loops is not None and self.process.alive

    async def _main(self, process: Process) -> None:
        api = copy.copy(_CLIENT)
        api.rest_client = Transport(self._server, process)
        clock = _Wall(process)
        with suppress(LeadershipLostError):
            async with _session() as session, _session() as prometheus:
                await self._operate(api, session, prometheus, clock)

    async def _operate(
        self,
        api: ApiClient,
        session: aiohttp.ClientSession,
        prometheus: aiohttp.ClientSession,
        clock: _Wall,
    ) -> None:
        tenure = Tenure((self.process.wall_s, self._loop.time))
        kube = FencedKube(Kube(api), lambda: tenure.holds)
        sources = MetricsSources(pods=session, prometheus=prometheus, clock=clock, kube=kube)
        models = ModelCache(self._hub, clock)
        children, served = ChildCache(clock, self._namespaces), ServedCache(kube, clock)
        world = World(
            kube=kube,
            children=children,
            nodes=NodeCache(lambda: read_nodes(kube), clock).get,
            metrics_for=sources.of,
            completions=_Completions(),
            fetches=FetchMetrics(session, clock),
            clock=clock,
            decide=decide,
            models=models.facts,
            served=served.get,
            bundle=BUILDS[self.build],
            program=fetch_program(),
            intake=intake_program(),
            identity=self.name,
            telemetry=Telemetry(),
        )
        loops = Loops(world, steady_s=self._loop.time)

        try:
            async with informed(children, kube, served.get, loops.wake) as listed:

                async def work() -> None:
                    await asyncio.wait([listed])
                    self.loops = loops
                    await self._watch(kube, loops)

                await lead(
                    api,
                    # In a simulation nothing runs beside: no pass takes any time.
                    asyncio.ensure_future,
                    name="fathom",
                    namespace=self._lease_in,
                    who=Leader(self.name),
                    work=work,
                    tenure=tenure,
                    pulse=Pulse(self._loop.time),
                )
        finally:
            await loops.stop()
            await models.stop()

    async def _watch(self, kube: KubePort, loops: Loops) -> None:
        """As `runtime.handlers` does it through Kopf."""

        def resource(
            namespace: str,
            name: str,
            generation: int,
            annotations: Mapping[str, str],
            version: str,
        ) -> None:
            loops.changed(ObjectKey(namespace, name), generation, annotations, version)

        async with asyncio.TaskGroup() as group:
            for namespace in self._namespaces or ("",):
                group.create_task(self._watches.follow(kube, namespace, resource))
            group.create_task(sweep(kube, self._namespaces, loops, kinds=(SPECULATIVE_DEPLOYMENT,)))


def _session() -> aiohttp.ClientSession:
    """As the operator's own, over the simulated network."""
    return aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(path="simulated"), auto_decompress=False
    )
