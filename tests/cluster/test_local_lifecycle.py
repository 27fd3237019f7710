"""Starting and ending clusters."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from local_cluster.cluster import LocalCluster, down, up
from local_cluster.processes import ProcessRecord
from local_cluster.state import ClusterState, load_state
from support.local_cluster import is_ready, shell_pod
from support.waiting import until

pytestmark = pytest.mark.cluster


def traces(state: ClusterState) -> list[str]:
    """Interfaces, routes and mounts of a cluster."""
    routes = subprocess.run(
        ["ip", "-4", "route", "show", "table", "all"], capture_output=True, text=True, check=True
    )
    names = (str(state.network.pods), str(state.network.services), str(state.directory))
    lines = [*routes.stdout.splitlines(), *Path("/proc/self/mountinfo").read_text().splitlines()]
    found = [line for line in lines if any(name in line for name in names)]
    links = [path.name for path in Path("/sys/class/net").iterdir()]
    return found + [link for link in links if link.startswith(state.network.bridge)]


def descendants_and_self(pids: list[int]) -> set[int]:
    found = set(pids)
    for pid in pids:
        found |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
    return found


START = """
import asyncio, sys
from local_cluster.cluster import LocalCluster

async def main() -> None:
    async with LocalCluster.start(sys.argv[1], nodes=0):
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def killed_while_starting(name: str) -> tuple[ProcessRecord, ...]:
    """What a command had started that was killed once the first of it ran, and left behind."""
    command = await asyncio.create_subprocess_exec(sys.executable, "-c", START, name)
    try:

        async def recorded() -> tuple[ProcessRecord, ...]:
            state = load_state(name)
            return () if state is None else state.processes

        await until(recorded, "a process of the cluster is recorded")
    finally:
        command.kill()
        await command.wait()
    left = await recorded()
    assert all(record.find() for record in left)
    return left


async def test_down_leaves_nothing_behind_and_clusters_do_not_meet(
    local_cluster: LocalCluster,
) -> None:
    name = f"second-{os.getpid()}"
    left = await killed_while_starting(name)
    async with LocalCluster.start(name, nodes=1) as second:
        assert [record.name for record in left if record.find()] == []
        assert second.state.network.pods != local_cluster.state.network.pods
        async with second.api() as api:
            pods = "/api/v1/namespaces/default/pods"
            pod = shell_pod("left-behind", 'trap "" TERM; while true; do sleep 1; done')
            pod["spec"]["containers"][0]["volumeMounts"] = [
                {"name": "memory", "mountPath": "/dev/shm"}
            ]
            pod["spec"]["volumes"] = [{"name": "memory", "emptyDir": {"medium": "Memory"}}]
            await api.request("POST", pods, body=pod)

            async def ready() -> bool:
                return is_ready(await api.request("GET", f"{pods}/left-behind"))

            await until(ready, "the pod is ready")
        state = second.state
        pids = descendants_and_self([record.pid for record in state.processes])
        assert len(pids) > len(state.processes)
        assert state.memory_directory.exists()
        assert traces(state)
    assert traces(state) == []
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []
    assert not state.directory.exists()
    assert not state.memory_directory.exists()
    assert load_state(state.name) is None
    assert local_cluster.state.running


async def test_up_finds_a_running_cluster_and_down_is_idempotent(
    local_cluster: LocalCluster,
) -> None:
    before = local_cluster.state
    await up(local_cluster.name)
    assert local_cluster.state == before
    assert not await asyncio.to_thread(down, "never-started")
