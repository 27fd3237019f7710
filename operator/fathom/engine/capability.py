"""What this engine can do: the rules over `fathom.engine.capability_table`. Pure."""

from collections.abc import Iterator

from packaging.version import Version

from fathom.api.choices import Compares
from fathom.api.conditions import Reason
from fathom.api.problem import Problem
from fathom.api.spec import EngineSpec, SpeculativeDeploymentSpec
from fathom.engine.adaptive_conflicts import conflicts
from fathom.engine.async_scheduling import why_synchronous
from fathom.engine.capability_table import (
    ADAPTIVE_BACKENDS,
    ADAPTIVE_PIPELINE_PARALLEL,
    ADAPTIVE_VERIFICATION,
    ATTENTION_BACKENDS,
    COUNTED,
    DRAFT_PIPELINE_PARALLEL,
    FLASHINFER_MLA_ADAPTIVE,
    LIVE_DEPTH,
    LIVE_DEPTH_ADAPTIVE,
    LIVE_DEPTH_DATA_PARALLEL,
    METHODS,
    ONE_DEPTH_ON_V1,
    SHUTDOWN_TIMEOUT,
    Capability,
)
from fathom.engine.frontend import why_rust_frontend
from fathom.engine.model_runner import captures_graphs, why_model_runner_v1
from fathom.engine.options import options
from fathom.engine.version import engine_version

_ADAPTIVE_FIELD = "spec.speculation.adaptiveVerification"


def live_depth_refusal(spec: SpeculativeDeploymentSpec) -> tuple[Reason, str] | None:
    """Why this engine's depth cannot be changed live, if it cannot.

    The pods of a refused spec are the static ones at `tokens`, whatever the tuning mode.
    """
    if not spec.drafts:
        return Reason.DRAFTING_DISABLED, (
            "spec.speculation.drafting is Disabled, so there is no depth to tune: set it to "
            "Enabled to have depth follow the traffic."
        )
    engine, depth = spec.engine, f"depth stays at tokens ({spec.speculation.tokens})"
    version = engine_version(engine)
    if version is None:
        return Reason.ENGINE_VERSION_UNKNOWN, (
            f"the tag of {engine.image} does not tell which vLLM it holds, so {depth}: "
            "set spec.engine.version."
        )
    obstacle = next(_obstacles(spec, version, depth), None)
    return None if obstacle is None else (Reason.LIVE_DEPTH_UNSUPPORTED, obstacle)


def _obstacles(spec: SpeculativeDeploymentSpec, version: Version, depth: str) -> Iterator[str]:
    """What stands against live depth in an engine of a known version, the first thing first."""
    if not LIVE_DEPTH.in_version(version):
        yield (
            f"depth can be changed live in vLLM {LIVE_DEPTH.versions}, and this is {version}, so "
            f"{depth}: change spec.engine.image.{_no_drain(spec.engine)}"
        )
    if spec.engine.data_parallel_size > 1 and not LIVE_DEPTH_DATA_PARALLEL.in_version(version):
        yield (
            f"vLLM drops the depth schedule when dataParallelSize is above 1, so {depth}: use more "
            "replicas instead to have it follow the traffic."
        )
    cause, method = why_model_runner_v1(spec), spec.draft.method
    if method not in LIVE_DEPTH.methods:
        others = LIVE_DEPTH.methods - (ONE_DEPTH_ON_V1 if cause else frozenset())
        yield (
            f"method {method} is not known to follow the depth schedule, so {depth}: "
            f"choose one of {', '.join(sorted(others))}."
        )
    if cause and captures_graphs(spec):
        yield (
            f"{cause} selects vLLM's Model Runner V1, which gives up its full CUDA graphs where "
            f"depth is live, so {depth}: remove it to have depth follow the traffic."
        )
    if cause and method in ONE_DEPTH_ON_V1:
        yield (
            f"{cause} selects vLLM's Model Runner V1, which drafts at one depth only with method "
            f"{method}, so {depth}: remove it to have depth follow the traffic."
        )
    if waits := _synchronous_pipeline(spec):
        yield (
            f"pipelineParallelSize above 1 needs another scheduler than the plugin with {waits}, "
            f"so {depth}: remove one of the two to have depth follow the traffic."
        )
    if cause := why_rust_frontend(spec):
        yield (
            f"{cause} selects vLLM's Rust frontend, which shows none of the plugin's counters, so "
            f"{depth}: remove it to have depth follow the traffic."
        )
    if spec.verifies_adaptively and not LIVE_DEPTH_ADAPTIVE.in_version(version):
        yield (
            "depth can be changed live beside adaptive verification in vLLM "
            f"{LIVE_DEPTH_ADAPTIVE.versions}, and this is {version}, so {depth}: change "
            "spec.engine.image, or set speculation.adaptiveVerification to Disabled."
        )


def _no_drain(engine: EngineSpec) -> str:
    """Said beside, since nothing else tells of it: such an engine is served all the same."""
    if engine_has(engine, SHUTDOWN_TIMEOUT):
        return ""
    return " It has no --shutdown-timeout either: a pod that goes aborts its requests."


def live_depth(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether the pods are started so that their depth can be changed live."""
    return spec.tunable and live_depth_refusal(spec) is None


def has_plugin(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether the pods are started with the plugin: to change depth, or to count at the one.

    Without speculation it counts where there is a draft, so that both can be compared.
    """
    return live_depth(spec) or (
        spec.tunable and (spec.drafts or spec.has_draft) and why_not_counted(spec) is None
    )


def why_not_counted(spec: SpeculativeDeploymentSpec) -> str | None:
    """Why the plugin does not count the steps of an engine whose depth is not live, if it does not.

    The second half of a sentence.
    """
    return next(_not_counted(spec), None)


def _not_counted(spec: SpeculativeDeploymentSpec) -> Iterator[str]:
    engine, method = spec.engine, spec.draft.method
    version = engine_version(engine)
    if version is None or not COUNTED.in_version(version):
        yield f"the plugin counts in vLLM {COUNTED.versions}"
    if spec.drafts and method not in COUNTED.methods:
        yield f"the plugin is not known to count with method {method}"
    if not spec.drafts and (own := _option(engine, "--scheduler-cls")):
        yield f"{own} in spec.engine.args is another scheduler than the one that it counts in"
    if cause := _synchronous_pipeline(spec):
        yield f"pipelineParallelSize above 1 needs another scheduler with {cause}"
    if cause := why_rust_frontend(spec):
        yield f"{cause} selects vLLM's Rust frontend, which shows none of its counters"
    if unlogged := _option(engine, "--disable-log-s"):
        yield f"{unlogged} in spec.engine.args turns off the statistics that it counts by"


def _option(engine: EngineSpec, beginning: str) -> str:
    """As the user writes it; empty: there is none."""
    stated = (each.spelling for each in options(engine.args) if each.name.startswith(beginning))
    return next(stated, "")


def _synchronous_pipeline(spec: SpeculativeDeploymentSpec) -> str:
    """What makes a pipeline's steps wait for each other, as the user writes it; empty: nothing.

    The plugin's scheduler is vLLM's asynchronous one, which vLLM itself takes for no such pipeline.
    With Model Runner V1 it schedules a request again before its last token is known: what keeps it
    back is there for V2 only (`next_decode_eligible_step` in
    vllm/v1/core/sched/async_scheduler.py, read in 0.32). V2 without asynchronous scheduling was not
    run.
    """
    if spec.engine.pipeline_parallel_size == 1:
        return ""
    return why_model_runner_v1(spec) or why_synchronous(spec)


def engine_has(engine: EngineSpec, capability: Capability) -> bool:
    """Whether this engine's release has it, whatever the method. One that is not known has all."""
    version = engine_version(engine)
    return version is None or capability.in_version(version)


def engine_problems(spec: SpeculativeDeploymentSpec) -> tuple[Problem, ...]:
    """What this spec asks for and its engine would not start with.

    What a draft would need is no matter where none is loaded. Of an engine whose version is not
    known, only what needs a known one is refused.
    """
    return tuple(_engine_problems(spec))


def _engine_problems(spec: SpeculativeDeploymentSpec) -> Iterator[Problem]:
    version = engine_version(spec.engine)
    if version is not None:
        yield from _missing(spec, version)
    if (problem := adaptive_verification_problem(spec)) is not None:
        yield problem


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


def adaptive_verification_problem(spec: SpeculativeDeploymentSpec) -> Problem | None:
    """Why adaptive verification cannot run on this engine, if it is asked for and cannot."""
    asks = spec.verifies_adaptively or spec.compares is Compares.ADAPTIVE_VERIFICATION
    refusal = _adaptive_verification_refusal(spec) if asks else None
    return Problem(_ADAPTIVE_FIELD, refusal) if refusal else None


def _adaptive_verification_refusal(spec: SpeculativeDeploymentSpec) -> str | None:
    engine, method = spec.engine, spec.draft.method
    offers = [offer for offer in ADAPTIVE_VERIFICATION if method in offer.methods]
    if not offers:
        return f"vLLM has no adaptive verification for method {method}: set it to Disabled."
    version = engine_version(engine)
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
    conflict = next(conflicts(spec, version), None)
    return f"{conflict}, or set this to Disabled." if conflict else None
