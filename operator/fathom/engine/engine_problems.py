"""What a spec asks for and its engine would not start with. Pure."""

from collections.abc import Iterator
from typing import Final

from packaging.version import Version

from fathom.api.choices import Compares, Method
from fathom.api.foreign_json import is_true
from fathom.api.problem import Problem
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.capability_table import (
    ADAPTIVE_BACKENDS,
    ADAPTIVE_FLAGS,
    ADAPTIVE_PIPELINE_PARALLEL,
    ADAPTIVE_VERIFICATION,
    ATTENTION_BACKENDS,
    DRAFT_PIPELINE_PARALLEL,
    FLASHINFER_MLA_ADAPTIVE,
    METHODS,
)
from fathom.engine.profile import EngineProfile

_ADAPTIVE_FIELD: Final = "spec.speculation.adaptiveVerification"


def engine_problems(engine: EngineProfile) -> Iterator[Problem]:
    """What this spec asks for and its engine would not start with.

    What a draft would need is no matter where none is loaded. Of an engine whose version is not
    known, only what needs a known one is refused.
    """
    spec = engine.spec
    if engine.version is not None:
        yield from _missing(spec, engine.version)
    asks = spec.verifies_adaptively or spec.compares is Compares.ADAPTIVE_VERIFICATION
    if asks and (refusal := _adaptive_verification_refusal(engine)):
        yield Problem(_ADAPTIVE_FIELD, refusal)


def _missing(spec: SpeculativeDeploymentSpec, version: Version) -> Iterator[Problem]:
    engine, method = spec.engine, spec.draft.method
    if spec.drafts and not METHODS[method].in_version(version):
        yield Problem(
            "spec.draft.method",
            f"vLLM {version} does not know method {method}, which needs "
            f"{METHODS[method].versions}: change spec.engine.image, or choose another method.",
        )
    backend = ATTENTION_BACKENDS.get(engine.attention_backend.lower())
    if backend is not None and not backend.in_version(version):
        yield Problem(
            "spec.engine.attentionBackend",
            f"vLLM {version} does not know {engine.attention_backend}, which needs "
            f"{backend.versions}: change spec.engine.image, or choose another attentionBackend.",
        )
    stages = DRAFT_PIPELINE_PARALLEL
    if (
        spec.drafts
        and engine.pipeline_parallel_size > 1
        and method in stages.methods
        and not stages.in_version(version)
    ):
        yield Problem(
            "spec.engine.pipelineParallelSize",
            f"vLLM {version} would split the draft of method {method} into stages too, which none "
            f"of them can be; {stages.versions} does not: change spec.engine.image, or set it to "
            "1.",
        )


def _adaptive_verification_refusal(profile: EngineProfile) -> str | None:
    engine, method = profile.spec.engine, profile.spec.draft.method
    offers = [offer for offer in ADAPTIVE_VERIFICATION if method in offer.methods]
    if not offers:
        return f"vLLM has no adaptive verification for method {method}: set it to Disabled."
    version = profile.version
    if version is None:
        return f"whether the vLLM in {engine.image} has it cannot be told: set spec.engine.version."
    if not any(offer.in_version(version) for offer in offers):
        return (
            f"vLLM {version} has none for method {method}; it needs {offers[0].versions}: "
            "change spec.engine.image, or set it to Disabled."
        )
    if engine.pipeline_parallel_size > 1 and not ADAPTIVE_PIPELINE_PARALLEL.in_version(version):
        return "vLLM cannot combine it with pipelineParallelSize above 1: set it to Disabled."
    backend = ADAPTIVE_BACKENDS.get(engine.attention_backend.lower())
    if backend is not None and not backend.in_version(version):
        return (
            f"{engine.attention_backend} cannot do it in vLLM {version}: choose another "
            f"attentionBackend (with MLA: flashinfer_mla, vLLM {FLASHINFER_MLA_ADAPTIVE.versions}),"
            " or set it to Disabled."
        )
    conflict = next(_conflicts(profile, version), None)
    return f"{conflict}, or set this to Disabled." if conflict else None


def _conflicts(engine: EngineProfile, version: Version) -> Iterator[str]:
    """Sentences without an end: what vLLM refuses beside adaptive verification, and what to remove.

    Source: `_validate_adaptive_verification` and what else asks for it in vllm/config/vllm.py and
    vllm/config/speculative.py. tests/engine/test_parser_matrix.py asks vLLM.
    """
    spec, start = engine.spec, engine.start
    cause = start.graph_mode.without_full if start.captures_graphs else "--enforce-eager"
    if cause:
        yield f"it needs full CUDA graphs, and {cause} in spec.engine.args has none: remove it"
    if cause := start.model_runner_v1:
        yield f"{cause} selects vLLM's Model Runner V1, which does not have it: remove it"
    for flag, combines in ADAPTIVE_FLAGS.items():
        if start.arguments.has(flag) and not combines.in_version(version):
            yield f"vLLM cannot combine it with {flag} in spec.engine.args: remove that"
    by_argmax = is_true(spec.draft.options.get("use_local_argmax_reduction", ""))
    if by_argmax and spec.draft.method is not Method.DSPARK:
        yield (
            "spec.draft.options.use_local_argmax_reduction leaves it without the draft's logits, "
            "by which it tells what will be accepted: remove it"
        )
