"""The sizes of CUDA graphs: those that are added to the command of a tunable engine, or others'."""

from collections.abc import Iterable
from typing import Final

from fathom.api.accelerators import DATA_CENTRE_BLACKWELL, preset_for
from fathom.api.spec import NodePoolSpec, SpeculativeDeploymentSpec
from fathom.engine.cuda_graphs import sizes_up_to, within
from fathom.engine.depth_set import capture_sizes, named_depths
from fathom.engine.graph_mode import CONFIG, no_full_graphs
from fathom.engine.model_runner import captures_graphs
from fathom.engine.options import is_count, last_value, spelled, stated_numbers, stated_object
from fathom.engine.stated_args import (
    stated_performance_mode,
    stated_tokens_per_step,
)

_CEILING: Final = 512
_CEILING_BLACKWELL: Final = 1024
_MOST_TOKENS: Final = 16_384
"""Beyond which no size is looked at: twice the tokens of a step of vLLM's own on most GPUs."""
_LISTED, _LARGEST = "--cudagraph-capture-sizes", "--max-cudagraph-capture-size"
_KEYS: Final = frozenset({"cudagraph_capture_sizes", "max_cudagraph_capture_size"})


def added_sizes(spec: SpeculativeDeploymentSpec, max_num_seqs: int) -> tuple[int, ...]:
    """In tokens, ascending; none: nothing is captured, or vLLM or `engine.args` say for what."""
    if not captures_graphs(spec) or sets_graphs(spec) or no_full_graphs(spec.engine.args):
        return ()
    sizes = capture_sizes(named_depths(spec), max_num_seqs, ceiling(spec.node_pool))
    # vLLM drops those beyond, and warns.
    return within(stated_tokens_per_step(spec) or None, sizes)


def sets_graphs(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether `engine.args` say which sizes are captured, or leave no place to say it.

    An object that is written key by key takes the place of all others, wherever it stands.
    """
    args = spec.engine.args
    config, stated = stated_object(args, CONFIG), tuple(spelled(args, CONFIG))
    unmerged = bool(stated) and (not config or any(option.keys for option in stated))
    listed = any(last_value(args, name) is not None for name in (_LISTED, _LARGEST))
    return listed or unmerged or not _KEYS.isdisjoint(config)


def stated_sizes(spec: SpeculativeDeploymentSpec) -> tuple[int, ...]:
    """What `engine.args` have captured, in tokens, ascending; none: they do not say."""
    args = spec.engine.args
    most = min(stated_tokens_per_step(spec) or _MOST_TOKENS, _MOST_TOKENS)
    config = stated_object(args, CONFIG)
    listed = config.get("cudagraph_capture_sizes")
    sizes = stated_numbers(args, _LISTED) or (
        tuple(_whole(listed)) if isinstance(listed, list) else ()
    )
    if sizes:
        return within(most, sizes)
    largest = last_value(args, _LARGEST)
    for found in _whole([largest or config.get("max_cudagraph_capture_size")]):
        interactive = stated_performance_mode(spec) == "interactivity"
        return sizes_up_to(min(found, most), most, interactive=interactive)
    return ()


def _whole(values: Iterable[object]) -> Iterable[int]:
    return (int(text) for text in map(str, values) if is_count(text))


def ceiling(pool: NodePoolSpec) -> int:
    """The largest size that vLLM would choose: more on data-centre Blackwell."""
    blackwell = preset_for(pool).compute_capability == DATA_CENTRE_BLACKWELL
    return _CEILING_BLACKWELL if blackwell else _CEILING
