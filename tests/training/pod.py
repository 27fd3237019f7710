"""The pod of a template, run on this machine: its scripts are those that users run."""

import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from local_cluster.engine.environment import engine_variables
from local_cluster.engine.process import free_port
from local_cluster.paths import REPOSITORY
from support.waiting import until
from training.environment import IMAGE, TrainingEnvironment, trainer_variables

TEMPLATE: Final = REPOSITORY / "examples" / "training" / "speculators.yaml"
STATES: Final = "states"
TRAIN: Final = "train"
ON_CPU: Final = (
    "--draft-attn-impl sdpa --hidden-states-dtype float32 "
    "--num-workers 0 --loss-implementation eager"
)
"""Arguments of `speculators train` where there is no GPU."""
_VLLM_ON_CPU: Final = "--dtype float32 --enforce-eager --max-model-len 1024"
_TOKENS: Final = "256"
"""In a step: with few, a step is short, and the pair is learned in few steps."""
_LAYERS: Final = "1 3 5"
"""The pair's target has too few for speculators' own choice."""
_PORT: Final = "8000"
_BOTH: Final = """\
set -eu
sh -c "$1" & states=$!
trap 'kill $states; wait' EXIT
until {probe} 2>/dev/null; do kill -0 $states; sleep 1; done
sh -c "$2"
"""
"""Both halves in one container, where Kubernetes is older than native sidecars."""


@dataclass(frozen=True, slots=True)
class Half:
    """A container of the template."""

    script: str
    env: Mapping[str, str]
    probe: tuple[str, ...] = ()
    """Ends well once it has started; empty: it has none."""


def halves(path: Path = TEMPLATE) -> dict[str, Half]:
    """The containers of a template, by name."""
    spec = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
    return {
        container["name"]: Half(
            script=container["args"][0],
            env={each["name"]: each["value"] for each in container.get("env", ())},
            probe=tuple(container.get("startupProbe", {}).get("exec", {}).get("command", ())),
        )
        for container in (*spec.get("initContainers", ()), *spec["containers"])
    }


def cpu_env(train_args: str) -> dict[str, str]:
    """What takes the place of the template's own values on a machine without a GPU.

    Args:
        train_args: of `speculators train`, besides what a CPU needs.
    """
    return {
        "GPUS": "1",
        "LAYERS": _LAYERS,
        "VLLM_ARGS": _VLLM_ON_CPU,
        "TOKENS": _TOKENS,
        "TRAIN_ARGS": f"{ON_CPU} {train_args}",
    }


def cpu_template(environment: TrainingEnvironment, train_args: str) -> dict[str, Any]:
    """`spec.draft.training.template` for a local cluster: both halves in container `train`.

    Args:
        environment: whose `image()` the cluster knows.
        train_args: of `speculators train`, besides what a CPU needs.
    """
    states, train = (halves()[name] for name in (STATES, TRAIN))
    env = {
        **states.env,
        **train.env,
        **engine_variables(environment.engine),
        **cpu_env(train_args),
        "OMP_NUM_THREADS": "2",
    }
    probe = f'{states.probe[0]} {states.probe[1]} "{states.probe[2]}"'
    container = {
        "name": TRAIN,
        "image": IMAGE,
        "command": ["sh", "-c"],
        "args": [_BOTH.format(probe=probe), "sh", states.script, train.script],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    return {"spec": {"containers": [container], "volumes": [{"name": "scratch", "emptyDir": {}}]}}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a container ended."""

    code: int
    seconds: float
    cpu_seconds: float
    largest_mib: int
    """Memory of its largest process."""


@dataclass(frozen=True)
class Pod:
    """Runs the halves as processes, with folders of this machine in the place of its volumes."""

    environment: TrainingEnvironment
    scratch: Path
    variables: Mapping[str, str]
    """Besides the template's: the contract's, and `cpu_env`."""
    port: str

    @asynccontextmanager
    async def states(self) -> AsyncIterator[None]:
        """The sidecar, from when it answers."""
        half = halves()[STATES]
        with self._started(half, "states.log", engine_variables(self.environment.engine)) as found:
            await until(lambda: self._answers(half, found), "vLLM answers", every_s=1)
            yield

    def train(self) -> Ended:
        """The container `train`, to its end."""
        began_s = time.monotonic()
        with self._started(halves()[TRAIN], "train.log", {}) as process:
            _, code, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(code)
        return Ended(
            process.returncode,
            time.monotonic() - began_s,
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss // 1024,
        )

    def log(self, name: str) -> str:
        """What a container printed: `states` or `train`."""
        return (self.scratch / f"{name}.log").read_text(errors="replace")

    @contextmanager
    def _started(
        self, half: Half, log: str, more: Mapping[str, str]
    ) -> Iterator[subprocess.Popen[bytes]]:
        self.scratch.mkdir(parents=True, exist_ok=True)
        with (self.scratch / log).open("wb") as output:
            process = subprocess.Popen(
                ["sh", "-c", self._here(half.script)],
                env=self._variables(half, more),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()

    def _answers(self, half: Half, process: subprocess.Popen[bytes]) -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"vLLM has ended: {self.log(STATES)[-2000:]}")
        probe = [self._here(each) for each in half.probe]
        env = {**os.environ, "no_proxy": "127.0.0.1"}
        return subprocess.run(probe, env=env, capture_output=True, check=False).returncode == 0

    def _variables(self, half: Half, more: Mapping[str, str]) -> dict[str, str]:
        ours = {
            "PATH": self.environment.path,
            "LANG": "C.UTF-8",
            **trainer_variables(),
            "no_proxy": "127.0.0.1",
        }
        return {**ours, **more, **half.env, **self.variables, "HOME": str(self.scratch)}

    def _here(self, text: str) -> str:
        """A script with this machine's folder and port."""
        port = text.replace(f"127.0.0.1:{_PORT}", f"127.0.0.1:{self.port}")
        port = port.replace(f"--port {_PORT}", f"--port {self.port}")
        return port.replace("/scratch", str(self.scratch))


def new_port() -> str:
    """For a pod's vLLM."""
    return str(free_port())
