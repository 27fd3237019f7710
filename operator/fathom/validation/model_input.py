"""What a preflight is made of: the spec, what is known of both models, and what the args say."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from fathom.api.conditions import Reason
from fathom.api.problem import Problem, Severity
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.argument_parser import EngineArguments, kv_cache_dtype, whole_number
from fathom.engine.capability_table import has_release
from fathom.engine.cuda_graphs import Captured
from fathom.engine.profile import EngineProfile, profile_of
from fathom.model_facts import NO_MODEL, Absence, ModelConfig, ModelFacts
from fathom.model_refs import ModelRef, draft_ref, target_ref

_REWRITE_CONFIG: Final = ("--hf-o", "--hf-c", "--config-f", "--model-im")
"""Beginnings of options after which the target is not what its config.json says: --hf-overrides,
--hf-config-path, --config-format, --model-impl."""
_REWRITE_WEIGHTS: Final = ("--quan", "-q", "--load-f", "--model-lo", "--cpu-off", "--offload")
"""Beginnings of options after which weights are not in memory as in their files: --quantization,
--load-format, --model-loader-extra-config, --cpu-offload-gb, --offload-*."""
_STATE_LAYOUT: Final = "VLLM_SSM_CONV_STATE_LAYOUT"
_READ: Final = SpecifierSet(">=0.28.0,<0.34")
"""Releases that were read for this. Of others nothing is said."""
_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2}
_UNKNOWN: Final = ModelFacts()
LONGER_VARIABLE: Final = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
_DRAFT: Final = "spec.draft.id"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedArgs:
    """What `engine.args` and `engine.env` say that a preflight must know."""

    max_model_len: int | None = None
    """None: not stated, or not as a plain number."""
    longer_allowed: bool = False
    """Whether VLLM_ALLOW_LONG_MAX_MODEL_LEN is set, to whatever."""
    rewrites_config: bool = False
    """Whether vLLM is told to read the target otherwise than its config.json says."""
    rewrites_weights: bool = False
    """Whether weights are to be quantised, offloaded or loaded otherwise than as they lie."""
    kv_cache_dtype: str = "auto"
    """As vLLM spells it."""
    kv_value_bytes: int = 2
    """Bytes of one number in the KV cache."""
    max_batch: int = 256
    """The largest number of requests in one step, as far as it is known."""
    prefix_states: int = 1
    """States that a request keeps for prefix caching, where the target keeps any."""
    names_states: bool = False
    """Whether something is set that is of a target with states alone."""
    replays_states: bool = False
    """Whether no state is kept for drafts, as --use-replayssm asks."""
    state_bytes: int | None = None
    """Bytes of a number in a state; None: not stated."""
    other_state_bytes: int = 2
    """Bytes of a number in what a convolution keeps."""
    quantization: str = ""
    """As --quantization says it; empty: it does not."""
    decode_context_parts: int = 1
    """Among how many GPUs a context is shared, for each KV head."""
    gpu_memory_utilization: float = 0.92
    """vLLM's default is that of vllm/config/cache.py in 0.32.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightInput:
    """Everything that the checks look at. Nothing else is asked for."""

    engine: EngineProfile
    target: ModelFacts
    draft: ModelFacts
    stated: StatedArgs = StatedArgs()
    captured: Captured | None = None
    """CUDA graphs of its engine; None: not known."""

    @property
    def spec(self) -> SpeculativeDeploymentSpec:
        return self.engine.spec

    @property
    def version(self) -> Version | None:
        """vLLM's, as far as the spec tells."""
        return self.engine.version

    @property
    def target_config(self) -> ModelConfig | None:
        """The target's, as vLLM will see it."""
        return None if self.stated.rewrites_config else self.target.config

    @property
    def keeps_states(self) -> bool:
        """Whether some of the target's layers keep a state for each request and draft token.

        Of one whose config.json is not at hand the arguments may tell.
        """
        if self.stated.replays_states:
            return False
        target = self.target_config
        return self.stated.names_states if target is None else target.hybrid is not None

    @property
    def draft_config(self) -> ModelConfig | None:
        return self.draft.config

    @property
    def has_draft(self) -> bool:
        """Whether a draft model of its own is loaded."""
        return self.draft.absence is not Absence.NO_MODEL

    @property
    def depth(self) -> int:
        """`num_speculative_tokens` that the engine is started with; 0: it does not speculate."""
        return self.engine.deepest if self.spec.drafts else 0


def preflight_input(engine: EngineProfile, target: ModelFacts, draft: ModelFacts) -> PreflightInput:
    """All that `check_draft` looks at.

    Args:
        engine: of a valid spec.
        target: what is known of the target.
        draft: what is known of the draft; not looked at where the spec names none.
    """
    has_draft = bool(draft_ref(engine.spec).id)
    return PreflightInput(
        engine=engine,
        target=target,
        draft=draft if has_draft else NO_MODEL,
        stated=stated_args(engine),
        captured=engine.captured,
    )


def preflight_of(engine: EngineProfile, models: Mapping[ModelRef, ModelFacts]) -> PreflightInput:
    """The same, of models that were looked up; of what was not, nothing is known."""
    target = models.get(target_ref(engine.spec), _UNKNOWN)
    return preflight_input(engine, target, models.get(draft_ref(engine.spec), _UNKNOWN))


def with_deepest(given: PreflightInput, depth: int) -> PreflightInput:
    """The same, were this the deepest depth."""
    spec = given.spec
    speculation = spec.speculation.model_copy(update={"max_tokens": depth, "depths": None})
    engine = profile_of(spec.model_copy(update={"speculation": speculation}))
    return replace(given, engine=engine, captured=engine.captured)


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
        prefix_states=_prefix_states(arguments),
        names_states=bool(arguments.beginning("--mamba-", "--enable-mamba"))
        or any(each.name == _STATE_LAYOUT for each in engine.spec.engine.env),
        replays_states=bool(arguments.beginning("--use-rep")),
        state_bytes=_BYTES.get(arguments.value("--mamba-ssm-cache-dtype") or ""),
        other_state_bytes=_BYTES.get(
            arguments.value("--mamba-cache-dtype") or "", defaults.other_state_bytes
        ),
        max_batch=engine.max_num_seqs,
        quantization=_stated(arguments, "--quan", "-q"),
        decode_context_parts=whole_number(_stated(arguments, "--decode-c", "-dcp")) or 1,
        gpu_memory_utilization=_share(share, defaults.gpu_memory_utilization),
    )


def _stated(arguments: EngineArguments, beginning: str, short: str) -> str:
    """The value of an option with a short name; empty: it is absent."""
    found = [each for each in arguments.options if each.name == short]
    last = max((*arguments.beginning(beginning), *found), key=lambda each: each.index, default=None)
    return "" if last is None else last.value or ""


def was_read(version: Version | None) -> bool:
    """Whether what is known of those releases may hold: for one of them, or one not known."""
    return version is None or has_release(_READ, version)


def _prefix_states(arguments: EngineArguments) -> int:
    """A hybrid model caches prefixes unless that is turned off.

    `MambaModelConfig` in vllm/model_executor/models/config.py, 0.28 to 0.33, which then takes mode
    `align` for `none`. Mode `all` keeps more, by the length of a request.
    """
    return 0 if arguments.beginning("--no-enable-pre") else 1


def _share(text: str | None, default: float) -> float:
    try:
        share = float(text) if text is not None else default
    except ValueError:
        return default
    return share if 0 < share <= 1 else default


def refused(sentence: str, field: str = _DRAFT, reason: Reason = Reason.INCOMPATIBLE) -> Problem:
    """It is certain to fail."""
    return Problem(field=field, message=sentence, severity=Severity.ERROR, reason=reason)


def doubtful(sentence: str, field: str = _DRAFT) -> Problem:
    """It is likely to fail."""
    return Problem(field=field, message=sentence, severity=Severity.WARNING, reason=Reason.DOUBTFUL)


def unknown(sentence: str, field: str = _DRAFT) -> Problem:
    """It cannot be told."""
    return Problem(
        field=field, message=sentence, severity=Severity.UNKNOWN, reason=Reason.NOT_CHECKED
    )
