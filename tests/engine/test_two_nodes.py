"""Real vLLM over two nodes, both on loopback: only the leader's rank reads the depth, all follow.

What is at stake: a rank that disagreed about depth would hang the others or change what they say.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.test_live_engine import gained, requests_done, set_depth
from local_cluster.engine.language import EASY, HARD
from local_cluster.engine.process import EngineProcess, EngineSetup
from local_cluster.engine.scrape import scrape
from local_cluster.engine.traffic import LoadGenerator, Phase
from support.waiting import GUARD_S

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def master_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def leader(
    setup: EngineSetup, master_port: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineProcess]:
    """An engine of two ranks, one on each node; its worker has no depth document."""
    directory = tmp_path_factory.mktemp("two-nodes")
    ranks = ("--tensor-parallel-size", "2", "--nnodes", "2")
    meet = ("--master-addr", "127.0.0.1", "--master-port", str(master_port))
    leader = EngineProcess(
        replace(setup, command=(*setup.command, *ranks, *meet, "--node-rank", "0")), directory
    )
    command = (*setup.command, *ranks, *meet, "--node-rank", "1", *setup.arguments(leader.port))
    with (directory / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [*command, "--headless"],
            env=worker_environment(setup, directory),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        leader.start()
        yield leader
    finally:
        leader.stop()
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(GUARD_S)


def worker_environment(setup: EngineSetup, directory: Path) -> dict[str, str]:
    """As a worker's pod has it: the plugin, and nothing of the depth."""
    return {**os.environ, **setup.variables, "PYTHONPATH": str(directory / "plugin")}


async def test_depth_changes_live_on_all_ranks(
    leader: EngineProcess, generations: Iterator[int]
) -> None:
    before = await scrape(leader.base_url)
    async with LoadGenerator(leader.base_url, leader.model, seed=12) as load:
        for number, depth in enumerate((3, 7, 0, 5, 1)):
            load.set_phase(Phase((EASY, HARD)[number % 2], concurrency=4, max_tokens=60))
            await set_depth(leader, generations, depth)
            await requests_done(load, 4)
    after = await scrape(leader.base_url)

    # Each answer is compared with what the model says without speculation.
    assert [result.error for result in load.results if not result.ok] == []
    assert len(load.results) >= 20
    assert gained(before, after, "fathom_hook_errors_total") == 0
    depths = set(after.labels("fathom_steps_total", "depth"))
    assert {"0", "1", "3", "5", "7"} <= depths


async def test_the_port_where_ranks_meet_stays_open_for_probes(
    leader: EngineProcess, master_port: int
) -> None:
    for _ in range(50):
        socket.create_connection(("127.0.0.1", master_port), GUARD_S).close()
    async with LoadGenerator(leader.base_url, leader.model, seed=13) as load:
        load.set_phase(Phase(EASY, concurrency=2, max_tokens=40))
        await requests_done(load, 4)

    assert [result.error for result in load.results if not result.ok] == []
