"""One container's life: start, probe, end, pause, start again."""

import asyncio
import contextlib
import datetime as dt
import signal
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import structlog

from local_cluster.kubelet.containers.container_process import ContainerProcess, start_container
from local_cluster.kubelet.containers.probes import Prober, watch_probe
from local_cluster.kubelet.containers.runner import ContainerPlan
from local_cluster.kubelet.models import Container, ContainerProbe
from local_cluster.kubelet.problem import (
    CRASH_LOOP_BACK_OFF,
    ERR_IMAGE_PULL,
    IMAGE_PULL_BACK_OFF,
    PodProblem,
)
from local_cluster.kubelet.status import (
    ContainerRecord,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
)

PROBLEM_RETRY_SECONDS = 1.0
STABLE_SECONDS = 60.0
HOOK_LIMIT_SECONDS = 3600.0
LOG_MESSAGE_BYTES = 2048
LONGEST_MESSAGE_BYTES = 4096

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between restarts."""

    first_seconds: float
    limit_seconds: float

    def pause(self, crashes: int) -> float:
        """Seconds to wait after this many crashes in a row."""
        return min(self.first_seconds * 2.0 ** (crashes - 1), self.limit_seconds)


@dataclass(slots=True)
class ContainerWorker:
    """Runs one container as its pod's restart policy says."""

    record: ContainerRecord
    pod_ip: str
    restart_policy: str
    grace_seconds: float
    """For restarts after a failed liveness probe; `stop` is told its own."""
    make_plan: Callable[[Container], Awaitable[ContainerPlan]]
    changed: Callable[[], None]
    """Called after each change of the record."""
    report: Callable[[str, str], None]
    """Called with reason and message of what deserves an event."""
    session: aiohttp.ClientSession
    backoff: Backoff
    log_path: Path
    message_path: Path
    """The file at the container's `terminationMessagePath`."""
    _process: ContainerProcess | None = None
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _kill_task: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Runs until the policy says it is done, or `stop`; returns the last exit code."""
        crashes = 0
        while True:
            code, lasted_seconds = await self._run_once()
            if self._stopping.is_set() or not self._restarts(code):
                return code
            crashes = 1 if lasted_seconds > STABLE_SECONDS else crashes + 1
            if isinstance(self.record.state, ContainerStateTerminated):
                self.record.last_state = self.record.state
            self.record.state = ContainerStateWaiting(
                CRASH_LOOP_BACK_OFF,
                f"restarting container {self.record.container.name} "
                f"in {self.backoff.pause(crashes):g} s",
            )
            self.changed()
            if await self._stopped_within(self.backoff.pause(crashes)):
                return code
            self.record.restart_count += 1

    async def stop(self, grace_seconds: float) -> None:
        """Ends the container as Kubernetes does: hook, SIGTERM, SIGKILL; all within the grace."""
        self._stopping.set()
        await self._end(grace_seconds)

    def kill(self) -> None:
        """Ends the container at once."""
        self._stopping.set()
        if self._process is not None:
            self._process.signal(signal.SIGKILL)

    def _restarts(self, code: int) -> bool:
        return self.restart_policy == "Always" or (self.restart_policy == "OnFailure" and code != 0)

    async def _run_once(self) -> tuple[int, float]:
        process = await self._start()
        if process is None:
            return 0, 0.0
        began = dt.datetime.now(dt.UTC)
        container = self.record.container
        self._process = process
        self.record.container_id = f"fathom://{uuid.uuid4().hex}"
        self.record.state = ContainerStateRunning(began)
        self.record.started = container.startup_probe is None
        self.record.ready = self.record.started and container.readiness_probe is None
        self.changed()
        supervision = asyncio.create_task(self._supervise(process))
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            # The kubelet itself is ending; nobody would be left to end this.
            process.signal(signal.SIGKILL)
            await process.wait()
            raise
        finally:
            supervision.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await supervision
            self._process = None
        if self._kill_task is not None:
            await self._kill_task
            self._kill_task = None
        ended = dt.datetime.now(dt.UTC)
        self.record.state = ContainerStateTerminated(code, began, ended, self._last_words(code))
        self.record.ready = self.record.started = False
        self.changed()
        return code, (ended - began).total_seconds()

    async def _start(self) -> ContainerProcess | None:
        """Starts the program; tries until it can, or the pod is stopped (None)."""
        while not self._stopping.is_set():
            try:
                plan = await self.make_plan(self.record.container)
                return await start_container(plan, self.log_path)
            except PodProblem as problem:
                reason = problem.reason
                already = (
                    isinstance(self.record.state, ContainerStateWaiting)
                    and self.record.state.reason
                )
                if reason == ERR_IMAGE_PULL and already in (ERR_IMAGE_PULL, IMAGE_PULL_BACK_OFF):
                    reason = IMAGE_PULL_BACK_OFF
                if already != reason:
                    self.report(reason, problem.message)
                self.record.state = ContainerStateWaiting(reason, problem.message)
                self.changed()
            if await self._stopped_within(PROBLEM_RETRY_SECONDS):
                break
        return None

    async def _stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    async def _supervise(self, process: ContainerProcess) -> None:
        container = self.record.container
        prober = Prober(self.session, container, process, self.pod_ip)
        if container.lifecycle.post_start is not None:
            problem = await prober.check(container.lifecycle.post_start, HOOK_LIMIT_SECONDS)
            if problem is not None:
                self._restart("FailedPostStartHook", problem)
                return
        if container.startup_probe is not None:
            await watch_probe(prober, container.startup_probe, self._startup_decided)
        async with asyncio.TaskGroup() as probes:
            if container.readiness_probe is not None:
                probes.create_task(
                    watch_probe(prober, container.readiness_probe, self._readiness_decided)
                )
            if container.liveness_probe is not None:
                probes.create_task(
                    watch_probe(prober, container.liveness_probe, self._liveness_decided)
                )

    def _startup_decided(self, well: bool, problem: str) -> bool:  # noqa: FBT001 - a callback
        if not well:
            self._restart("Unhealthy", f"Startup probe failed: {problem}")
            # It is being ended; until then nothing else is to be probed.
            return True
        self.record.started = True
        self.record.ready = self.record.container.readiness_probe is None
        self.changed()
        return False

    def _readiness_decided(self, well: bool, problem: str) -> bool:  # noqa: FBT001 - a callback
        if self.record.ready != well:
            self.record.ready = well
            self.changed()
            if not well:
                self.report("Unhealthy", f"Readiness probe failed: {problem}")
        return True

    def _liveness_decided(self, well: bool, problem: str) -> bool:  # noqa: FBT001 - a callback
        if not well:
            self._restart("Unhealthy", f"Liveness probe failed: {problem}")
        return well

    def _restart(self, reason: str, message: str) -> None:
        if self._kill_task is None:
            self.report(reason, f"{message}; the container is restarted")
            self._kill_task = asyncio.create_task(self._end(self._probe_grace()))

    def _probe_grace(self) -> float:
        probes: list[ContainerProbe | None] = [
            self.record.container.liveness_probe,
            self.record.container.startup_probe,
        ]
        own = (probe.termination_grace_period_seconds for probe in probes if probe is not None)
        return next((seconds for seconds in own if seconds is not None), self.grace_seconds)

    async def _end(self, grace_seconds: float) -> None:
        process = self._process
        if process is None:
            return
        deadline = asyncio.get_running_loop().time() + grace_seconds
        hook = self.record.container.lifecycle.pre_stop
        if hook is not None and grace_seconds > 0:
            prober = Prober(self.session, self.record.container, process, self.pod_ip)
            problem = await self._until_exit(prober.check(hook, grace_seconds), process)
            if problem is not None:
                self.report("FailedPreStopHook", problem)
        if grace_seconds > 0:
            process.signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await process.exited.wait()
        process.signal(signal.SIGKILL)

    @staticmethod
    async def _until_exit(hook: Awaitable[str | None], process: ContainerProcess) -> str | None:
        """A hook's outcome; there is none to wait for when the program ended by itself."""
        running = asyncio.ensure_future(hook)
        exited = asyncio.create_task(process.exited.wait())
        await asyncio.wait({running, exited}, return_when=asyncio.FIRST_COMPLETED)
        exited.cancel()
        if running.done():
            return running.result()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        return None

    def _last_words(self, code: int) -> str:
        left = self.message_path.read_bytes() if self.message_path.exists() else b""
        if left:
            return left[:LONGEST_MESSAGE_BYTES].decode(errors="replace")
        policy = self.record.container.termination_message_policy
        if code == 0 or policy != "FallbackToLogsOnError" or not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as file:
            file.seek(max(0, self.log_path.stat().st_size - LOG_MESSAGE_BYTES))
            return file.read().decode(errors="replace")
