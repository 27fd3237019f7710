"""One cluster, one chart, one fleet of two real engines, for all end-to-end tests."""

import sys
from collections.abc import AsyncIterator

import pytest

from fathom_local.cluster import LocalCluster
from fathom_local.demo.stage import DemoStage, set_stage
from fathom_local.engine.setup import ensure_engine


@pytest.fixture(scope="session")
async def stage() -> AsyncIterator[DemoStage]:
    """The chart installed by Helm, the example applied and serving."""
    ensure_engine()
    async with (
        LocalCluster.start("e2e") as cluster,
        set_stage(cluster, lambda line: print(line, file=sys.stderr)) as stage,
    ):
        yield stage
