"""The operator's rights on a real API server: it uses each one that the chart grants, and no more.

What misses each when it is taken away: `make rbac-mutants`.
"""

import asyncio
from pathlib import Path

import pytest

from local_cluster.cluster import LocalCluster
from rights.granted import CLUSTER_RULES, LEASE_RULES, Right, rights_in
from rights.mutants import Stage
from rights.scenarios import SCENARIOS, SERVES_BUDGETS, foreign_kinds
from support.local_cluster import TestNamespace
from support.waiting import GUARD_S

pytestmark = pytest.mark.cluster

GRANTED = rights_in((*CLUSTER_RULES, *LEASE_RULES))


async def test_each_right_is_used_and_nothing_is_refused(
    local_cluster: LocalCluster, namespace: TestNamespace, tmp_path: Path
) -> None:
    async with foreign_kinds(namespace):
        stage = Stage(local_cluster, tmp_path, patience_seconds=GUARD_S, at_once=len(SCENARIOS))
        ran = await asyncio.gather(*(stage.play(name) for name in SCENARIOS))

    assert [each.refused for each in ran] == [0] * len(SCENARIOS)
    used = frozenset[Right]().union(*(each.used for each in ran))
    served = {
        right for right in GRANTED if right.group != "policy" or namespace.release >= SERVES_BUDGETS
    }
    assert used == served
