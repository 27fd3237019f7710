from typing import Any

import pytest

from manifest_samples import resource


@pytest.mark.parametrize(
    ("changes", "nodes"),
    [
        ({"engine.tensorParallelSize": 1}, 1),
        ({}, 1),
        ({"engine.tensorParallelSize": 8}, 2),
        ({"engine.tensorParallelSize": 16}, 4),
        ({"engine.pipelineParallelSize": 2}, 2),
        ({"engine.tensorParallelSize": 2, "engine.pipelineParallelSize": 2}, 1),
        ({"engine.tensorParallelSize": 8, "nodePool.accelerator": "H200"}, 1),
        ({"engine.dataParallelSize": 4}, 4),
        ({"engine.tensorParallelSize": 1, "engine.dataParallelSize": 4}, 1),
    ],
    ids=str,
)
def test_a_replica_takes_as_many_nodes_as_its_gpus_fill(
    changes: dict[str, Any], nodes: int
) -> None:
    layout = resource(changes).engine.layout

    assert layout.nodes == nodes
    assert layout.spans_nodes == (nodes > 1)


@pytest.mark.parametrize(("accelerator", "domain"), [("H200", True), ("MI300X", False)])
def test_gpus_without_nvlink_share_a_key_and_no_domain(accelerator: str, *, domain: bool) -> None:
    spread = {"engine.tensorParallelSize": 16, "nodePool.topologyKey": "rack"}
    layout = resource({**spread, "nodePool.accelerator": accelerator}).engine.layout

    assert layout.domain_key == "rack"
    assert layout.needs_compute_domain is domain
