"""The mounted depth document, read only when it changed, and never fatal."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fathom_vllm.environment import DEFAULT_DEPTH_FILE, DEPTH_FILE, POD_NAME
from fathom_vllm.schedule import DepthDocumentError, PodDepths, parse_depth_document

MAX_DOCUMENT_BYTES = 1 << 20
"""A ConfigMap holds no more."""

_Signature = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Adopted:
    """The file holds a document to obey."""

    document: PodDepths


@dataclass(frozen=True, slots=True)
class Rejected:
    """The file holds nothing to obey; the last good table stays."""

    sentence: str


class DepthFile:
    """The depth document as one pod sees it."""

    def __init__(self, path: str, *, pod: str, max_depth: int) -> None:
        self.path = path
        self._pod = pod
        self._max_depth = max_depth
        self._signature: _Signature | None = None
        self._checked = False
        self._rejected: object = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], *, max_depth: int) -> "DepthFile":
        """The file and the pod name that the pod's environment gives."""
        return cls(
            environ.get(DEPTH_FILE) or DEFAULT_DEPTH_FILE,
            pod=environ.get(POD_NAME, ""),
            max_depth=max_depth,
        )

    def poll(self) -> Adopted | Rejected | None:
        """Look at the file; one `stat` when nothing changed.

        Returns:
            What a change brought; None when there is nothing new. The same bad content is
            reported once, however often it is seen; good content in between forgets it.
        """
        signature = self._stat()
        if self._checked and signature == self._signature:
            return None
        self._checked = True
        self._signature = signature
        if signature is None:
            return self._reject("missing", f"{self.path} is missing")
        try:
            content = self._read()
        except OSError as error:
            # The volume may be in the middle of a swap: forget the signature, so that the next
            # poll reads again even if the file looks the same.
            self._checked = False
            return self._reject(error.errno, f"{self.path} cannot be read: {error}")
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

    def _stat(self) -> _Signature | None:
        try:
            # Followed on purpose: a ConfigMap volume swaps the `..data` symlink, so a new
            # document is a new inode.
            status = Path(self.path).stat()
        except OSError:
            return None
        return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)

    def _reject(self, content: object, sentence: str) -> Rejected | None:
        if content == self._rejected:
            return None
        self._rejected = content
        return Rejected(sentence)
