"""What a preflight looks at, put together from a spec: `engine.args` are understood here."""

from collections.abc import Mapping
from typing import Final

from fathom.core.models.facts import NO_MODEL, ModelFacts, ModelRef, draft_ref, target_ref
from fathom.engine.profile import EngineProfile
from fathom.engine.stated_args import kv_cache_dtype
from fathom.preflight.input import PreflightInput, StatedArgs

_REWRITE_CONFIG: Final = ("--hf-o", "--hf-c", "--config-f", "--model-im")
"""Beginnings of options after which the target is not what its config.json says: --hf-overrides,
--hf-config-path, --config-format, --model-impl."""
_REWRITE_WEIGHTS: Final = ("--quan", "-q", "--load-f", "--model-lo", "--cpu-off", "--offload")
"""Of those after which weights do not lie in memory as in their files: --quantization,
--load-format, --model-loader-extra-config, --cpu-offload-gb, --offload-*."""
_UNKNOWN: Final = ModelFacts()
LONGER_VARIABLE: Final = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"


def preflight_input(engine: EngineProfile, target: ModelFacts, draft: ModelFacts) -> PreflightInput:
    """All that `check_draft` looks at.

    Args:
        engine: of a valid spec.
        target: what is known of the target.
        draft: what is known of the draft; not looked at where the spec names none.
    """
    has_draft = bool(draft_ref(engine.spec).id)
    return PreflightInput(
        engine, target, draft if has_draft else NO_MODEL, stated_args(engine), engine.captured
    )


def preflight_of(engine: EngineProfile, models: Mapping[ModelRef, ModelFacts]) -> PreflightInput:
    """The same, of models that were looked up; of what was not, nothing is known."""
    target = models.get(target_ref(engine.spec), _UNKNOWN)
    return preflight_input(engine, target, models.get(draft_ref(engine.spec), _UNKNOWN))


def stated_args(engine: EngineProfile) -> StatedArgs:
    """What `engine.args` and `engine.env` say that a preflight must know."""
    arguments = engine.arguments
    length = arguments.value("--max-model-len")
    cache = kv_cache_dtype(arguments)
    share = arguments.value("--gpu-memory-utilization")
    defaults = StatedArgs()
    return StatedArgs(
        max_model_len=int(length) if length is not None and length.isdecimal() else None,
        longer_allowed=any(each.name == LONGER_VARIABLE for each in engine.spec.engine.env),
        rewrites_config=bool(arguments.beginning(*_REWRITE_CONFIG)),
        rewrites_weights=bool(arguments.beginning(*_REWRITE_WEIGHTS)),
        kv_cache_dtype=cache,
        kv_value_bytes=1 if cache.startswith("fp8") else defaults.kv_value_bytes,
        max_batch=engine.max_num_seqs,
        gpu_memory_utilization=_share(share, defaults.gpu_memory_utilization),
    )


def _share(text: str | None, default: float) -> float:
    try:
        share = float(text) if text is not None else default
    except ValueError:
        return default
    return share if 0 < share <= 1 else default
