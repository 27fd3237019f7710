"""One cluster, one chart, one fleet of two real engines, for all end-to-end tests."""

import sys
from collections.abc import AsyncIterator

import pytest

from fathom_local.cluster import LocalCluster
from fathom_local.demo.stage import Stage, set_stage
from fathom_local.engine.environment import ensure_engine_environment
from fathom_local.paths import cache_dir


@pytest.fixture(scope="session")
async def stage() -> AsyncIterator[Stage]:
    """The chart installed by Helm, the example applied and serving."""
    ensure_engine_environment(cache_dir())
    async with (
        LocalCluster.start("e2e") as cluster,
        set_stage(cluster, lambda line: print(line, file=sys.stderr)) as stage,
    ):
        yield stage
