"""The cluster's nodes, for all resources whose pods find none, read once and not once for each."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from fathom.adapters.ports import Clock, KubeError
from fathom.core.cluster.observed import ObservedNode
from fathom.core.times import is_over

LASTS_S: Final = 30.0

Nodes = tuple[ObservedNode, ...]

_log: Final = structlog.get_logger(__name__)


class NodeCache:
    """At most one list of all nodes in half a minute, and only while somebody asks."""

    def __init__(self, read: Callable[[], Awaitable[Nodes]], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._nodes: Nodes = ()
        self._read_at_s = float("-inf")
        self._reading = asyncio.Lock()

    async def get(self) -> Nodes:
        """The nodes, as they were last seen where they cannot be read; none: they never were.

        Never raises: they explain why a pod finds no place, and nothing is decided on them.
        """
        async with self._reading:
            if is_over(self._read_at_s, LASTS_S, self._clock.now_s()):
                try:
                    self._nodes = await self._read()
                except KubeError as error:
                    _log.warning("nodes not read", error=error.message, status=error.status)
                # A failure lasts as long: a thousand resources would each wait for the next one.
                self._read_at_s = self._clock.now_s()
            return self._nodes
