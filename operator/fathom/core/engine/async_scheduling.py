"""Whether an engine schedules a step while the one before it still runs. Pure.

Depth is live without it, too; only each step waits for its scheduling. Source: `__post_init__` in
vllm/config/vllm.py; tests/engine/test_graphs_equal_vllms.py asks it.
"""

from typing import Final

from fathom.api.choices import Method
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.core.engine.capability_table import ASYNCHRONOUS_ON_V2
from fathom.core.engine.model_runner import why_model_runner_v1
from fathom.core.engine.options import options
from fathom.core.engine.version import engine_version
from fathom.core.foreign_json import is_true

_UNPADDED: Final = "disable_padded_drafter_batch"


def why_synchronous(spec: SpeculativeDeploymentSpec) -> str:
    """What in the spec turns it off, as the user writes it; empty: it is on."""
    said = [
        option
        for option in options(spec.engine.args)
        if option.name.startswith(("--async-s", "--no-async-s"))
    ]
    if said and said[-1].name.startswith("--no-"):
        return f"{said[-1].spelling} in spec.engine.args"
    if _never_waits(spec):
        return ""
    if spec.draft.method in {Method.NGRAM, Method.SUFFIX}:
        return f"method {spec.draft.method}"
    if is_true(spec.draft.options.get(_UNPADDED, "")):
        return f"spec.draft.options.{_UNPADDED}"
    return ""


def _never_waits(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether its model runner schedules ahead, however it drafts. Suffix is drafted by V1 only."""
    version = engine_version(spec.engine)
    on_v2 = spec.draft.method is not Method.SUFFIX and not why_model_runner_v1(spec)
    return on_v2 and version is not None and ASYNCHRONOUS_ON_V2.in_version(version)
