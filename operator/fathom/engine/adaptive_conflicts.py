"""What vLLM refuses beside adaptive verification, as far as a spec's options show it. Pure.

Source: `_validate_adaptive_verification` and what else asks for it in vllm/config/vllm.py and
vllm/config/speculative.py. tests/engine/test_parser_matrix.py asks vLLM.
"""

from collections.abc import Iterator

from packaging.version import Version

from fathom.api.choices import Method
from fathom.api.foreign_json import is_true
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.capability_table import ADAPTIVE_FLAGS
from fathom.engine.graph_mode import no_full_graphs
from fathom.engine.model_runner import captures_graphs, why_model_runner_v1
from fathom.engine.options import last_value


def conflicts(spec: SpeculativeDeploymentSpec, version: Version) -> Iterator[str]:
    """Sentences without an end: what stands against adaptive verification, and what to remove.

    Args:
        spec: what is asked for.
        version: vLLM's.
    """
    args = spec.engine.args
    cause = no_full_graphs(args) if captures_graphs(spec) else "--enforce-eager"
    if cause:
        yield f"it needs full CUDA graphs, and {cause} in spec.engine.args has none: remove it"
    if cause := why_model_runner_v1(spec):
        yield f"{cause} selects vLLM's Model Runner V1, which does not have it: remove it"
    for flag, combines in ADAPTIVE_FLAGS.items():
        if last_value(args, flag) is not None and not combines.in_version(version):
            yield f"vLLM cannot combine it with {flag} in spec.engine.args: remove that"
    by_argmax = is_true(spec.draft.options.get("use_local_argmax_reduction", ""))
    if by_argmax and spec.draft.method is not Method.DSPARK:
        yield (
            "spec.draft.options.use_local_argmax_reduction leaves it without the draft's logits, "
            "by which it tells what will be accepted: remove it"
        )
