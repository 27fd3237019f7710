"""What each vLLM release can do. The only place where vLLM versions are compared.

Sources: the wheels of 0.22.1 to 0.33.0, read; 0.28.0 and 0.32.0 run on the CPU.
"""

from dataclasses import dataclass
from typing import Final

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from fathom.api.conditions import Reason
from fathom.api.problem import Problem
from fathom.api.spec import Method, SpeculativeDeploymentSpec, Switch
from fathom.core.engine_version import engine_version


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing that an engine can do from some release on."""

    versions: SpecifierSet
    methods: frozenset[Method]

    def in_version(self, version: Version) -> bool:
        return self.versions.contains(version, prereleases=True)


LIVE_DEPTH: Final = Capability(
    # 0.32: Model Runner V2, the default on GPUs, honours the depth of each step. The upper bound:
    # the scheduler's interface is not public, so a release counts once it has been looked at.
    SpecifierSet(">=0.32.0,<0.34"),
    # 0.33 drops the schedule for every other method.
    frozenset(
        {
            Method.NGRAM,
            Method.EAGLE,
            Method.EAGLE3,
            Method.MTP,
            Method.DRAFT_MODEL,
            Method.DFLASH,
        }
    ),
)
EAGLE31_ON_MLA: Final = Capability(
    # 0.22 builds `fc_norm` for MLA drafts and never applies it: the engine runs, and acceptance
    # is far below what the draft is worth.
    SpecifierSet(">=0.23.0"),
    frozenset({Method.EAGLE3}),
)
ADAPTIVE_VERIFICATION: Final = (
    Capability(SpecifierSet(">=0.28.0"), frozenset({Method.DSPARK})),
    Capability(
        SpecifierSet(">=0.30.0"),
        frozenset({Method.EAGLE, Method.EAGLE3, Method.MTP, Method.DRAFT_MODEL}),
    ),
)


def live_depth_refusal(spec: SpeculativeDeploymentSpec) -> tuple[Reason, str] | None:
    """Why this engine's depth cannot be changed live, if it cannot.

    The pods of a refused spec are the static ones at `tokens`, whatever the tuning mode.
    """
    engine, depth = spec.engine, f"depth stays at tokens ({spec.speculation.tokens})"
    version = engine_version(engine)
    if version is None:
        return Reason.ENGINE_VERSION_UNKNOWN, (
            f"the tag of {engine.image} does not tell which vLLM it holds, so {depth}: "
            "set spec.engine.version."
        )
    if not LIVE_DEPTH.in_version(version):
        return Reason.LIVE_DEPTH_UNSUPPORTED, (
            f"depth can be changed live in vLLM {LIVE_DEPTH.versions}, and this is {version}, so "
            f"{depth}: change spec.engine.image."
        )
    if engine.data_parallel_size > 1:
        return Reason.LIVE_DEPTH_UNSUPPORTED, (
            f"vLLM drops the depth schedule when dataParallelSize is above 1, so {depth}: use "
            "more replicas instead."
        )
    if spec.draft.method not in LIVE_DEPTH.methods:
        return Reason.LIVE_DEPTH_UNSUPPORTED, (
            f"method {spec.draft.method} ignores the depth schedule, so {depth}: choose one of "
            f"{', '.join(sorted(LIVE_DEPTH.methods))}."
        )
    return None


def live_depth(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether the pods are started so that their depth can be changed live."""
    return spec.tunable and live_depth_refusal(spec) is None


def adaptive_verification_problem(spec: SpeculativeDeploymentSpec) -> Problem | None:
    """Why adaptive verification cannot run on this engine, if it is asked for and cannot."""
    if spec.speculation.adaptive_verification is Switch.DISABLED:
        return None
    refusal = _adaptive_verification_refusal(spec)
    return Problem("spec.speculation.adaptiveVerification", refusal) if refusal else None


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
    if engine.attention_backend.lower() == "tokenspeed_mla":
        return (
            "tokenspeed_mla cannot do it: choose another attentionBackend, or set it to Disabled."
        )
    if engine.pipeline_parallel_size > 1:
        return "vLLM cannot combine it with pipelineParallelSize above 1: set it to Disabled."
    return None
