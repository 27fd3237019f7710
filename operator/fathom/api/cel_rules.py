"""Rules across fields: each once as CEL, for the API server, and once as a predicate.

The predicate serves `fathom render`, `fathom check` and clusters whose API server is too old for
CEL. A test evaluates both on the same specs, so they cannot drift apart.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fathom.api.accelerators import (
    DATA_CENTRE_BLACKWELL,
    PRESETS,
    RULES_WITHOUT_GPUS,
    preset_for,
)
from fathom.api.choices import Accelerator, AdaptiveVerification, Drafting
from fathom.api.methods import Method
from fathom.api.metrics_rules import METRICS_RULES
from fathom.api.names import LONGEST_GROUP_NAME
from fathom.api.problem import Problem, Rule, broken
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.api.training_rules import TRAINING_RULES

TOKENSPEED_MLA_MAX_TOKENS: Final = 7
"""tokenspeed_mla verifies queries of at most 8 tokens: 7 drafts and the one before them."""

BLACKWELL_BACKENDS: Final = ("tokenspeed_mla", "flashinfer_mla", "cutlass_mla")
"""Attention backends whose `supports_compute_capability` says 10 and nothing else, in every
release that was read (vllm/v1/attention/backends/mla)."""

_IMAGE: Final = (
    r"^[a-z0-9]+([._-][a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[a-f0-9]{64})?$"
)
_NEEDS_DRAFT: Final = [method.value for method in Method if method.needs_draft]
_TAKES_NO_DRAFT: Final = [method.value for method in Method if method.takes_no_draft]
_NO_BLACKWELL: Final = [
    accelerator.value
    for accelerator, preset in PRESETS.items()
    if preset.compute_capability != DATA_CENTRE_BLACKWELL
]


def _fits_a_tray_layout(spec: SpeculativeDeploymentSpec) -> bool:
    ranks, size = preset_for(spec.node_pool).ranks_per_node, spec.engine.tensor_parallel_size
    return ranks % size == 0 if size <= ranks else size % ranks == 0


def _fills_its_nodes(spec: SpeculativeDeploymentSpec) -> bool:
    ranks = preset_for(spec.node_pool).ranks_per_node
    one = spec.engine.tensor_parallel_size * spec.engine.pipeline_parallel_size
    size = one * spec.engine.data_parallel_size
    if size <= ranks or not _fits_a_tray_layout(spec):
        return True
    return size % ranks == 0 and (ranks % one == 0 or one % ranks == 0)


def _draft_tensor_parallel_allowed(spec: SpeculativeDeploymentSpec) -> bool:
    size, target = spec.draft.tensor_parallel_size, spec.engine.tensor_parallel_size
    if size is None or size == target:
        return True
    return size == 1 and spec.draft.method is not Method.DRAFT_MODEL


def _no_draft_where_none_is_taken(spec: SpeculativeDeploymentSpec) -> bool:
    draft = spec.draft
    stated = draft.id or draft.revision or draft.tensor_parallel_size is not None
    return not (draft.method.takes_no_draft and stated)


def _revision_of_a_draft(spec: SpeculativeDeploymentSpec) -> bool:
    draft = spec.draft
    return not draft.revision or bool(draft.id) or draft.method.takes_no_draft


def _trial_is_compared_alone(spec: SpeculativeDeploymentSpec) -> bool:
    speculation = spec.speculation
    return spec.draft.trial is None or (
        speculation.drafting is not Drafting.CANARY
        and speculation.adaptive_verification is not AdaptiveVerification.CANARY
    )


def _backend_of_the_accelerator(spec: SpeculativeDeploymentSpec) -> bool:
    if spec.engine.attention_backend.lower() not in BLACKWELL_BACKENDS:
        return True
    return spec.node_pool.accelerator not in _NO_BLACKWELL


def _within_tokenspeed_mla(spec: SpeculativeDeploymentSpec) -> bool:
    if spec.engine.attention_backend.lower() != "tokenspeed_mla":
        return True
    static = not spec.tunable and spec.speculation.max_tokens is None
    deepest = spec.speculation.tokens if static else spec.speculation.effective_max_tokens
    return deepest <= TOKENSPEED_MLA_MAX_TOKENS


def _depths_within(spec: SpeculativeDeploymentSpec) -> bool:
    speculation = spec.speculation
    if speculation.depths is None:
        return True
    possible = {0, *range(speculation.min_tokens, speculation.effective_max_tokens + 1)}
    return speculation.tokens in speculation.depths and possible.issuperset(speculation.depths)


def _ranks_per_node_cel() -> str:
    """CEL for the ranks that one node of the pool carries."""
    cel = "(has(self.nodePool.gpusPerNode) ? self.nodePool.gpusPerNode : 1)"
    for accelerator, preset in PRESETS.items():
        cel = f"(self.nodePool.accelerator == '{accelerator}' ? {preset.ranks_per_node} : {cel})"
    return cel


_RANKS: Final = _ranks_per_node_cel()
_TP: Final = "self.engine.tensorParallelSize"
_LAYOUT: Final = f"{_TP} <= {_RANKS} ? {_RANKS} % {_TP} == 0 : {_TP} % {_RANKS} == 0"
_ONE: Final = f"{_TP} * self.engine.pipelineParallelSize"
_ALL: Final = f"{_ONE} * self.engine.dataParallelSize"
_DEEPEST_FITS: Final = (
    f"has(self.speculation.maxTokens) ? self.speculation.maxTokens <= {TOKENSPEED_MLA_MAX_TOKENS} "
    ": has(self.speculation.depths) "
    f"? self.speculation.depths.all(depth, depth <= {TOKENSPEED_MLA_MAX_TOKENS}) "
    f": self.speculation.tokens <= {TOKENSPEED_MLA_MAX_TOKENS}"
)

RULES: Final[tuple[Rule[SpeculativeDeploymentSpec], ...]] = (
    Rule(
        field="draft.id",
        message="this method needs a draft model: set draft.id to its Hugging Face id or to its "
        "absolute path in the pod, or speculation.drafting to Disabled.",
        cel=f"!(self.draft.method in {_NEEDS_DRAFT}) || self.draft.id != '' "
        "|| self.speculation.drafting == 'Disabled'",
        holds=lambda spec: (
            bool(spec.draft.id) or not spec.draft.method.needs_draft or not spec.drafts
        ),
    ),
    Rule(
        field="speculation.drafting",
        message="one thing is compared at a time: set speculation.drafting or "
        "speculation.adaptiveVerification to Enabled or Disabled.",
        cel="self.speculation.drafting != 'Canary' "
        "|| self.speculation.adaptiveVerification != 'Canary'",
        holds=lambda spec: (
            spec.speculation.drafting is not Drafting.CANARY
            or spec.speculation.adaptive_verification is not AdaptiveVerification.CANARY
        ),
    ),
    Rule(
        field="speculation.tuning.mode",
        message="a replica without drafts is compared by what the plugin counts, and mode Static "
        "starts stock engines: set speculation.tuning.mode to Auto or Advise, or "
        "speculation.drafting to Enabled or Disabled.",
        cel="self.speculation.drafting != 'Canary' || self.speculation.tuning.mode != 'Static'",
        holds=lambda spec: spec.speculation.drafting is not Drafting.CANARY or spec.tunable,
    ),
    Rule(
        field="draft.trial",
        message="a trial takes the place of the draft in one replica, and draft.id names none: set "
        "draft.id to the draft that all replicas have, or leave draft.trial out.",
        cel="!has(self.draft.trial) || self.draft.id != ''",
        holds=lambda spec: spec.draft.trial is None or bool(spec.draft.id),
    ),
    Rule(
        field="draft.trial",
        message="one thing is compared at a time: leave out draft.trial until the other comparison "
        "is over, or set speculation.drafting to Enabled and speculation.adaptiveVerification to "
        "Enabled or Disabled.",
        cel="!has(self.draft.trial) || (self.speculation.drafting != 'Canary' "
        "&& self.speculation.adaptiveVerification != 'Canary')",
        holds=_trial_is_compared_alone,
    ),
    *TRAINING_RULES,
    Rule(
        field="draft.method",
        message="methods ngram, ngram_gpu and suffix find their drafts in the text itself and load "
        "no model: leave out draft.id, draft.revision and draft.tensorParallelSize, or set "
        "draft.method to what the draft is.",
        cel=f"!(self.draft.method in {_TAKES_NO_DRAFT}) || (self.draft.id == '' "
        "&& self.draft.revision == '' && !has(self.draft.tensorParallelSize))",
        holds=_no_draft_where_none_is_taken,
    ),
    Rule(
        field="draft.revision",
        message="this is the revision of a draft model, and draft.id names none: set draft.id, or "
        "set model.revision for a draft that comes with the target.",
        cel="self.draft.revision == '' || self.draft.id != '' "
        f"|| self.draft.method in {_TAKES_NO_DRAFT}",
        holds=_revision_of_a_draft,
    ),
    Rule(
        field="speculation.tokens",
        message="tokens is above maxTokens: lower tokens, or raise maxTokens (which needs new "
        "pods).",
        cel="!has(self.speculation.maxTokens) "
        "|| self.speculation.tokens <= self.speculation.maxTokens",
        holds=lambda spec: (
            spec.speculation.max_tokens is None
            or spec.speculation.tokens <= spec.speculation.max_tokens
        ),
    ),
    Rule(
        field="speculation.minTokens",
        message="minTokens is above tokens: the start must lie between minTokens and maxTokens.",
        cel="self.speculation.minTokens <= self.speculation.tokens",
        holds=lambda spec: spec.speculation.min_tokens <= spec.speculation.tokens,
    ),
    Rule(
        field="speculation.depths",
        message="depths must hold tokens, and all of them must be between minTokens and "
        "maxTokens; only 0 is always allowed.",
        cel="!has(self.speculation.depths) || (self.speculation.tokens in self.speculation.depths "
        "&& self.speculation.depths.all(depth, depth == 0 "
        "|| (depth >= self.speculation.minTokens && (!has(self.speculation.maxTokens) "
        "|| depth <= self.speculation.maxTokens))))",
        holds=_depths_within,
    ),
    Rule(
        field="speculation.tuning.tpotMilliseconds",
        message="objective Goodput needs an SLO: set tpotMilliseconds to the largest acceptable "
        "time per output token.",
        cel="self.speculation.tuning.objective != 'Goodput' "
        "|| has(self.speculation.tuning.tpotMilliseconds)",
        holds=lambda spec: (
            not spec.speculation.tuning.objective.keeps_slo
            or spec.speculation.tuning.tpot_milliseconds is not None
        ),
    ),
    Rule(
        field="speculation.maxTokens",
        message="attention backend tokenspeed_mla verifies at most 7 drafted tokens: set "
        "maxTokens (and tokens) to 7 or less, or choose another attentionBackend.",
        cel="!self.engine.attentionBackend.matches(r'^(?i)tokenspeed_mla$') || "
        "((self.speculation.tuning.mode == 'Static' && !has(self.speculation.maxTokens)) "
        f"? self.speculation.tokens <= {TOKENSPEED_MLA_MAX_TOKENS} : ({_DEEPEST_FITS}))",
        holds=_within_tokenspeed_mla,
    ),
    Rule(
        field="engine.attentionBackend",
        message="this attention backend runs on GB200, GB300 and B200 only, and "
        "nodePool.accelerator is another: leave attentionBackend out, so that vLLM chooses, or "
        "correct the accelerator.",
        cel=f"!self.engine.attentionBackend.matches(r'^(?i)({'|'.join(BLACKWELL_BACKENDS)})$') "
        f"|| !(self.nodePool.accelerator in {_NO_BLACKWELL})",
        holds=_backend_of_the_accelerator,
    ),
    Rule(
        field="engine.tensorParallelSize",
        message="no layout of nodes fits this size: use a divisor of the GPUs on one node (1, 2 "
        "or 4 on a GB200 tray) or a multiple of them.",
        cel=_LAYOUT,
        holds=_fits_a_tray_layout,
    ),
    Rule(
        field="engine",
        message="a replica over several nodes takes whole ones: make tensorParallelSize × "
        "pipelineParallelSize × dataParallelSize a multiple of the GPUs on one node (4 on a GB200 "
        "tray), and let no data-parallel engine begin in the middle of another's node.",
        cel=f"{_ALL} <= {_RANKS} || !({_LAYOUT}) || ({_ALL} % {_RANKS} == 0 "
        f"&& ({_RANKS} % ({_ONE}) == 0 || ({_ONE}) % {_RANKS} == 0))",
        holds=_fills_its_nodes,
    ),
    Rule(
        field="draft.tensorParallelSize",
        message="a draft runs on one GPU or on as many as the target: set 1 or the target's "
        "tensorParallelSize (method draft_model: the target's only), or leave it out.",
        cel="!has(self.draft.tensorParallelSize) "
        f"|| self.draft.tensorParallelSize == {_TP} "
        "|| (self.draft.tensorParallelSize == 1 && self.draft.method != 'draft_model')",
        holds=_draft_tensor_parallel_allowed,
    ),
    Rule(
        field="nodePool.gpusPerNode",
        message="accelerator Custom needs gpusPerNode: set it to the GPUs on one node.",
        cel="self.nodePool.accelerator != 'Custom' || has(self.nodePool.gpusPerNode)",
        holds=lambda spec: (
            spec.node_pool.accelerator is not Accelerator.CUSTOM
            or spec.node_pool.gpus_per_node is not None
        ),
    ),
    *RULES_WITHOUT_GPUS,
    Rule(
        field="cache.size",
        message="claimName names a claim that exists, and size asks for a new one: set one of "
        "them.",
        cel="self.cache.claimName == '' || self.cache.size == ''",
        holds=lambda spec: not (spec.cache.claim_name and spec.cache.size),
    ),
    *METRICS_RULES,
    Rule(
        field="engine.image",
        message="this is not a container image reference: write registry/repository:tag or "
        "registry/repository@sha256:digest.",
        cel=f"self.engine.image.matches(r'{_IMAGE}')",
        holds=lambda spec: re.fullmatch(_IMAGE, spec.engine.image) is not None,
    ),
    Rule(
        field="rollout",
        message="maxUnavailable and maxSurge are both 0, so no rollout could ever take a step: "
        "set one of them to 1 or more.",
        cel="self.rollout.maxUnavailable + self.rollout.maxSurge > 0",
        holds=lambda spec: spec.rollout.max_unavailable + spec.rollout.max_surge > 0,
    ),
)


def _spans_nodes(spec: SpeculativeDeploymentSpec) -> bool:
    one = spec.engine.tensor_parallel_size * spec.engine.pipeline_parallel_size
    return one * spec.engine.data_parallel_size > preset_for(spec.node_pool).ranks_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationRule:
    """A rule that the API server applies to new resources only, since a name cannot be mended.

    An object that is created has no status, and the operator gives each one a status. To compare
    with `oldSelf` instead needs `optionalOldSelf`, and servers that do not know it (before 1.29)
    refuse the whole CRD.
    """

    field: str
    """Path in the resource that the message is about."""
    message: str
    """What is wrong and what to do, without knowing the values."""
    cel: str
    """The rule in CEL, `self` being the resource after defaulting."""
    holds: Callable[[str, SpeculativeDeploymentSpec], bool]
    """The rule for a name and a spec, however old they are."""


CREATION_RULES: Final = (
    CreationRule(
        field="metadata.name",
        message="this name is too long for replicas over several nodes, whose pods repeat it in "
        f"labels: it may have {LONGEST_GROUP_NAME} characters. Create the resource again under "
        "a shorter name, or keep tensorParallelSize × pipelineParallelSize × dataParallelSize "
        "within one node.",
        cel="has(self.status) "
        f"|| {_ALL.replace('self.', 'self.spec.')} <= {_RANKS.replace('self.', 'self.spec.')} "
        f"|| size(self.metadata.name) <= {LONGEST_GROUP_NAME}",
        holds=lambda name, spec: not _spans_nodes(spec) or len(name) <= LONGEST_GROUP_NAME,
    ),
)


def violations(spec: SpeculativeDeploymentSpec) -> tuple[Problem, ...]:
    """Every rule that the spec breaks, in the order of `RULES`."""
    return broken(RULES, spec)
