"""One engine, real or simulated, as a process on loopback: for tests, sweeps and benchmarks."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from fathom_vllm.bundle import SCHEDULER_CLASS, bundle_files
from fathom_vllm.environment import COUNTERS_FILE, DEPTH_FILE, DEPTH_KEY, POD_NAME
from local_cluster.engine.environment import ENGINE_ARGS, engine_variables
from local_cluster.engine.model_pair import ModelPair
from local_cluster.paths import SOURCES

READY_TIMEOUT_S = 600.0
"""Ten times what it takes; an engine that ends by itself is told at once."""
_STOP_TIMEOUT_S = 60.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""It is on this machine, whatever proxy leads out of it."""
MODEL_NAME = "pair"
"""What engines serve the constructed pair as."""


class Part(IntEnum):
    """What makes an engine tunable, part by part: each holds those before it."""

    NOTHING = 0
    """Mode Static's command: one depth for good, the stock scheduler, no plugin."""
    SCHEDULE = 1
    """A startup schedule that says the same depth at every batch."""
    DEPTHS = 2
    """Room for the deepest depth, and a schedule that names all."""
    SCHEDULER = 3
    """The scheduler with the hook."""
    LOGGER = 4
    """The plugin's metrics: all of it."""


class EngineProcessError(RuntimeError):
    """The engine did not come up; the message carries the end of its log."""


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """Which engine, and how it is started.

    Attributes:
        command: what stands for `vllm serve MODEL`.
        draft: the draft's directory; None for an engine that needs none.
        python_path: directories before the plugin's on `PYTHONPATH`.
        max_depth: `num_speculative_tokens`.
        depth: what the startup schedule's first range says: the user's own depth.
        max_batch: `max_num_seqs`; more than `max_depth + 1`, so that every depth can be named.
        part: how much it has of what makes it tunable.
        live: whether it is told of other depths than its own; else the plugin counts, no more.
        more_arguments: what the user adds to the command.
    """

    command: tuple[str, ...]
    draft: Path | None = None
    python_path: tuple[Path, ...] = ()
    max_depth: int = 7
    depth: int = 3
    max_batch: int = 16
    part: Part = Part.LOGGER
    live: bool = True
    scheduler_cls: str = SCHEDULER_CLASS
    pod_name: str = "pod-0"
    variables: Mapping[str, str] = field(default_factory=dict)
    more_arguments: tuple[str, ...] = ()

    def arguments(self, port: int) -> list[str]:
        """Everything after the model."""
        deeper = self.live and self.part >= Part.DEPTHS
        speculative: dict[str, object] = {
            "method": "eagle3",
            "num_speculative_tokens": self.max_depth if deeper else self.depth,
        }
        if self.live and self.part >= Part.SCHEDULE:
            speculative["num_speculative_tokens_per_batch_size"] = self.startup_schedule()
        scheduler = ("--scheduler-cls", self.scheduler_cls) if self.hooked else ()
        if self.draft is not None:
            speculative["model"] = str(self.draft)
        return [
            *ENGINE_ARGS,
            *("--max-num-seqs", str(self.max_batch)),
            *("--host", "127.0.0.1", "--port", str(port), "--served-model-name", MODEL_NAME),
            *scheduler,
            *("--shutdown-timeout", "30"),
            *("--speculative-config", json.dumps(speculative)),
            *self.more_arguments,
        ]

    @property
    def hooked(self) -> bool:
        """Whether the plugin's scheduler runs in it."""
        return self.part >= Part.SCHEDULER

    def startup_schedule(self) -> list[list[int]]:
        """The user's depth, and near the top one range for each other depth that it has."""
        has = range(self.max_depth + 1) if self.part >= Part.DEPTHS else ()
        others = [depth for depth in has if depth != self.depth]
        first = self.max_batch - len(others) + 1
        return [
            [1, first - 1, self.depth],
            *([first + at, first + at, depth] for at, depth in enumerate(others)),
        ]


def real_setup(environment: Path, pair: ModelPair) -> EngineSetup:
    """Real vLLM from an engine environment."""
    return EngineSetup(
        command=(str(environment / "bin" / "vllm"), "serve", str(pair.target)),
        draft=pair.draft,
        variables=engine_variables(environment),
    )


def simulated_setup() -> EngineSetup:
    """The simulated engine, run by this Python."""
    return EngineSetup(
        command=(sys.executable, "-m", "local_cluster.engine.simulated", "serve", MODEL_NAME),
        python_path=SOURCES,
    )


class EngineProcess:
    """A running engine with the plugin laid out as a ConfigMap would. A context manager."""

    def __init__(self, setup: EngineSetup, directory: Path) -> None:
        self.setup = setup
        self.model = MODEL_NAME
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.depth_path = directory / "depth" / DEPTH_KEY
        self.counters_path = directory / "counters"
        self.log_path = directory / "engine.log"
        self._plugin = directory / "plugin"
        self._process: subprocess.Popen[bytes] | None = None
        self.depth_path.parent.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start, and return when `/health` answers.

        Raises:
            EngineProcessError: it ended, or was not healthy in time.
        """
        for path, text in bundle_files().items():
            file = self._plugin / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*self.setup.command, *self.setup.arguments(self.port)],
                env=self._environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_healthy(timeout_s)
        except BaseException:  # Ctrl-C too: nobody else knows that it runs
            self.stop()
            raise

    def terminate(self) -> None:
        """Send SIGTERM: it drains, then ends."""
        if self._process is not None:
            self._process.terminate()

    def stop(self) -> None:
        """End it as a kubelet would: SIGTERM, then SIGKILL for what is left of its group."""
        process = self._process
        if process is None:
            return
        self.terminate()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_TIMEOUT_S)
        finally:  # a second Ctrl-C ends the wait, and must leave nothing behind
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def cpu_seconds(self) -> float:
        """Processor time that it has used, with its children; 0 once it has ended."""
        if self._process is None:
            return 0.0
        try:
            parent = psutil.Process(self._process.pid)
            times = [each.cpu_times() for each in (parent, *parent.children(recursive=True))]
        except psutil.NoSuchProcess:
            return 0.0
        return sum(each.user + each.system for each in times)

    def write_depth(
        self,
        generation: int,
        schedule: Sequence[Sequence[int]],
        pods: Mapping[str, Sequence[Sequence[int]]] | None = None,
    ) -> None:
        """Put a depth document in place, whole."""
        document = {"generation": generation, "schedule": schedule, "pods": dict(pods or {})}
        self.write_depth_text(json.dumps(document))

    def write_depth_text(self, text: str) -> None:
        """Put any text in the depth document's place, whole."""
        with tempfile.NamedTemporaryFile(
            "w", dir=self.depth_path.parent, delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
        Path(file.name).replace(self.depth_path)

    def log_tail(self, lines: int = 40) -> str:
        """The end of the engine's log."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def _environment(self) -> dict[str, str]:
        path = [*map(str, self.setup.python_path)]
        if self.setup.hooked:
            path.append(str(self._plugin))
        # Named, only these of all plugins are loaded: none.
        quiet = {"VLLM_PLUGINS": "none"} if self.setup.part is Part.SCHEDULER else {}
        return {
            **os.environ,
            **self.setup.variables,
            **quiet,
            "PYTHONPATH": os.pathsep.join(path),
            DEPTH_FILE: str(self.depth_path),
            COUNTERS_FILE: str(self.counters_path),
            POD_NAME: self.setup.pod_name,
        }

    def _wait_until_healthy(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._healthy():
            if not self.running or time.monotonic() > deadline:
                raise EngineProcessError(
                    f"the engine was not healthy within {timeout_s:.0f} s; the end of "
                    f"{self.log_path}:\n{self.log_tail()}"
                )
            time.sleep(0.2)

    def _healthy(self) -> bool:
        try:
            with _DIRECT.open(f"{self.base_url}/health", timeout=2) as response:
                return bool(response.status == 200)  # noqa: PLR2004 - HTTP's own number
        except (urllib.error.URLError, OSError):
            return False


def free_port() -> int:
    """A port of loopback that nobody had a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
