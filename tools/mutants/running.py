"""Runs tests in a copy of the checkout, each time in a fresh process that need not start up."""

import importlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from math import ceil
from pathlib import Path
from typing import Final, NoReturn, Self

import pytest

_KEPT: Final = frozenset(
    {
        *("fathom", "fathom_vllm", "fathom_fetch", "fathom_intake", "fathom_measure"),
        *("local_cluster", "benchmarks"),
    }
)
LOADED_EARLY: Final = (
    "aiohttp",
    "coverage",
    "hypothesis",
    "hypothesis.strategies",
    "kopf",
    "kubernetes",
    "numpy",
    "prometheus_client.parser",
    "pydantic",
    "pytest_asyncio",
    "structlog",
    "typer",
    "yaml",
)
"""What takes long to import and is never mutated: loaded once, then forked."""
TIMED_OUT: Final = -signal.SIGXCPU
"""What a run that exceeds its processor time ends with."""
PATIENCE: Final = 10.0
"""Times as long on a clock as on the processor, which others may use: a run that waits for ever."""
POLL_S: Final = 0.02
MOST_BYTES: Final = 8 << 30


@contextmanager
def copied(root: Path) -> Iterator[Path]:
    """A copy of what git knows of a checkout, and of what it does not ignore."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=root, check=True, capture_output=True, text=True).stdout  # noqa: S603
    with tempfile.TemporaryDirectory(prefix="fathom-mutants-") as folder:
        copy = Path(folder)
        for name in filter(None, files.split("\0")):
            if (root / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, copy / name)
        yield copy


@contextmanager
def replaced(file: Path, text: str) -> Iterator[None]:
    """A file with other text for a while; it is the same again afterwards, and as old."""
    original, before = file.read_text(), file.stat()
    file.write_text(text)
    try:
        yield
    finally:
        file.write_text(original)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def load_early() -> None:
    """Import what every run of tests would import again."""
    for each in LOADED_EARLY:
        importlib.import_module(each)
    if not _KEPT.isdisjoint(sys.modules):
        raise RuntimeError(f"{_KEPT & set(sys.modules)} is loaded, and could not be mutated")


class Tests:
    """A run of some tests that stops at the first failure; leaving it kills what still runs."""

    def __init__(
        self,
        copy: Path,
        tests: Sequence[str],
        longest_s: float,
        environment: Mapping[str, str] | None = None,
        *,
        clean: bool = False,
    ) -> None:
        """Begin.

        Args:
            copy: of the checkout.
            tests: node ids or files, relative to it.
            longest_s: of processor time, after which it is killed; or after so many times that.
            environment: to be added.
            clean: whether nothing is mutated, so that what is compiled may be kept.
        """
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # closed when it is left
        self._began_s = time.monotonic()
        self._longest_s = longest_s * PATIENCE
        self._code: int | None = None
        self._child = os.fork()
        if not self._child:
            kept = {} if clean else {"PYTHONDONTWRITEBYTECODE": "1"}
            sys.dont_write_bytecode = not clean
            own = partial(_pytest, copy, tests, {**(environment or {}), **kept}, longest_s)
            _end_with(own, self._output.fileno())

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began_s

    def code(self) -> int | None:
        """Exit code of pytest, or `TIMED_OUT`; None: it still runs."""
        if self._code is None:
            ended, status = os.waitpid(self._child, os.WNOHANG)
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
            elif self.seconds > self._longest_s:
                os.killpg(self._child, signal.SIGKILL)
                os.waitpid(self._child, 0)
                self._code = TIMED_OUT
        return self._code

    def ended(self) -> int:
        """Wait for the code."""
        while (code := self.code()) is None:
            time.sleep(POLL_S)
        return code

    def output(self) -> str:
        """What it has printed."""
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._child, signal.SIGKILL)
        if self._code is None:
            os.waitpid(self._child, 0)
        self._output.close()


def _pytest(
    copy: Path, tests: Sequence[str], environment: Mapping[str, str], longest_s: float
) -> int:
    # A mutant may run for ever, or fill the memory.
    resource.setrlimit(resource.RLIMIT_CPU, (ceil(longest_s), ceil(longest_s) + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    sources = str(copy / "operator")
    os.chdir(copy)
    # Subprocesses of tests must see the same sources.
    tools = str(Path(__file__).parents[1])
    os.environ.update({"PYTHONPATH": os.pathsep.join([sources, tools]), **environment})
    sys.path.insert(0, sources)
    plugins = ["-p", "mutants.recording", "-p", "no:cacheprovider"]
    loaded = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # on purpose
    return int(pytest.main([*plugins, *loaded, "-x", "-q", "--no-header", "--tb=line", *tests]))


def _end_with(work: Callable[[], int], output: int) -> NoReturn:
    """As a process of its own, without the clean-up of the one that it was forked from."""
    code = 3
    try:
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = work()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001  # told, and then the process ends
        traceback.print_exc()
    finally:
        os._exit(code)
