from collections.abc import AsyncIterator

import pytest

from fathom.runtime.loop_registry import Loops
from support.loop_harness import AT_ONCE, LoopHarness, harness, quiet_logs

__all__ = ["harness", "quiet_logs"]


@pytest.fixture
async def loops(harness: LoopHarness) -> AsyncIterator[Loops]:
    loops = Loops(harness.world, AT_ONCE, steady_s=harness.clock.steady_s)
    yield loops
    await loops.stop()
