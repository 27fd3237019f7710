"""The CUDA graphs of the engine that a spec asks for, and those it would have at a fixed depth.

By vLLM's own rules (`fathom.engine.cuda_graphs`): computed. An H100 captured as many. Pure.
"""

from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.capture_sizes import ceiling, stated_sizes
from fathom.engine.cuda_graphs import Graphs, default_sizes
from fathom.engine.depth import DepthRange, Schedule, depth_at
from fathom.engine.start import EngineStart
from fathom.engine.stated_args import performance_mode


def live_graphs(
    spec: SpeculativeDeploymentSpec,
    start: EngineStart,
    schedule: Schedule,
    added: tuple[int, ...],
) -> Graphs:
    """Those of an engine whose depth is live.

    Args:
        spec: what is asked for.
        start: how its engine starts.
        schedule: that it starts with.
        added: sizes that the operator asks for; none: the user's, or else vLLM's own.
    """
    deepest = spec.speculation.effective_max_tokens
    sizes = added or stated_sizes(start) or _default_sizes(spec, start, schedule, deepest)
    return _graphs(spec, start, schedule, deepest, sizes)


def static_graphs(spec: SpeculativeDeploymentSpec, start: EngineStart) -> Graphs:
    """Those of the same engine at `tokens`."""
    tokens = spec.speculation.tokens
    schedule = (DepthRange(1, start.max_num_seqs, tokens),)
    return _graphs(spec, start, schedule, tokens, _default_sizes(spec, start, schedule, tokens))


def _graphs(
    spec: SpeculativeDeploymentSpec,
    start: EngineStart,
    schedule: Schedule,
    deepest: int,
    sizes: tuple[int, ...],
) -> Graphs:
    return Graphs(
        mode=start.graph_mode.mode,
        sizes=sizes,
        max_num_seqs=start.max_num_seqs,
        depths=frozenset(part.depth for part in schedule),
        deepest=deepest,
        any_length=spec.verifies_adaptively,
    )


def _default_sizes(
    spec: SpeculativeDeploymentSpec, start: EngineStart, schedule: Schedule, deepest: int
) -> tuple[int, ...]:
    # Larger batches than the largest size decide nothing.
    largest = min(start.max_num_seqs, ceiling(spec.node_pool))
    return default_sizes(
        [depth_at(schedule, batch) for batch in range(1, largest + 1)],
        deepest,
        ceiling=ceiling(spec.node_pool),
        max_num_batched_tokens=start.token_budget or None,
        interactive=performance_mode(start.arguments) == "interactivity",
    )
