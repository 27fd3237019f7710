from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from fathom.runtime.loops import Loops
from support.bench import Bench


@pytest.fixture
async def bench() -> Bench:
    """Two replicas, up and at rest."""
    bench = Bench({"replicas": 2})
    await bench.until_ready()
    bench.kube.writes.clear()
    return bench


@pytest.fixture
async def loops(bench: Bench) -> AsyncIterator[Loops]:
    loops = Loops(bench.world, settle_s=0, steady_s=bench.clock.steady_s)
    yield loops
    await loops.stop()


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    """What the loop logs is not what these tests are about."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()
