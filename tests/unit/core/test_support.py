from typing import Any

import pytest

from fathom.core.support import not_yet_supported
from manifest_samples import resource


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"engine.tensorParallelSize": 8}, "spec.engine.tensorParallelSize"),
        ({"engine.pipelineParallelSize": 2}, "spec.engine.tensorParallelSize"),
        ({"engine.dataParallelSize": 2}, "spec.engine.dataParallelSize"),
        ({"speculation.tuning.actuation": "Rollout"}, "spec.speculation.tuning.actuation"),
    ],
)
def test_what_is_not_built_is_said_and_not_guessed(changes: dict[str, Any], field: str) -> None:
    problem = not_yet_supported(resource(changes).spec)

    assert problem is not None
    assert problem.field == field
    assert "not supported yet" in problem.message


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"engine.tensorParallelSize": 2, "engine.pipelineParallelSize": 2},
        {"engine.tensorParallelSize": 8, "nodePool.accelerator": "H200"},
        {"speculation.tuning.actuation": "Live"},
        {"rollout.refresh": "Auto"},
    ],
)
def test_what_fits_one_node_is_supported(changes: dict[str, Any]) -> None:
    assert not_yet_supported(resource(changes).spec) is None
