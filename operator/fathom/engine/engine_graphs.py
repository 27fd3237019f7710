"""The CUDA graphs of the engine that a spec asks for, and those it would have at a fixed depth.

By vLLM's own rules (`fathom.engine.cuda_graphs`): computed. An H100 captured as many. Pure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from fathom.api.accelerators import NVIDIA, preset_for
from fathom.api.choices import Method
from fathom.api.problem import Problem
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.capability import live_depth
from fathom.engine.capture_sizes import (
    added_sizes,
    ceiling,
    sets_graphs,
    stated_sizes,
)
from fathom.engine.cuda_graphs import Captured, Graphs, default_sizes
from fathom.engine.depth import DepthRange, Schedule, depth_at
from fathom.engine.depth_set import WIDEST_GRID, capture_sizes, named_depths
from fathom.engine.graph_mode import stated_mode
from fathom.engine.model_runner import captures_graphs
from fathom.engine.startup_schedule import startup_schedule
from fathom.engine.stated_args import (
    max_batch,
    stated_performance_mode,
    stated_tokens_per_step,
)

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


def graph_price(spec: SpeculativeDeploymentSpec) -> GraphPrice | str:
    """What the engine of a live spec captures and replays; or why that is not known.

    Args:
        spec: whose depth is live.
    """
    if not captures_graphs(spec):
        return "none, as --enforce-eager asks"
    if sets_graphs(spec):
        return "as engine.args set them, which may leave depths without full ones"
    return GraphPrice(
        live=_live(spec),
        static=_static(spec),
        counts_draft=spec.draft.method in _DRAFTS_AFTER_THE_TARGET,
    )


def captured_by(spec: SpeculativeDeploymentSpec) -> Captured | None:
    """How many graphs the engine captures at its start; None: not known."""
    if not captures_graphs(spec):
        return Captured(0, 0, 0, 0)
    if sets_graphs(spec) or not spec.drafts:
        return None
    return (_live(spec) if live_depth(spec) else _static(spec)).captured


def graph_problems(spec: SpeculativeDeploymentSpec) -> Iterator[Problem]:
    """Graphs of depths that would make an engine's steps take seconds (`Graphs.strays`)."""
    if not (live_depth(spec) and captures_graphs(spec) and _drafts_over_the_targets(spec)):
        return
    strays = _live(spec).strays
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
    if capture_sizes(named_depths(spec), max_batch(spec), ceiling(spec.node_pool)):
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


def _live(spec: SpeculativeDeploymentSpec) -> Graphs:
    most, deepest = max_batch(spec), spec.speculation.effective_max_tokens
    live = startup_schedule(named_depths(spec), most)
    sizes = added_sizes(spec, most) or stated_sizes(spec) or _default_sizes(spec, live, deepest)
    return _graphs(spec, live, deepest, sizes)


def _static(spec: SpeculativeDeploymentSpec) -> Graphs:
    tokens = spec.speculation.tokens
    static = (DepthRange(1, max_batch(spec), tokens),)
    return _graphs(spec, static, tokens, _default_sizes(spec, static, tokens))


def _graphs(
    spec: SpeculativeDeploymentSpec, schedule: Schedule, deepest: int, sizes: tuple[int, ...]
) -> Graphs:
    graphs = Graphs(
        mode=stated_mode(spec.engine.args).mode,
        sizes=sizes,
        max_num_seqs=max_batch(spec),
        depths=frozenset(part.depth for part in schedule),
        deepest=deepest,
        any_length=spec.verifies_adaptively,
    )
    return _once(graphs)


@lru_cache(maxsize=256)
def _once(graphs: Graphs) -> Graphs:
    """The same one for equal ones: it is asked in every pass, and counts its graphs once."""
    return graphs


def _default_sizes(
    spec: SpeculativeDeploymentSpec, schedule: Schedule, deepest: int
) -> tuple[int, ...]:
    # Larger batches than the largest size decide nothing.
    largest = min(max_batch(spec), ceiling(spec.node_pool))
    return default_sizes(
        [depth_at(schedule, batch) for batch in range(1, largest + 1)],
        deepest,
        ceiling=ceiling(spec.node_pool),
        max_num_batched_tokens=stated_tokens_per_step(spec) or None,
        interactive=stated_performance_mode(spec) == "interactivity",
    )
