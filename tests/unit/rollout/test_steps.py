"""What the status tells of a rollout that is over at once."""

from collections.abc import Iterator

import pytest
import structlog

from support.played_cluster import Engine, PlayedCluster

OLD = "vllm/vllm-openai:v0.32.0"
NEW = "vllm/vllm-openai:v0.32.1"


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("stage", ["Settling", "RolledBack"])
async def test_after_a_revert_the_vetoed_revision_is_not_told_to_be_complete(stage: str) -> None:
    cluster = PlayedCluster({"replicas": 3}, {NEW: Engine(crashes=True)})
    await cluster.settle()
    cluster.edit({"engine.image": NEW})
    await cluster.run(7200, until=lambda: cluster.stage == stage and cluster.ready() == {"A": 3})
    stable = cluster.harness.status["rollout"]["stable"]
    cluster.edit({"engine.image": OLD})
    await cluster.run(3600, until=lambda: cluster.stage == "None" and cluster.ready() == {"A": 3})
    rollout = cluster.harness.status["rollout"]
    told = rollout["revision"], rollout["stage"], rollout["reason"]
    assert told == (stable, "Complete", "Reverted")
