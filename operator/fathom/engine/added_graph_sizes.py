"""The sizes of CUDA graphs: those that are added to the command of a tunable engine, or others'.

By vLLM's own rules (`fathom.engine.cuda_graphs`): computed. An H100 captured as many. Pure.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from fathom.api.accelerators import DATA_CENTRE_BLACKWELL, preset_for
from fathom.api.spec import NodePoolSpec, SpeculativeDeploymentSpec
from fathom.engine.argument_parser import (
    EngineArguments,
    graphs_of_each_kind,
    is_count,
    performance_mode,
    token_budget,
)
from fathom.engine.cuda_graphs import CONFIG, Graphs, default_sizes, sizes_up_to, within
from fathom.engine.depth import DepthRange, Schedule, depth_at
from fathom.engine.depth_set import capture_sizes
from fathom.engine.start import EngineStart

CEILING: Final = 512
BLACKWELL_CEILING: Final = 1024
_MOST_TOKENS: Final = 16_384
"""Beyond which no size is looked at: twice the tokens of a step of vLLM's own on most GPUs."""
_LISTED, _LARGEST = "--cudagraph-capture-sizes", "--max-cudagraph-capture-size"
_KEYS: Final = frozenset({"cudagraph_capture_sizes", "max_cudagraph_capture_size"})


def added_sizes(start: EngineStart, depths: Sequence[int], pool: NodePoolSpec) -> tuple[int, ...]:
    """In tokens, ascending; none: nothing is captured, or vLLM or the arguments say for what.

    Args:
        start: of an engine whose depth is live.
        depths: those that it names.
        pool: where it runs.
    """
    stated = sets_graphs(start.arguments) or start.graph_mode.without_full
    if stated or not start.captures_graphs:
        return ()
    sizes = capture_sizes(depths, start.max_num_seqs, ceiling(pool))
    # vLLM drops those beyond, and warns.
    return within(start.token_budget or None, sizes)


def sets_graphs(arguments: EngineArguments) -> bool:
    """Whether the arguments say which sizes are captured, or leave no place to say it.

    An object that is written key by key takes the place of all others, wherever it stands.
    """
    config, stated = arguments.object(CONFIG), tuple(arguments.spelled(CONFIG))
    unmerged = bool(stated) and (not config or any(option.keys for option in stated))
    listed = arguments.has(_LISTED) or arguments.has(_LARGEST)
    return listed or unmerged or not _KEYS.isdisjoint(config)


def stated_sizes(arguments: EngineArguments) -> tuple[int, ...]:
    """What the arguments have captured, in tokens, ascending; none: they do not say."""
    most = min(token_budget(arguments) or _MOST_TOKENS, _MOST_TOKENS)
    config = arguments.object(CONFIG)
    listed = config.get("cudagraph_capture_sizes")
    sizes = arguments.numbers(_LISTED) or (
        tuple(_whole(listed)) if isinstance(listed, list) else ()
    )
    if sizes:
        return within(most, sizes)
    largest = arguments.value(_LARGEST)
    for found in _whole([largest or config.get("max_cudagraph_capture_size")]):
        interactive = performance_mode(arguments) == "interactivity"
        return sizes_up_to(min(found, most), most, interactive=interactive)
    return ()


def _whole(values: Iterable[object]) -> Iterable[int]:
    return (int(text) for text in map(str, values) if is_count(text))


def ceiling(pool: NodePoolSpec) -> int:
    """The largest size that vLLM would choose: more on data-centre Blackwell."""
    blackwell = preset_for(pool).compute_capability == DATA_CENTRE_BLACKWELL
    return BLACKWELL_CEILING if blackwell else CEILING


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
    sizes = added or stated_sizes(start.arguments) or _default_sizes(spec, start, schedule, deepest)
    return _graphs(spec, start, schedule, deepest, sizes)


def static_graphs(spec: SpeculativeDeploymentSpec, start: EngineStart) -> Graphs:
    """Those of the same engine at `tokens`."""
    tokens = spec.speculation.tokens
    schedule = (DepthRange(1, start.max_num_seqs, tokens),)
    sizes = stated_sizes(start.arguments) or _default_sizes(spec, start, schedule, tokens)
    return _graphs(spec, start, schedule, tokens, sizes)


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
        of_each_kind=graphs_of_each_kind(start.arguments),
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
