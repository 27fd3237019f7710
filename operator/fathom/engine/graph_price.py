"""What live depth costs in CUDA graphs, and where they would not fit together. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fathom.api.accelerators import NVIDIA, preset_for
from fathom.api.choices import Method
from fathom.api.problem import Problem
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.capture_sizes import ceiling, sets_graphs
from fathom.engine.cuda_graphs import Graphs
from fathom.engine.depth_set import WIDEST_GRID, capture_sizes
from fathom.engine.profile import EngineProfile

_HOPPER: Final = 9
"""The `compute_capability` of H100 and H200."""
_PLAN_NOTHING: Final = frozenset(
    {"flashinfer", "flashinfer_mla", "tokenspeed_mla", "triton_attn", "triton_mla"}
)
"""Attention backends that plan nothing by request, or read rows that vLLM has set to zero."""
_TOLD: Final = 3
"""Batches that a refusal names."""
_DRAFTS_AFTER_THE_TARGET: Final = frozenset({Method.EAGLE, Method.EAGLE3, Method.MTP})
"""Whose first pass goes over the tokens of the target's step, with graphs of the same sizes."""
_AT_ONE_DEPTH: Final = "with tuning.mode Static there is one depth, and nothing to fit"


@dataclass(frozen=True, slots=True)
class GraphPrice:
    """What live depth costs in graphs."""

    live: Graphs
    static: Graphs
    """Of the same engine without live depth, at `tokens`."""
    counts_draft: bool
    """Whether the draft's graphs are known: those of EAGLE and MTP drafts."""

    @property
    def captured(self) -> tuple[int, int]:
        """How many graphs live depth captures, and how many the engine would have without."""
        live, static = self.live.captured, self.static.captured
        return (live.total, static.total) if self.counts_draft else (live.target, static.target)


def graph_price(engine: EngineProfile) -> GraphPrice | str:
    """What an engine captures and replays; or why that is not known.

    Args:
        engine: whose depth is live.
    """
    if not engine.start.captures_graphs:
        return "none, as --enforce-eager asks"
    if sets_graphs(engine.arguments):
        return "as engine.args set them, which may leave depths without full ones"
    return GraphPrice(
        live=engine.graphs,
        static=engine.static_graphs,
        counts_draft=engine.spec.draft.method in _DRAFTS_AFTER_THE_TARGET,
    )


def graph_problems(engine: EngineProfile) -> Iterator[Problem]:
    """Graphs of depths that would make an engine's steps take seconds (`Graphs.strays`)."""
    spec, start = engine.spec, engine.start
    if not (engine.live and start.captures_graphs and _drafts_over_the_targets(spec)):
        return
    strays = engine.graphs.strays
    if not strays:
        return
    tokens = spec.speculation.tokens
    depth = tokens if tokens in strays else max(strays)
    batches = strays[depth]
    what = (
        f"vLLM's CUDA graphs of these depths do not fit together: at depth {depth} and batch "
        f"{_some(batches)}, drafts replay a graph of more requests than the step has, and such "
        "steps took seconds on an H100"
    )
    if capture_sizes(engine.depths, engine.max_num_seqs, ceiling(spec.node_pool)):
        yield Problem(
            "spec.engine.args",
            f"{what}: take out the sizes of graphs, or write --compilation-config as one object of "
            f"JSON, and Fathom adds sizes that fit; {_AT_ONE_DEPTH}.",
        )
    else:
        yield Problem(
            "spec.speculation.depths",
            f"{what}: leave them out, or name depths of which each, plus one, divides one number "
            f"up to {WIDEST_GRID}; {_AT_ONE_DEPTH}.",
        )


def _some(batches: Sequence[int]) -> str:
    some = ", ".join(map(str, batches[:_TOLD]))
    return f"{some}, …" if len(batches) > _TOLD else some


def _drafts_over_the_targets(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether a draft's first pass may go by a plan that attention made for the target's step.

    Of NVIDIA's GPUs that is Hopper's, where FlashAttention 3 and FlashMLA keep a plan by request
    for their graphs. Read in vllm/v1/attention/backends, 0.32. Custom may be Hopper.
    """
    preset = preset_for(spec.node_pool)
    may_be_hopper = preset.vendor is NVIDIA and preset.compute_capability in {0, _HOPPER}
    plans = spec.engine.attention_backend.lower() not in _PLAN_NOTHING
    return may_be_hopper and plans and spec.draft.method in _DRAFTS_AFTER_THE_TARGET
