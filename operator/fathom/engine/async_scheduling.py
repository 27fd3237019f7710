"""Whether an engine schedules a step while the one before it still runs. Pure.

Depth is live without it, too; only each step waits for its scheduling. But drafts that break a
request's grammar are then dropped before the next step is scheduled, where they are otherwise
scheduled all the same (`update_draft_token_ids` and `..._in_output` in
vllm/v1/core/sched/scheduler.py, 0.32): so requests of one step have different depths, and the
plugin counts no such step. Source: `__post_init__` in vllm/config/vllm.py;
tests/engine/test_graphs_equal_vllms.py asks it.
"""

from typing import Final

from fathom.api.choices import Method
from fathom.api.foreign_json import is_true
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.capability_table import ASYNCHRONOUS_ON_V2
from fathom.engine.model_runner import why_model_runner_v1
from fathom.engine.options import options
from fathom.engine.version import engine_version

_UNPADDED: Final = "disable_padded_drafter_batch"
_GRAMMARS: Final = ("--structured-o", "--tool-call-p", "--enable-au", "--reasoning-p")
"""Beginnings of options of an engine whose requests are likely to have grammars:
--structured-outputs-config, --tool-call-parser, --enable-auto-tool-choice, --reasoning-parser."""


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


def why_grammars(spec: SpeculativeDeploymentSpec) -> str:
    """What in the spec prepares the engine for structured output, as the user writes it.

    Empty: nothing. A request may ask for it all the same.
    """
    for option in options(spec.engine.args):
        if option.name.startswith(_GRAMMARS):
            return f"{option.spelling.partition('.')[0]} in spec.engine.args"
    return ""


def remedy_of_synchronous(spec: SpeculativeDeploymentSpec) -> str:
    """What to do to have asynchronous scheduling, where `why_synchronous` says that it is off."""
    why = why_synchronous(spec)
    if why.startswith("method "):
        return f"choose another method, such as {Method.NGRAM_GPU}"
    return f"remove {why.partition(' in ')[0]}"


def _never_waits(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether its model runner schedules ahead, however it drafts. Suffix is drafted by V1 only."""
    version = engine_version(spec.engine)
    on_v2 = spec.draft.method is not Method.SUFFIX and not why_model_runner_v1(spec)
    return on_v2 and version is not None and ASYNCHRONOUS_ON_V2.in_version(version)
