"""What CUDA graphs are estimated to cost."""

import pytest

from fathom.engine.cuda_graphs import Captured
from fathom.validation.gpu_memory_checks import graph_cost
from manifest_samples import resource

MIB = 1 << 20


def test_a_graph_of_the_target_costs_memory_and_time_and_one_of_the_draft_a_little_memory() -> None:
    found = graph_cost(
        Captured(target_full=100, target_piecewise=20, draft_full=300, draft_piecewise=20)
    )
    assert found.memory_bytes == (120 * 24 + 320) * MIB
    assert (found.least_seconds, found.most_seconds) == pytest.approx((6.6, 51.6))


@pytest.mark.parametrize("flag", ["--enforce-eager", "-O0"])
def test_what_captures_nothing_costs_nothing(flag: str) -> None:
    none = resource({"engine.args": [flag]}).engine.captured
    assert none is not None
    assert graph_cost(none).memory_bytes == 0


def test_a_fixed_depth_captures_less_and_what_the_user_sets_is_not_known() -> None:
    live = resource({}).engine.captured
    static = resource({"speculation.tuning.mode": "Static"}).engine.captured
    assert live is not None
    assert static is not None
    assert static.total < live.total
    sizes = {"engine.args": ["--cudagraph-capture-sizes", "8", "16"]}
    assert resource(sizes).engine.captured is None
    assert resource({"speculation.drafting": "Disabled"}).engine.captured is None
