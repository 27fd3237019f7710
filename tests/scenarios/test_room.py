"""By default a canary asks for room, and takes a replica's place where there is none."""

from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from support.played_cluster import Engine, PlayedCluster

NEW = "vllm/vllm-openai:v0.32.1"
BY_DEFAULT = {"replicas": 2, "rollout.maxSurge": 1, "rollout.canaryMinutes": 2}


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


async def edited(nodes: int, **changes: Any) -> PlayedCluster:
    """Two replicas of A, edited to B."""
    cluster = PlayedCluster({**BY_DEFAULT, **changes}, {NEW: Engine()}, nodes=nodes)
    await cluster.settle()
    cluster.edit({"engine.image": NEW})
    return cluster


def degraded(cluster: PlayedCluster) -> str:
    return str(cluster.harness.condition("Degraded")["reason"])


def progressing(cluster: PlayedCluster) -> tuple[str, str]:
    found = cluster.harness.condition("Progressing")
    return found["reason"], found["message"]


async def test_where_a_node_has_room_no_replica_goes_while_the_canary_loads() -> None:
    cluster = await edited(nodes=3)
    await cluster.run(900, until=lambda: cluster.ready().get("B") == 1)
    assert cluster.least_ready == 2
    assert "TakesReplica" not in cluster.events()


@pytest.mark.parametrize("replicas", [1, 2])
async def test_without_room_a_replica_goes_after_the_question_and_its_price(replicas: int) -> None:
    cluster = await edited(nodes=replicas, replicas=replicas)
    await cluster.run(300, until=lambda: progressing(cluster)[0] == "AwaitingCapacity")
    assert f"capacity {replicas - 1} of {replicas} for about 5 minutes" in progressing(cluster)[1]
    await cluster.run(480)
    assert (cluster.least_ready, degraded(cluster)) == (replicas, "AsExpected")
    await cluster.run(300, until=lambda: cluster.least_ready == replicas - 1)
    assert f"capacity {replicas - 1} of {replicas}" in cluster.told("TakesReplica")
    await cluster.run(3600, until=lambda: cluster.stage == "None")
    assert cluster.ready() == {"B": replicas}
    assert (cluster.least_ready, cluster.most_held) == (replicas - 1, replicas)
    assert max(sum(asked.values()) for _, asked in cluster.steps) <= replicas + 1


async def test_who_waits_keeps_all_replicas_until_a_node_comes() -> None:
    cluster = await edited(nodes=2, **{"rollout.whenNoCapacity": "Wait"})
    await cluster.run(4 * 3600)
    assert (cluster.stage, cluster.ready(), cluster.least_ready) == ("Canary", {"A": 2}, 2)
    assert (progressing(cluster)[0], degraded(cluster)) == ("NoCapacity", "PodUnschedulable")
    cluster.nodes = 3
    await cluster.run(3600, until=lambda: cluster.stage == "None")
    assert cluster.ready() == {"B": 2}
