from typing import Any

import pytest

from fathom.api.conditions import Reason
from fathom.api.problem import Problem
from fathom.cluster.kinds import ALL, COMPUTE_DOMAIN, LEADER_WORKER_SET, Kind, ServedApis
from fathom.validation.candidate import Cluster, candidate_of
from fathom.validation.chain import errors_of
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
    def problems(served: ServedApis) -> tuple[Problem, ...]:
        cluster = Cluster(served=served, usable=usable)
        return errors_of(candidate_of(resource(changes), {}, cluster=cluster))

    if missing is None:
        assert problems(ServedApis()) == ()
        return
    (problem,) = problems(ServedApis())
    assert problem.reason is Reason.API_MISSING
    asked_by = {
        LEADER_WORKER_SET: "engine.tensorParallelSize",
        COMPUTE_DOMAIN: "nodePool.computeDomain",
    }
    assert problem.field == f"spec.{asked_by[missing]}"
    assert f"this cluster does not serve {missing.api_version}: install" in problem.message
    (forbidden,) = problems(ALL)
    assert f"may not list {missing.plural}.{missing.group}" in forbidden.message
