"""Benches for tests."""

from collections.abc import Mapping
from typing import Any

from fathom.bench.job import BenchProgram
from fathom.bench.planning import PlannedBench, planned
from fathom.bench.request import BenchRequest
from fathom.engine.plugin import PluginBundle
from fathom.resource import SpeculativeDeployment
from fathom_measure.measure import PREFIX
from manifest_samples import resource

BUNDLE = PluginBundle({"fathom_vllm/__init__.py": "plugin"}, "0123456789ab")
PROGRAM = BenchProgram({"__main__.py": "main", "fathom_measure/plan.py": "plan"}, "")


def sample(changes: Mapping[str, Any] | None = None) -> SpeculativeDeployment:
    return resource(changes, uid="uid-of-kimi")


def bench_of(request: BenchRequest | None = None, **changes: Any) -> PlannedBench:
    return planned(sample(changes), request or BenchRequest(), BUNDLE)


def log(*lines: str) -> str:
    return "".join(f"{PREFIX}{line}\n" for line in lines)


def result_line(
    depth: int | None,
    rate: float,
    *,
    data: str = "chats",
    concurrency: int = 1,
    completed: int = 8,
    failed: int = 0,
    drafts: int = 0,
    survival: tuple[float, ...] = (),
) -> str:
    """As the program says it."""
    tokens = completed * 9
    shown = "null" if depth is None else str(depth)
    return (
        f'{{"said":"result","data":"{data}","concurrency":{concurrency},"depth":{shown},'
        f'"result":{{"completed":{completed},"failed":{failed},"total_input_tokens":{tokens},'
        f'"output_throughput":{rate},"mean_tpot_ms":4.0,"mean_ttft_ms":20.0,'
        f'"spec_decode_num_drafts":{drafts},'
        f'"spec_decode_per_position_acceptance_rates":{list(survival)}}}}}'
    )
