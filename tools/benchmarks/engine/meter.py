"""What the operator itself would read of an engine, at any moment."""

import asyncio
from typing import Final

import aiohttp

from fathom.adapters.pod_metrics import PodMetrics
from fathom.adapters.ports import Clock, PodEndpoint
from fathom.measurement.counters import PodCounters
from fathom_vllm.counts import read_counts
from local_cluster.engine.process import EngineProcess
from local_cluster.errors import LocalClusterError

_IN_FORCE_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.02
SETTLE_S: Final = 0.3
"""After a depth came into force: steps with drafts of the old one are still in flight."""


class Meter:
    """Looks at one engine's /metrics through the operator's own adapter."""

    def __init__(self, engine: EngineProcess, http: aiohttp.ClientSession, clock: Clock) -> None:
        self._engine = engine
        self._metrics = PodMetrics(http, clock)
        self._endpoint = PodEndpoint(
            namespace="local", pod=engine.setup.pod_name, ip="127.0.0.1", port=engine.port
        )

    async def look(self) -> PodCounters:
        """The counters, stamped by the clock.

        Raises:
            LocalClusterError: they cannot be read.
        """
        sample = await self._metrics.sample([self._endpoint])
        if sample.failures:
            raise LocalClusterError(
                f"{sample.failures[0].cause}. "
                f"The end of the engine's log:\n{self._engine.log_tail(15)}"
            )
        return sample.counters[0]


async def in_force(engine: EngineProcess, generation: int) -> None:
    """Wait until steps are scheduled by this generation. Needs traffic: an idle engine has none.

    Raises:
        LocalClusterError: it did not come into force.
    """
    try:
        async with asyncio.timeout(_IN_FORCE_TIMEOUT_S):
            while True:
                # The plugin's own file: a scrape costs the engine more than a step.
                counts = read_counts(str(engine.counters_path))
                if counts is not None and counts.generation == generation:
                    break
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise LocalClusterError(
            f"Generation {generation} of the depth document was not in force within "
            f"{_IN_FORCE_TIMEOUT_S:.0f} s. The end of the engine's log:\n{engine.log_tail(15)}"
        ) from None
    await asyncio.sleep(SETTLE_S)


class Generations:
    """Numbers for depth documents, which only grow, whoever writes one. An iterator."""

    def __init__(self) -> None:
        self.last = 0

    def __iter__(self) -> "Generations":
        return self

    def __next__(self) -> int:
        self.last += 1
        return self.last

    def taken(self, generation: int) -> None:
        """Somebody chose this one, and later ones must be higher."""
        self.last = max(self.last, generation)
