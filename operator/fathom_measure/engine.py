"""One engine as a process of its own: started, held at a depth, ended."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections import deque
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Final

from fathom_measure.plan import EnginePlan, MeasurePlan

HOST: Final = "127.0.0.1"
"""Where it is asked: in this pod, whatever proxy leads out of it."""
LOOK_SECONDS: Final = 0.5
ANSWER_SECONDS: Final = 10.0
END_SECONDS: Final = 60.0
"""Nothing is in flight when it is told to end."""
_SHOWN_LINES: Final = 30
_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_GENERATION: Final = re.compile(r"^fathom_depth_generation(?:\{[^}]*\})? (\S+)", re.MULTILINE)


class MeasureError(Exception):
    """Something cannot be measured; the message is a sentence."""


class RunningEngine:
    """A process, and the group of all that it starts."""

    def __init__(self, plan: EnginePlan, measure: MeasurePlan) -> None:
        """Start it; it does not answer yet.

        Raises:
            MeasureError: its program is not there, or another answers in its place.
        """
        self._plan = plan
        self._measure = measure
        self._generation = 0
        if self._get("/health") is not None:
            # On the host's network, say: it may well be a replica that serves.
            raise MeasureError(f"another engine answers on port {measure.port} already")
        # Not into the pod's log: a chatty engine would push the results out of it.
        self._output = tempfile.NamedTemporaryFile("w+", prefix="engine-", suffix=".log")  # noqa: SIM115
        if plan.depth_file:
            self._write_depth(plan.depths[0])
        try:
            self._process = subprocess.Popen(
                plan.command,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env=_environment(plan),
                start_new_session=True,
            )
        except OSError as error:
            raise MeasureError(f"the engine cannot be started: {error}") from error

    def wait_until_it_answers(self) -> None:
        """Return when requests can be sent.

        Raises:
            MeasureError: it ended, or took too long.
        """
        deadline = time.monotonic() + self._measure.start_seconds
        while time.monotonic() < deadline:
            if self._get("/health") is not None:
                return
            if (code := self._process.poll()) is not None:
                raise MeasureError(f"the engine ended with {code}. Its last lines:\n{self.tail()}")
            time.sleep(LOOK_SECONDS)
        raise MeasureError(
            f"the engine did not answer within {self._measure.start_seconds:.0f} s. Its last "
            f"lines:\n{self.tail()}"
        )

    def hold_at(self, depth: int) -> None:
        """Return when this depth is in force; where it cannot be changed, it is taken to be.

        Raises:
            MeasureError: the engine does not obey.
        """
        if not self._plan.depth_file:
            return
        self._write_depth(depth)
        deadline = time.monotonic() + self._measure.obey_seconds
        while time.monotonic() < deadline:
            shown = _GENERATION.search(self._get("/metrics") or "")
            if shown is not None and float(shown[1]) >= self._generation:
                return
            time.sleep(LOOK_SECONDS)
        raise MeasureError(
            f"depth {depth} was not in force within {self._measure.obey_seconds:.0f} s. Its "
            f"last lines:\n{self.tail()}"
        )

    def end(self) -> None:
        """Tell it to end, and kill what does not."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        # Whatever it started holds the GPU's memory, too.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._output.close()

    def tail(self) -> str:
        """The end of its output."""
        return last_lines(Path(self._output.name))

    def _write_depth(self, depth: int) -> None:
        self._generation += 1
        document = {
            "generation": self._generation,
            "schedule": [[1, self._measure.max_batch, depth]],
            "pods": {},
        }
        path = Path(self._plan.depth_file)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(document), encoding="utf-8")
        new.replace(path)

    def _get(self, path: str) -> str | None:
        """What it answers; None: nothing, or a refusal."""
        url = f"http://{HOST}:{self._measure.port}{path}"
        try:
            with _DIRECT.open(url, timeout=ANSWER_SECONDS) as response:
                text: str = response.read().decode(errors="replace")
                return text if response.status == HTTPStatus.OK else None
        except (urllib.error.URLError, OSError, ValueError):
            return None


def last_lines(path: Path) -> str:
    """The end of a file of output."""
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as lines:
        return "".join(deque(lines, maxlen=_SHOWN_LINES)).strip()
    return ""


def _environment(plan: EnginePlan) -> dict[str, str]:
    environment = dict(os.environ)
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    environment["PYTHONPATH"] = os.pathsep.join(
        each for each in folders if each and each != plan.hidden
    )
    return environment
