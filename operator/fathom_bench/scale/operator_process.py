"""The operator as a process, and what is seen of it from outside."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import psutil
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from fathom_bench.scale.access import NAMESPACE
from fathom_bench.scale.received import received_by_socket, sockets
from fathom_bench.scale.sampling import Stacks, from_text
from fathom_local.errors import LocalClusterError
from fathom_local.processes import daemon_environment, last_lines

_EXIT_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 60.0
_PASSES: Final = "fathom_reconcile_seconds_count"
_FAILURES: Final = "fathom_reconcile_errors_total"
_DECISIONS: Final = "fathom_decisions_total"
_PLAIN: Final = "import sys; from fathom.cli import app; app(sys.argv[1:], prog_name='fathom')"
_WRITTEN_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Told:
    """What the operator says of itself."""

    passes: float
    failures: float
    decisions: Counter[str]
    """By action."""
    decided: frozenset[tuple[str, str]]
    """Resources for which its tuner has decided at least once: namespace and name."""


class OperatorProcess:
    """`fathom run` with leader election, serving all namespaces."""

    def __init__(self, kubeconfig: Path, folder: Path, *, profiled: bool) -> None:
        """Start nothing yet.

        Args:
            kubeconfig: the operator's.
            folder: for its log and, if it is profiled, for the samples.
            profiled: sample its stacks.
        """
        self._kubeconfig = kubeconfig
        self._folder = folder
        self._profiled = profiled
        self._starts = 0
        self._profiles = 0
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self._folder / "operator.log"

    def start(self) -> None:
        """Start it; what it is asked while it starts fails."""
        self._starts += 1
        self._profiles = 0
        self._port = _free_port()
        program = ["-c", _PLAIN]
        if self._profiled:
            self._samples.mkdir()
            program = ["-m", "fathom_bench.scale.profiled", str(self._samples)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, *program, "run"),
                    f"--kubeconfig={self._kubeconfig}",
                    "--leader-elect",
                    f"--lease-namespace={NAMESPACE}",
                    "--health-port=0",
                    f"--metrics-port={self._port}",
                ],
                # No hub is asked for models that are not there.
                env=daemon_environment() | {"HF_HUB_OFFLINE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def _samples(self) -> Path:
        return self._folder / f"samples-{self._starts}"

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        """The process.

        Raises:
            LocalClusterError: it has ended.
        """
        if self._process is None or self._process.poll() is not None:
            raise LocalClusterError(
                f"The operator has ended; the end of its log:\n{last_lines(self.log, 20)}"
            )
        return self._process

    async def stop(self) -> None:
        """SIGTERM, so that it gives its lease back; SIGKILL if it takes too long. Idempotent."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, _EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """At once; idempotent."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def cpu_s(self) -> float:
        """Processor seconds so far, user and system."""
        times = psutil.Process(self._running.pid).cpu_times()
        return times.user + times.system

    def rss_bytes(self) -> int:
        rss: int = psutil.Process(self._running.pid).memory_info().rss
        return rss

    async def passes(self) -> float:
        """So far; 0 while it starts. Cheap to ask."""
        try:
            page = await self._metrics(_PASSES)
        except (aiohttp.ClientError, TimeoutError):
            _ = self._running
            return 0.0
        return sum(sample.value for family in page for sample in family.samples)

    async def told(self) -> Told:
        """All that is read of its metrics; it takes the operator a while to write them.

        Raises:
            LocalClusterError: it does not answer.
        """
        values, decisions = Counter[str](), Counter[str]()
        decided = set()
        try:
            page = await self._metrics(_PASSES, _FAILURES, _DECISIONS)
        except (aiohttp.ClientError, TimeoutError) as error:
            _ = self._running
            raise LocalClusterError(f"The operator does not show its metrics: {error!r}") from error
        for family in page:
            for sample in family.samples:
                if sample.name == _DECISIONS:
                    decisions[sample.labels["action"]] += round(sample.value)
                    decided.add((sample.labels["namespace"], sample.labels["name"]))
                else:
                    values[sample.name] += round(sample.value)
        return Told(values[_PASSES], values[_FAILURES], decisions, frozenset(decided))

    async def _metrics(self, *samples: str) -> list[Metric]:
        query = [("name[]", each) for each in samples]
        async with (
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS), trust_env=False
            ) as session,
            session.get(
                f"http://127.0.0.1:{self._port}/metrics", params=query, raise_for_status=True
            ) as answer,
        ):
            return list(text_string_to_metric_families(await answer.text()))

    async def profile(self) -> Stacks:
        """The stacks sampled since the last time; none, if it is not profiled."""
        if not self._profiled:
            return {}
        file = self._samples / f"{self._profiles}.folded"
        self._profiles += 1
        self._running.send_signal(signal.SIGUSR2)
        async with asyncio.timeout(_WRITTEN_SECONDS):
            while not file.exists():
                await asyncio.sleep(_POLL_SECONDS)
        return from_text(file.read_text())

    async def received(self, api_port: int) -> Mapping[int, int] | None:
        """Bytes from the API server, by connection; None: there is no `ss` to ask."""
        own = await asyncio.to_thread(sockets, self._running.pid)
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


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port: int = opened.getsockname()[1]
        return port
