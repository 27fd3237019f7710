"""How the ranks of a simulated engine over several nodes hold together, as vLLM's do.

All meet at the leader's master port, the leader answers once all have come, and none outlives the
others: what vLLM's process group does, without the tensors.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

RETRY_S = 0.2
LONGEST_LINE = 64


@dataclass(frozen=True, slots=True)
class Rank:
    """Where one process stands in its group."""

    nodes: int = 1
    rank: int = 0
    address: str = "127.0.0.1"
    """The leader's."""
    port: int = 29501


class Meeting:
    """The leader's side."""

    def __init__(self, nodes: int) -> None:
        self._missing = set(range(1, nodes))

    @property
    def complete(self) -> bool:
        return not self._missing

    @asynccontextmanager
    async def held(self, port: int) -> AsyncIterator[None]:
        """Keeps the door open; a worker that leaves ends the process."""
        server = await asyncio.start_server(self._met, "0.0.0.0", port)  # noqa: S104 - in a pod
        try:
            yield
        finally:
            server.close()

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = await reader.readline()
        if not said.strip().isdigit():
            writer.close()  # somebody only looked whether the door is open, as probes do
            return
        rank = int(said)
        self._missing.discard(rank)
        await reader.read()
        raise SystemExit(f"simulated engine: rank {rank} is gone")


async def follow(rank: Rank) -> None:
    """A headless worker: joins the leader and stays until it is gone."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(rank.address, rank.port)
        except OSError:
            await asyncio.sleep(RETRY_S)
            continue
        writer.write(b"%d\n" % rank.rank)
        await reader.read(LONGEST_LINE)
        raise SystemExit("simulated engine: the leader is gone")
