from collections.abc import AsyncIterator

import pytest

from fathom.runtime.loops import Loops
from support.bench import AT_ONCE, Bench, bench, quiet_logs

__all__ = ["bench", "quiet_logs"]


@pytest.fixture
async def loops(bench: Bench) -> AsyncIterator[Loops]:
    loops = Loops(bench.world, AT_ONCE, steady_s=bench.clock.steady_s)
    yield loops
    await loops.stop()
