"""The sizes of CUDA graphs that are added to the command of a tunable engine."""

from typing import Final

from fathom.api.accelerators import DATA_CENTRE_BLACKWELL, preset_for
from fathom.api.spec import NodePoolSpec, SpeculativeDeploymentSpec
from fathom.core.engine.depth_set import capture_sizes, named_depths
from fathom.core.engine.model_runner import captures_graphs
from fathom.core.engine.options import options
from fathom.manifests.engine_command.stated_args import stated_tokens_per_step

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
    most = stated_tokens_per_step(spec)
    # vLLM drops those beyond, and warns.
    return tuple(size for size in sizes if size <= most) if most else sizes


def sets_graphs(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether `engine.args` say what is captured."""
    said = {option.name for option in options(spec.engine.args)}
    # vLLM takes any beginning of a long one, and a value right behind a short one.
    return any(
        name.startswith(_SETTING_GRAPHS_SHORT)
        or (name.startswith("--") and any(each.startswith(name) for each in _SETTING_GRAPHS))
        for name in said
    )


def ceiling(pool: NodePoolSpec) -> int:
    """The largest size that vLLM would choose: more on data-centre Blackwell."""
    blackwell = preset_for(pool).compute_capability == DATA_CENTRE_BLACKWELL
    return _CEILING_BLACKWELL if blackwell else _CEILING
