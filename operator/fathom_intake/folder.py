"""The folders of an intake: what a trainer left is read and copied, what was verified is stored.

A folder is held open, and what is in it is opened beneath it by a plain name: whatever is renamed
or linked meanwhile, nothing outside is reached. Of what is there only regular files are opened. A
hard link is one: none leads out of a mount, so it is what the trainer could read anyway, and the
copy shares nothing with it.
"""

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from fathom_intake.model_weights import Placed
from fathom_intake.verdict import Code, RefusedError

CHUNK_BYTES: Final = 1 << 22
"""Read at once; a multiple of every type's size."""
ABANDONED_S: Final = 24 * 3600
"""Age of what an intake that was killed has left: none takes that long."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_INCOMING: Final = ".incoming-"
_NAME_DIGITS: Final = 16
"""Hex digits of a stored folder's name: the beginning of its digest."""
_ALL_ONES: Final = {
    "F64": ("<u8", 0x7FF0 << 48),
    "F32": ("<u4", 0x7F80 << 16),
    "F16": ("<u2", 0x7C00),
    "BF16": ("<u2", 0x7F80),
    "F8_E5M2": ("<u1", 0x7C),
    "F8_E4M3": ("<u1", 0x7F),
    "F8_E8M0": ("<u1", 0xFF),
}
"""Bits that are all set in a NaN and in an infinite number, and in no other."""
_TABLE_TYPES: Final = {"I64": "<i8", "I32": "<i4"}

_READING: Final = {
    **dict.fromkeys((errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENOTDIR), Code.NOT_A_FILE),
    **dict.fromkeys((errno.EACCES, errno.EPERM), Code.UNREADABLE),
    errno.ENOENT: Code.CHANGED,
}
_WRITING: Final = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), Code.STORE_FULL),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), Code.STORE_CLOSED),
}


@contextmanager
def _explained(codes: dict[int, Code]) -> Iterator[None]:
    """Turns a failure of the system's into a refusal, which has no name of a file in it."""
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        raise RefusedError(codes.get(number, Code.STORAGE_FAILED), found=number) from None


class _Held:
    """Something that is open until the end of its `with`."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __exit__(self, *raised: object) -> None:
        os.close(self.descriptor)


class File(_Held, AbstractContextManager["File"]):
    """A regular file, open to be read."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._found = os.fstat(descriptor)

    @property
    def size(self) -> int:
        """Bytes when it was opened, those of holes included."""
        return self._found.st_size

    def chunks(self, begin: int, end: int) -> Iterator[bytes]:
        """What is there, a few megabytes at a time.

        Raises:
            RefusedError: it ends before, or cannot be read.
        """
        while begin < end:
            wanted, chunk = min(CHUNK_BYTES, end - begin), b""
            # One read may bring less than it was asked for, and half a number.
            while len(chunk) < wanted:
                with _explained(_READING):
                    more = os.pread(self.descriptor, wanted - len(chunk), begin + len(chunk))
                if not more:
                    raise RefusedError(Code.CHANGED)
                chunk += more
            yield chunk
            begin += wanted

    def content(self, begin: int, end: int) -> bytes:
        return b"".join(self.chunks(begin, end))

    def confirm(self) -> None:
        """Raise RefusedError unless it is as it was when it was opened."""
        now = os.fstat(self.descriptor)
        if (now.st_size, now.st_mtime_ns) != (self._found.st_size, self._found.st_mtime_ns):
            raise RefusedError(Code.CHANGED)


class Folder(_Held, AbstractContextManager["Folder"]):
    """A folder, open."""

    @classmethod
    def at(cls, path: Path) -> "Folder":
        """The one that is mounted there; RefusedError where it cannot be read."""
        with _explained({errno.EACCES: Code.UNREADABLE}):
            return cls(os.open(path, _FOLDER))

    def folder(self, name: str) -> "Folder":
        """One within.

        Raises:
            RefusedError: there is none of this name, as where it is a link.
        """
        gone = dict.fromkeys((errno.ENOENT, errno.ELOOP, errno.ENOTDIR), Code.BAD_FOLDER)
        with _explained({**_READING, **gone}):
            return Folder(os.open(name, _FOLDER, dir_fd=self.descriptor))

    def entries(self, most: int) -> frozenset[str]:
        """Names of what is in it, whatever that is; none of it is opened.

        Raises:
            RefusedError: there are more.
        """
        names: set[str] = set()
        with _explained(_READING), os.scandir(self.descriptor) as found:
            for each in found:
                names.add(each.name)
                if len(names) > most:
                    raise RefusedError(Code.TOO_MANY_FILES, most=most)
        return frozenset(names)

    def file(self, name: str) -> File:
        """A regular file within, open. Nothing else is: opening a device may do something.

        Raises:
            RefusedError: it is none, or may not be read.
        """
        with _explained(_READING):
            before = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
            if not stat.S_ISREG(before.st_mode):
                raise RefusedError(Code.NOT_A_FILE)
            descriptor = os.open(name, _FILE, dir_fd=self.descriptor)
        file = File(descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise RefusedError(Code.NOT_A_FILE)
        return file

    def content(self, name: str, most: int, code: Code) -> bytes:
        """All of a small file.

        Raises:
            RefusedError: it has more bytes, with this code; or it cannot be read.
        """
        with self.file(name) as file:
            if file.size > most:
                raise RefusedError(code)
            return file.content(0, file.size)


@dataclass(frozen=True, slots=True)
class Stored:
    """A folder by what is in it."""

    digest: str
    """64 hex digits: of its files' names and bytes, in the order of their names."""
    total_bytes: int
    files: int

    @property
    def name(self) -> str:
        return self.digest[:_NAME_DIGITS]


def stored_in(folder: Folder, most: int) -> Stored:
    """What a folder holds.

    Raises:
        RefusedError: there are more than so many files, or something else than files.
    """
    digest, total = hashlib.sha256(), 0
    names = sorted(folder.entries(most))
    for name in names:
        with folder.file(name) as file:
            digest.update(f"{len(name)} {name} {file.size}\n".encode(errors="surrogateescape"))
            for chunk in file.chunks(0, file.size):
                digest.update(chunk)
            total += file.size
    return Stored(digest.hexdigest(), total, len(names))


class Incoming:
    """A new folder of the store, which only its maker sees until it is kept."""

    def __init__(self, store: Folder, folder: Folder, name: str) -> None:
        self._store = store
        self._name = name
        self.folder = folder

    def copy(self, source: File, name: str) -> None:
        """Copy as many bytes as the source had when it was opened.

        Raises:
            RefusedError: it cannot be read or written, or changed meanwhile.
        """
        self.write(name, source.chunks(0, source.size))
        source.confirm()

    def write(self, name: str, content: Iterable[bytes]) -> None:
        with _explained(_WRITING):
            descriptor = os.open(name, _NEW, 0o600, dir_fd=self.folder.descriptor)
            with os.fdopen(descriptor, "wb") as file:
                for chunk in content:
                    file.write(chunk)
                file.flush()
                os.fchmod(descriptor, 0o444)
                os.fsync(descriptor)

    def keep(self, most: int) -> Stored:
        """Give it the name of its content, for all to read and nobody to write.

        Where that is there already, it is this one from now on.

        Raises:
            RefusedError: what is there holds something else.
        """
        found = stored_in(self.folder, most)
        with _explained(_WRITING):
            os.fchmod(self.folder.descriptor, 0o555)
            os.fsync(self.folder.descriptor)
            try:
                at = self._store.descriptor
                os.rename(self._name, found.name, src_dir_fd=at, dst_dir_fd=at)
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                    raise
                self._require(found, most)
            os.fsync(self._store.descriptor)
        return found

    def _require(self, wanted: Stored, most: int) -> None:
        with suppress(RefusedError), self._store.folder(wanted.name) as there:
            if stored_in(there, most) == wanted:
                return
        raise RefusedError(Code.STORE_CHANGED)

    def discard(self) -> None:
        """Remove it, unless it was kept: then it has another name."""
        _remove(self._store, self._name)


@contextmanager
def incoming(path: Path, now_s: float) -> Iterator[Incoming]:
    """A new folder in the store at this path, which goes unless it is kept.

    Args:
        path: made where it is missing.
        now_s: Unix seconds. What was abandoned a day before goes as well.

    Raises:
        RefusedError: the store may not be written.
    """
    no_folder = dict.fromkeys((errno.EEXIST, errno.ELOOP, errno.ENOTDIR), Code.STORE_CLOSED)
    with ExitStack() as held:
        with _explained({**_WRITING, **no_folder}):
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
            store = held.enter_context(Folder(os.open(path, _FOLDER)))
            _tidy(store, now_s)
            name = f"{_INCOMING}{secrets.token_hex(8)}"
            os.mkdir(name, 0o700, dir_fd=store.descriptor)
            new = Incoming(store, held.enter_context(store.folder(name)), name)
        held.callback(new.discard)
        yield new


def _tidy(store: Folder, now_s: float) -> None:
    with os.scandir(store.descriptor) as found:
        names = [each.name for each in found if each.name.startswith(_INCOMING)]
    for name in names:
        with suppress(FileNotFoundError):
            made = os.stat(name, dir_fd=store.descriptor, follow_symlinks=False)
            if now_s - made.st_mtime > ABANDONED_S:
                _remove(store, name)


def _remove(store: Folder, name: str) -> None:
    """As far as it may be removed: what stays has a name of which nothing is loaded."""
    with suppress(OSError):
        with Folder(os.open(name, _FOLDER, dir_fd=store.descriptor)) as folder:
            os.fchmod(folder.descriptor, 0o700)
            with os.scandir(folder.descriptor) as found:
                for each in [each.name for each in found]:
                    os.unlink(each, dir_fd=folder.descriptor)
        os.rmdir(name, dir_fd=store.descriptor)


def require_values(file: File, data_begin: int, placed: Placed, vocabulary: int | None) -> None:
    """Read all numbers of a tensor: they are finite, and a table's lead to tokens that there are.

    Args:
        file: that holds it.
        data_begin: where its header ends.
        placed: the tensor.
        vocabulary: the target's number of tokens, where this is the table from the draft's tokens
            to them: as vLLM reads it, each number is added to its own place. None: no table.

    Raises:
        RefusedError: it is not so.
    """
    begin, end = data_begin + placed.begin, data_begin + placed.end
    dtype = placed.tensor.dtype
    if vocabulary is not None:
        if dtype not in _TABLE_TYPES or len(placed.tensor.shape or ()) != 1:
            raise RefusedError(Code.BAD_TABLE, most=vocabulary)
        place = 0
        for chunk in file.chunks(begin, end):
            numbers = np.frombuffer(chunk, _TABLE_TYPES[dtype]).astype(np.int64)
            tokens = numbers + np.arange(place, place + len(numbers))
            if ((tokens < 0) | (tokens >= vocabulary)).any():
                raise RefusedError(Code.BAD_TABLE, most=vocabulary)
            place += len(numbers)
    elif dtype in _ALL_ONES:
        bits, ones = _ALL_ONES[dtype]
        for chunk in file.chunks(begin, end):
            if (np.frombuffer(chunk, bits) & ones == ones).any():
                raise RefusedError(Code.NOT_FINITE)
