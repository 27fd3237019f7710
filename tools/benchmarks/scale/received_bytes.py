"""What a process receives over its connections, as the kernel counts it."""

import re
from collections.abc import Mapping
from pathlib import Path


def received_by_socket(said: str) -> list[tuple[int, int]]:
    """From `ss -tineHO`: the inode of each connection, and the bytes that it received."""
    found = []
    for line in said.splitlines():
        inode = re.search(r"\bino:(\d+)", line)
        received = re.search(r"\bbytes_received:(\d+)", line)
        if inode is not None:
            found.append((int(inode[1]), int(received[1]) if received else 0))
    return found


class Received:
    """Adds up what connections receive that come and go. Pure."""

    def __init__(self) -> None:
        self._last: Mapping[int, int] | None = None
        self.total = 0

    def look(self, by_connection: Mapping[int, int]) -> None:
        """The first look is where it begins; later a connection that is new began at 0."""
        if self._last is not None:
            self.total += sum(
                count - self._last.get(inode, 0) for inode, count in by_connection.items()
            )
        self._last = by_connection


def sockets(pid: int) -> frozenset[int]:
    """Inodes of the sockets that a process has open; none, if it has ended."""
    inodes = set()
    try:
        every = [*Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        every = []
    for opened in every:
        try:
            target = str(opened.readlink())
        except OSError:
            # Closed meanwhile.
            continue
        if found := re.fullmatch(r"socket:\[(\d+)\]", target):
            inodes.add(int(found[1]))
    return frozenset(inodes)
