"""What a preflight is made of: the spec, what is known of both models, and what the args say."""

from dataclasses import dataclass
from typing import Final

from packaging.version import Version

from fathom.api.choices import Method
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.core.models.config import ModelConfig
from fathom.core.models.facts import Absence, ModelFacts
from fathom.engine.cuda_graphs import Captured
from fathom.engine.profile import EngineProfile

EAGLE: Final = frozenset({Method.EAGLE, Method.EAGLE3})
"""Methods whose draft reads the target's hidden states."""


@dataclass(frozen=True, slots=True)
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
    """Of one number in the KV cache."""
    max_batch: int = 256
    """The largest number of requests in one step, as far as it is known."""
    gpu_memory_utilization: float = 0.92
    """vLLM's default is that of vllm/config/cache.py in 0.32.0."""


@dataclass(frozen=True, slots=True)
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
