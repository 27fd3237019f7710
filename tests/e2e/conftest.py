"""One cluster, one chart, one fleet of two real engines, for all end-to-end tests."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from rich.progress import Progress

from e2e import newcomer
from local_cluster.cluster import LocalCluster
from local_cluster.control_plane.obtain import ensure_binaries
from local_cluster.demo.stage import DemoStage, on_stage
from local_cluster.engine.setup import ensure_engine
from local_cluster.helm import find_helm
from support.terminal import Terminal, terminal_in


@pytest.fixture(scope="session")
async def cluster() -> AsyncIterator[LocalCluster]:
    ensure_engine()
    async with LocalCluster.start("e2e") as cluster:
        yield cluster


@pytest.fixture(scope="session")
async def terminal(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """Where the quickstart is typed."""
    with Progress() as progress:
        binaries = await asyncio.to_thread(ensure_binaries, progress)
    helm = await asyncio.to_thread(find_helm)
    folder = tmp_path_factory.mktemp("checkout")
    return terminal_in(folder, cluster.kubeconfig, helm, binaries)


@pytest.fixture(scope="session")
async def stage(cluster: LocalCluster, terminal: Terminal) -> AsyncIterator[DemoStage]:
    """The chart installed and the example serving, as the quickstart says."""
    async with on_stage(cluster) as stage:
        await newcomer.sets_the_stage(terminal, stage)
        yield stage
