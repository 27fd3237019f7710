"""Which of vLLM's two model runners an engine gets on a GPU. Pure.

Only V2 has full CUDA graphs for more than one depth: V1 gives them up for all steps as soon as a
depth schedule is set, where a static engine keeps them. Source: `use_v2_model_runner` and
`_maybe_override_dynamic_sd_cudagraph_mode` in vllm/config/vllm.py;
tests/engine/test_graphs_equal_vllms.py asks them.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from fathom.api.choices import Method
from fathom.api.foreign_json import is_true
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.options import last_value, options

MODEL_RUNNER_VARIABLE: Final = "VLLM_USE_V2_MODEL_RUNNER"
_ONLY_ON_V1: Final[Mapping[str, Callable[[Method], bool]]] = MappingProxyType(
    {
        # DFlash and DSpark draft in parallel by nature, on V2 too.
        "parallel_drafting": lambda method: method not in {Method.DFLASH, Method.DSPARK},
        "use_heterogeneous_vocab": lambda _method: True,
    }
)
"""Keys of `draft.options` that V2 lacks, and for which methods."""


def why_model_runner_v1(spec: SpeculativeDeploymentSpec) -> str:
    """What in the spec selects Model Runner V1, as the user writes it; empty: it is V2."""
    stated = [each.value for each in spec.engine.env if each.name == MODEL_RUNNER_VARIABLE]
    if stated:
        # It decides alone: where V2 is asked for and lacks something, vLLM refuses to start.
        return f"{MODEL_RUNNER_VARIABLE} in spec.engine.env" if _is_zero(stated[-1]) else ""
    for key, lacks in _ONLY_ON_V1.items():
        if is_true(spec.draft.options.get(key, "")) and lacks(spec.draft.method):
            return f"spec.draft.options.{key}"
    args = spec.engine.args
    if last_value(args, "--enable-dbo") is not None:
        return "--enable-dbo in spec.engine.args"
    if last_value(args, "--ubatch-size") not in {None, "0", "1"}:
        return "--ubatch-size in spec.engine.args"
    return ""


def captures_graphs(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether the engine captures CUDA graphs, as far as `--enforce-eager` tells."""
    said = (option.name for option in options(spec.engine.args))
    eager = [name for name in said if name.startswith(("--enforce", "--no-enforce"))]
    return not eager or eager[-1].startswith("--no-")


def _is_zero(text: str | None) -> bool:
    """Whether it is what vLLM reads as False; what is no number ends it at start."""
    try:
        return int(text or "") == 0
    except ValueError:
        return False
