"""The operator as a process, and what is seen of it from outside."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
import psutil
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.scale.access import NAMESPACE
from benchmarks.scale.memory import MemoryLook
from benchmarks.scale.received_bytes import received_by_socket, sockets
from benchmarks.scale.sampling import Stacks, from_text
from local_cluster.engine.process import free_port
from local_cluster.errors import LocalClusterError
from local_cluster.processes import daemon_environment, last_lines

_EXIT_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 60.0
_PASSES: Final = "fathom_reconcile_seconds_count"
_FAILURES: Final = "fathom_reconcile_errors_total"
_DECISIONS: Final = "fathom_decisions_total"
_PLAIN: Final = "import sys; from fathom.cli.main import app; app(sys.argv[1:], prog_name='fathom')"
_WRITTEN_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.25
_MOST_RESTARTS: Final = 50
_WARNING: Final = frozenset({"warning", "error", "critical"})
_POLL_SECONDS: Final = 0.05
_MEMORY_SECONDS: Final = 10.0
"""Between two looks at the memory that are remembered."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the operator says of itself; all zero while it starts."""

    passes: int = 0
    failures: int = 0
    decisions: Counter[str] = field(default_factory=Counter)
    """By action."""
    decided: frozenset[tuple[str, str]] = frozenset()
    """Resources for which its tuner has decided at least once: namespace and name."""


@dataclass(slots=True)
class _Life:
    """One process, from its start to its end."""

    process: subprocess.Popen[bytes]
    port: int
    """Port of its metrics."""
    health_port: int
    samples: Path
    profiles: int = 0
    cpu_s: float = 0.0
    """When it was last looked at."""
    waited_s: float = 0.0
    told: Told = field(default_factory=Told)
    """When it was last asked."""
    memory: list[MemoryLook] = field(default_factory=list)

    def note(self) -> bool:
        """Look at the process; whether it runs."""
        if self.process.poll() is not None:
            return False
        try:
            process = psutil.Process(self.process.pid)
            times = process.cpu_times()
            # Running, ready to run (both in nanoseconds), and how often it ran.
            _, waited_ns, _ = Path(f"/proc/{self.process.pid}/schedstat").read_text().split()
        except (psutil.NoSuchProcess, OSError):
            return False
        self.cpu_s = times.user + times.system
        self.waited_s = int(waited_ns) / 1e9
        seconds = time.time() - process.create_time()
        if not self.memory or seconds - self.memory[-1].seconds >= _MEMORY_SECONDS:
            mib = process.memory_info().rss / 2**20
            self.memory.append(MemoryLook(seconds=seconds, mib=mib))
        return True


class OperatorProcess:
    """`fathom run` with leader election, serving all namespaces.

    One that ends by itself, as after losing its lease, is started again, as Kubernetes would do.
    What one that ended had counted still counts, as far as it had been seen.
    """

    def __init__(self, kubeconfig: Path, folder: Path, *, profiled: bool) -> None:
        """Start nothing yet.

        Args:
            kubeconfig: the operator's.
            folder: for its log and, if it is profiled, for the samples; nobody else's.
            profiled: sample its stacks.
        """
        folder.mkdir()
        self.log = folder / "operator.log"
        self.restarts = 0
        """How often it ended by itself."""
        self._kubeconfig = kubeconfig
        self._folder = folder
        self._profiled = profiled
        self._wanted = False
        self._lives: list[_Life] = []
        """The last one is the present one."""

    def start(self) -> None:
        """Start it. Until it answers, it has told nothing."""
        self._wanted = True
        number, port, health_port = len(self._lives), free_port(), free_port()
        samples = self._folder / f"samples-{number}"
        program = ["-c", _PLAIN]
        if self._profiled:
            samples.mkdir()
            program = ["-m", "benchmarks.scale.profiler", str(samples)]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, *program, "run"),
                    f"--kubeconfig={self._kubeconfig}",
                    "--leader-elect",
                    f"--lease-namespace={NAMESPACE}",
                    f"--health-port={health_port}",
                    f"--metrics-port={port}",
                    f"--page-port={free_port()}",
                ],
                # No hub is asked for models that are not there.
                env=daemon_environment() | {"HF_HUB_OFFLINE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._lives.append(_Life(process, port, health_port, samples))

    async def supervise(self) -> None:
        """Start it again whenever it ends by itself; returns never.

        Raises:
            LocalClusterError: it ends again and again.
        """
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if not self._wanted or self._lives[-1].note():
                continue
            self.restarts += 1
            if self.restarts > _MOST_RESTARTS:
                raise LocalClusterError(
                    f"The operator ended {self.restarts} times by itself; the end of its log:\n"
                    f"{last_lines(self.log, 20)}"
                )
            self.start()

    def terminate(self) -> None:
        """SIGTERM; nothing is waited for. Idempotent."""
        self._wanted = False
        if self._lives:
            self._lives[-1].process.terminate()

    async def stop(self) -> None:
        """SIGTERM; SIGKILL if that takes too long. Idempotent."""
        self.terminate()
        if not self._lives:
            return
        process = self._lives[-1].process
        try:
            await asyncio.to_thread(process.wait, _EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """At once; idempotent."""
        self._wanted = False
        if self._lives:
            self._lives[-1].process.kill()
            self._lives[-1].process.wait()

    def cpu_s(self) -> float:
        """Processor seconds so far, user and system, of all processes."""
        if self._lives:
            self._lives[-1].note()
        return sum(life.cpu_s for life in self._lives)

    def waited_s(self) -> float:
        """Seconds for which a main thread was ready to run, and others had the processors."""
        return sum(life.waited_s for life in self._lives)

    def rss_bytes(self) -> int:
        """Resident memory of the present process; 0: there is none at this moment."""
        try:
            rss: int = psutil.Process(self._lives[-1].process.pid).memory_info().rss
        except psutil.NoSuchProcess:
            return 0
        return rss

    @property
    def memory(self) -> tuple[MemoryLook, ...]:
        """Memory of the present process, every ten seconds."""
        return tuple(self._lives[-1].memory)

    async def is_ready(self) -> bool:
        """Whether the present process leads, or stands by and could take over at once."""
        return await self._got(self._lives[-1].health_port, "readyz") is not None

    async def passes(self) -> int:
        """Reconciles of the present process so far. Cheap to ask."""
        return (await self._asked(_PASSES)).passes

    async def told(self) -> Told:
        """Counts of the present process; the operator takes a while to write all that is read."""
        life = self._lives[-1]
        life.told = await self._asked(_PASSES, _FAILURES, _DECISIONS)
        return life.told

    async def told_by_all(self) -> Told:
        """Counts of all processes."""
        await self.told()
        every = [life.told for life in self._lives]
        return Told(
            sum(each.passes for each in every),
            sum(each.failures for each in every),
            sum((each.decisions for each in every), Counter[str]()),
        )

    async def profile(self) -> Stacks:
        """The stacks sampled since the last time; none, if it is not profiled or just starts."""
        life = self._lives[-1]
        if not self._profiled or not await self.passes():
            return {}
        file = life.samples / f"{life.profiles}.folded"
        life.profiles += 1
        life.process.send_signal(signal.SIGUSR2)
        async with asyncio.timeout(_WRITTEN_SECONDS):
            while not file.exists():
                if life is not self._lives[-1]:
                    return {}
                await asyncio.sleep(_POLL_SECONDS)
        return from_text(file.read_text())

    async def received(self, api_port: int) -> Mapping[int, int] | None:
        """Bytes from the API server, by connection; None: there is no `ss` to ask."""
        own = await asyncio.to_thread(sockets, self._lives[-1].process.pid)
        try:
            asked = await asyncio.create_subprocess_exec(
                *("ss", "-tineHO", f"dport = :{api_port}"),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except FileNotFoundError:
            return None
        said, _ = await asked.communicate()
        return {inode: count for inode, count in received_by_socket(said.decode()) if inode in own}

    async def _asked(self, *samples: str) -> Told:
        life = self._lives[-1]
        page = await self._page(*(("name[]", each) for each in samples))
        return life.told if page is None else read_told(page)

    async def _page(self, *query: tuple[str, str]) -> str | None:
        """Page of the present process's metrics; None: it does not answer."""
        return await self._got(self._lives[-1].port, "metrics", *query)

    async def _got(self, port: int, path: str, *query: tuple[str, str]) -> str | None:
        """None: it does not answer, or with an error."""
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
        url = f"http://127.0.0.1:{port}/{path}"
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
                session.get(url, params=query, raise_for_status=True) as answer,
            ):
                return await answer.text()
        except (aiohttp.ClientError, TimeoutError):
            return None


def read_told(page: str) -> Told:
    """From the operator's metrics."""
    values, decisions = Counter[str](), Counter[str]()
    decided = set()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == _DECISIONS:
                decisions[sample.labels["action"]] += round(sample.value)
                decided.add((sample.labels["namespace"], sample.labels["name"]))
            else:
                values[sample.name] += round(sample.value)
    return Told(values[_PASSES], values[_FAILURES], decisions, frozenset(decided))


def warnings_in(log: str) -> Counter[str]:
    """Count the warnings in the operator's log, which is JSON, by what they warn of."""
    found = Counter[str]()
    for line in log.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            # The interpreter's own, such as the traceback of a crash.
            continue
        if isinstance(said, dict) and said.get("level") in _WARNING:
            # What follows a colon tells of one case.
            found[str(said.get("event")).splitlines()[0].partition(":")[0]] += 1
    return found
