from typing import Any

import pytest

from fathom.api.conditions import Reason
from fathom.core.cluster.kinds import COMPUTE_DOMAIN, LEADER_WORKER_SET, Kind
from fathom.core.cluster.served import ALL, ServedApis
from fathom.core.support import obstacle_to
from manifest_samples import resource

TWO_TRAYS = {"engine.tensorParallelSize": 8}


@pytest.mark.parametrize(
    ("changes", "usable", "missing"),
    [
        ({}, (), None),
        (TWO_TRAYS, (LEADER_WORKER_SET, COMPUTE_DOMAIN), None),
        (TWO_TRAYS, (COMPUTE_DOMAIN,), LEADER_WORKER_SET),
        (TWO_TRAYS, (LEADER_WORKER_SET,), COMPUTE_DOMAIN),
        ({**TWO_TRAYS, "nodePool.computeDomain": "External"}, (LEADER_WORKER_SET,), None),
        ({**TWO_TRAYS, "nodePool.computeDomain": "Never"}, (LEADER_WORKER_SET,), None),
        # No NVLink between nodes, unless a label says so.
        (
            {"engine.tensorParallelSize": 16, "nodePool.accelerator": "H100"},
            (LEADER_WORKER_SET,),
            None,
        ),
        (
            {
                "engine.tensorParallelSize": 16,
                "nodePool.accelerator": "B200",
                "nodePool.topologyKey": "rack",
            },
            (LEADER_WORKER_SET,),
            COMPUTE_DOMAIN,
        ),
    ],
)
def test_groups_need_what_not_every_cluster_has(
    changes: dict[str, Any], usable: tuple[Kind, ...], missing: Kind | None
) -> None:
    layout = resource(changes).engine.layout
    obstacle = obstacle_to(layout, ServedApis(), usable)

    if missing is None:
        assert obstacle is None
        return
    assert obstacle is not None
    assert obstacle.reason is Reason.API_MISSING
    assert f"this cluster does not serve {missing.api_version}: install" in obstacle.problem.message
    forbidden = obstacle_to(layout, ALL, usable)
    assert forbidden is not None
    assert f"may not list {missing.plural}.{missing.group}" in forbidden.problem.message
