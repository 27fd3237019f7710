"""The sizes of CUDA graphs: those that are added to the command of a tunable engine, or others'."""

from collections.abc import Iterable
from typing import Final

from fathom.api.accelerators import DATA_CENTRE_BLACKWELL, preset_for
from fathom.api.spec import NodePoolSpec, SpeculativeDeploymentSpec
from fathom.core.engine.adaptive_conflicts import no_full_graphs
from fathom.core.engine.cuda_graphs import GraphMode, sizes_up_to, within
from fathom.core.engine.depth_set import capture_sizes, named_depths
from fathom.core.engine.model_runner import captures_graphs
from fathom.core.engine.options import last_value, options, stated_numbers, stated_object
from fathom.manifests.engine_command.stated_args import (
    stated_performance_mode,
    stated_tokens_per_step,
)

_CEILING: Final = 512
_CEILING_BLACKWELL: Final = 1024
_SETTING_GRAPHS: Final = (
    "--cudagraph-capture-sizes",
    "--max-cudagraph-capture-size",
    "--compilation-config",
)
_SETTING_GRAPHS_SHORT: Final = ("-cc", "-O")


def added_sizes(spec: SpeculativeDeploymentSpec, max_num_seqs: int) -> tuple[int, ...]:
    """In tokens, ascending; none: nothing is captured, or vLLM or `engine.args` say for what."""
    if not captures_graphs(spec) or sets_graphs(spec):
        return ()
    sizes = capture_sizes(named_depths(spec), max_num_seqs, ceiling(spec.node_pool))
    # vLLM drops those beyond, and warns.
    return within(stated_tokens_per_step(spec) or None, sizes)


def sets_graphs(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether `engine.args` say what is captured."""
    said = {option.name for option in options(spec.engine.args)}
    # vLLM takes any beginning of a long one, and a value right behind a short one.
    return any(
        name.startswith(_SETTING_GRAPHS_SHORT)
        or (name.startswith("--") and any(each.startswith(name) for each in _SETTING_GRAPHS))
        for name in said
    )


def stated_sizes(spec: SpeculativeDeploymentSpec) -> tuple[int, ...]:
    """What `engine.args` have captured, in tokens, ascending; none: they do not say."""
    args, most = spec.engine.args, stated_tokens_per_step(spec) or None
    config = stated_object(args, "--compilation-config")
    listed = config.get("cudagraph_capture_sizes")
    sizes = stated_numbers(args, "--cudagraph-capture-sizes") or (
        tuple(_whole(listed)) if isinstance(listed, list) else ()
    )
    if sizes:
        return within(most, sizes)
    largest = last_value(args, "--max-cudagraph-capture-size")
    for found in _whole([largest or config.get("max_cudagraph_capture_size")]):
        interactive = stated_performance_mode(spec) == "interactivity"
        return sizes_up_to(min(found, most or found), most, interactive=interactive)
    return ()


def _whole(values: Iterable[object]) -> Iterable[int]:
    return (int(text) for text in map(str, values) if text.isdecimal())


def stated_mode(spec: SpeculativeDeploymentSpec) -> GraphMode:
    """The `cudagraph_mode` that `engine.args` say, or vLLM's own."""
    if no_full_graphs(spec.engine.args):
        return GraphMode.PIECEWISE
    stated = stated_object(spec.engine.args, "--compilation-config").get("cudagraph_mode", "")
    known = {mode.value: mode for mode in GraphMode}
    return known.get(str(stated).upper(), GraphMode.FULL_AND_PIECEWISE)


def ceiling(pool: NodePoolSpec) -> int:
    """The largest size that vLLM would choose: more on data-centre Blackwell."""
    blackwell = preset_for(pool).compute_capability == DATA_CENTRE_BLACKWELL
    return _CEILING_BLACKWELL if blackwell else _CEILING
