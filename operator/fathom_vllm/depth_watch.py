"""Watches the depth file in a thread of its own, so that a step waits for no disk.

What is good in the file lies ready as one immutable value; a step takes a reference to it. What
lies ready is reported only afterwards: an engine that waits for requests shows the generation that
its next step obeys, however soon that comes.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from fathom_vllm.counters import CountersWriter
from fathom_vllm.depth_file import Adopted, DepthFile
from fathom_vllm.schedule import depth_table, schedule_hash

log = logging.getLogger("vllm.fathom")

LOOK_SECONDS = 0.25
FIRST_LOOK_SECONDS = 5.0
"""The engine's start waits no longer than this for a file that does not answer."""


@dataclass(frozen=True, slots=True)
class Ready:
    """What the next step obeys."""

    generation: int
    """0: the startup depth; no document yet."""
    table: tuple[int, ...]
    """Index = batch, entry = depth."""
    schedule_hash: int = 0
    """Hash of the schedule that the table was made from; 0: it is of no document."""


class DepthWatch:
    """Keeps what the depth file says ready. No method raises."""

    def __init__(
        self,
        depth_file: DepthFile,
        counters: CountersWriter,
        startup: Ready,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with `startup`; nothing is read before `look` or `start`.

        Args:
            depth_file: where the operator's document appears.
            counters: where it is told what was found.
            startup: what is in force until a document says otherwise.
            clock: seconds since the machine started, the same for every process.
        """
        self.ready = startup
        self._file = depth_file
        self._counters = counters
        self._clock = clock
        self._failing = False
        self._looked = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        counters.set_looked(clock())  # from now on it can be overdue

    def look(self) -> None:
        """Look at the file once. A bad file leaves ready what was ready."""
        try:
            self._look()
        except Exception as error:  # noqa: BLE001 - nothing of ours may end the thread
            self._failed(error)
        else:
            self._failing = False
            self._counters.set_looked(self._clock())

    def start(self, wait_s: float = FIRST_LOOK_SECONDS) -> None:
        """Look from now on, in a thread; returns after its first look, or after `wait_s`.

        To be called in the process that schedules: a thread does not outlive a fork.
        """
        self._begin()
        if not self._looked.wait(wait_s):
            log.warning(
                "Fathom: %s did not answer within %.0f s. Depth starts as the engine was started, "
                "and follows the file as soon as it answers.",
                self._file.path,
                wait_s,
            )

    def stop(self) -> None:
        """Look no more. The thread would not keep the process alive either."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def keep_looking(self) -> None:
        """Start the thread again if it was started and is gone: after a fork, for one."""
        if self._thread is not None and not self._thread.is_alive():
            self._counters.watch_error()
            log.error("Fathom: the thread that watches the depth file is gone; it starts again.")
            self._begin()

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name="fathom-depth", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads: `keep_looking` tries again
            self._failed(error)

    def _run(self) -> None:
        while True:
            self.look()
            self._looked.set()
            if self._stopping.wait(LOOK_SECONDS):
                return

    def _look(self) -> None:
        found = self._file.poll()
        if found is None:
            return
        if not isinstance(found, Adopted):
            self._counters.reject_document()
            log.warning("Fathom: %s. The depth table in force stays.", found.sentence)
            return
        document = found.document
        table = depth_table(document.schedule, self._counters.max_batch)
        # In this order: a generation that is told is one that the next step obeys.
        found_hash = schedule_hash(document.schedule)
        self.ready = Ready(document.generation, tuple(table), found_hash)
        self._counters.set_ready(document.generation, found_hash)
        log.info(
            "Fathom: generation %d in force from the next step on, schedule %s",
            document.generation,
            [list(entry) for entry in document.schedule],
        )

    def _failed(self, error: Exception) -> None:
        self._counters.watch_error()
        if not self._failing:
            log.error("Fathom: the depth file cannot be watched; depth stays", exc_info=error)
        self._failing = True
