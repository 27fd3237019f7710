"""Watches the depth file in a thread of its own, so that a step waits for no disk.

What is good in the file lies ready as one immutable value; a step takes a reference to it. What
lies ready is reported only afterwards: an engine that waits for requests shows the generation that
its next step obeys, however soon that comes.

Two things happen without a new document, so that nobody has to be there for them: a pod's own entry
ends when its seconds are over, and an engine whose document is gone goes back to the user's depth.
"""

import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fathom_vllm.counters import CountersWriter
from fathom_vllm.depth_document import (
    DepthDocumentError,
    PodDepths,
    Schedule,
    depth_table,
    parse_depth_document,
    schedule_hash,
)
from fathom_vllm.environment import DEFAULT_DEPTH_FILE, DEPTH_FILE, POD_NAME

MAX_DOCUMENT_BYTES = 1 << 20
"""A ConfigMap holds no more."""

_Signature = tuple[int, int, int, int]
log = logging.getLogger("vllm.fathom")
LOOK_SECONDS = 0.25
FIRST_LOOK_SECONDS = 5.0
"""The engine's start waits no longer than this for a file that does not answer."""
GONE_SECONDS = 60.0
"""A document that is missing for so long is gone: a volume that is filled again takes less."""
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})
"""Errors that say that there is no file; after any other there may be one."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """The file holds a document to obey."""

    document: PodDepths


@dataclass(frozen=True, slots=True)
class Rejected:
    """The file holds nothing to obey; the last good table stays."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no file."""


class DepthFile:
    """The depth document as one pod sees it."""

    def __init__(self, path: str, *, pod: str, max_depth: int) -> None:
        self.path = path
        self._pod = pod
        self._max_depth = max_depth
        self._signature: _Signature | None = None
        self._rejected: object = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], *, max_depth: int) -> "DepthFile":
        """The file and the pod name that the pod's environment gives."""
        return cls(
            environ.get(DEPTH_FILE) or DEFAULT_DEPTH_FILE,
            pod=environ.get(POD_NAME, ""),
            max_depth=max_depth,
        )

    def poll(self) -> Adopted | Rejected | Missing | None:
        """Look at the file; one `stat` when nothing changed.

        Returns:
            What a change brought; None when there is nothing new. A file that is missing is
            reported each time. The same bad content is reported once, however often it is seen;
            good content in between forgets it.
        """
        try:
            signature = self._stat()
            if signature == self._signature:
                return None
            content = self._read()
        except OSError as error:
            # The volume may be in the middle of a swap: forget the signature, so that the next
            # poll reads again even if the file looks the same.
            self._signature = None
            if error.errno in _MISSING:
                return Missing()
            return self._reject(error.errno, f"{self.path} cannot be read: {error}")
        self._signature = signature
        try:
            document = parse_depth_document(
                content.decode("utf-8"), pod=self._pod, max_depth=self._max_depth
            )
        except UnicodeDecodeError as error:
            return self._reject(content, f"{self.path}: not UTF-8: {error}")
        except DepthDocumentError as error:
            return self._reject(content, f"{self.path}: {error}")
        self._rejected = None
        return Adopted(document)

    def _read(self) -> bytes:
        # Not blocking: a FIFO in the file's place would stop the watch until someone wrote to it.
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(descriptor, MAX_DOCUMENT_BYTES)
        finally:
            os.close(descriptor)

    def _stat(self) -> _Signature:
        # Followed on purpose: a ConfigMap volume swaps the `..data` symlink, so a new document is a
        # new inode.
        status = Path(self.path).stat()
        return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)

    def _reject(self, content: object, sentence: str) -> Rejected | None:
        if content == self._rejected:
            return None
        self._rejected = content
        return Rejected(sentence)


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
        self._startup = startup
        self._file = depth_file
        self._counters = counters
        self._clock = clock
        self._obeyed: PodDepths | None = None
        self._obeyed_since_s = 0.0
        """Since when its generation's schedule for this pod lies ready."""
        self._ends_at_s: float | None = None
        self._missing_since_s: float | None = None
        self._gone = False
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
            self._missing_since_s = None
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
        now_s = self._clock()
        # First, whatever the file says: it may be a while until it says something.
        self._end_entry(now_s)
        found = self._file.poll()
        if isinstance(found, Missing):
            self._is_missing(now_s)
            return
        # A read that fails says nothing of whether there is a file.
        self._missing_since_s = None
        if isinstance(found, Adopted):
            self._adopt(found.document, now_s)
        elif isinstance(found, Rejected):
            self._counters.reject_document()
            log.warning("Fathom: %s. The depth table in force stays.", found.sentence)

    def _adopt(self, document: PodDepths, now_s: float) -> None:
        before = self._obeyed
        if before is None or (before.generation, before.schedule) != (
            document.generation,
            document.schedule,
        ):
            self._obeyed_since_s = now_s
        self._obeyed = document
        ends_s = document.ends_s
        self._ends_at_s = None if ends_s is None else self._obeyed_since_s + ends_s
        if self._ends_at_s is not None and now_s >= self._ends_at_s:
            self._end_entry(now_s)
        else:
            self._make_ready(document.generation, document.schedule)
        self._gone = False
        self._counters.set_document(gone=False)

    def _end_entry(self, now_s: float) -> None:
        """The pod's own entry ends once its time is over: nobody has to be there to end it."""
        if self._ends_at_s is None or self._obeyed is None or now_s < self._ends_at_s:
            return
        self._ends_at_s = None
        log.info("Fathom: this pod's own depths end after %d s", self._obeyed.ends_s)
        self._make_ready(self._obeyed.generation, self._obeyed.common)

    def _is_missing(self, now_s: float) -> None:
        """Nothing for a while; then back to what is the user's, if a document was obeyed."""
        if self._missing_since_s is None:
            self._missing_since_s = now_s
            log.warning("Fathom: %s is missing. The depth table in force stays.", self._file.path)
        obeyed = self._obeyed
        if obeyed is None or self._gone or now_s - self._missing_since_s < GONE_SECONDS:
            return
        self._gone = True
        self._ends_at_s = None
        log.warning(
            "Fathom: %s is gone for %.0f s. Depth goes back to %s until a document comes.",
            self._file.path,
            GONE_SECONDS,
            "tokens, as the last document had them" if obeyed.tokens else "the startup table",
        )
        if obeyed.tokens:
            self._make_ready(0, obeyed.tokens)
        else:
            self.ready = self._startup
            self._counters.set_ready(0)
        self._counters.set_document(gone=True)

    def _make_ready(self, generation: int, schedule: Schedule) -> None:
        found = schedule_hash(schedule)
        if (generation, found) == (self.ready.generation, self.ready.schedule_hash):
            return
        table = depth_table(schedule, self._counters.max_batch)
        # In this order: a generation that is told is one that the next step obeys.
        self.ready = Ready(generation, tuple(table), found)
        self._counters.set_ready(generation, found)
        log.info(
            "Fathom: generation %d in force from the next step on, schedule %s",
            generation,
            [list(entry) for entry in schedule],
        )

    def _failed(self, error: Exception) -> None:
        self._counters.watch_error()
        if not self._failing:
            log.error("Fathom: the depth file cannot be watched; depth stays", exc_info=error)
        self._failing = True
