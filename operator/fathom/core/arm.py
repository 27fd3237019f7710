"""The arm: one replica that differs from the others in one setting, to be compared. Pure."""

from typing import Final

from fathom.api.choices import AdaptiveVerification, Compares, Drafting
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.core.replicas import ReplicaBounds

LEAST_REPLICAS: Final = 2


def arm_of(spec: SpeculativeDeploymentSpec) -> SpeculativeDeploymentSpec | None:
    """The spec of the one replica that is compared with the others; None: none is asked for."""
    match spec.compares:
        case None:
            return None
        case Compares.ADAPTIVE_VERIFICATION:
            wished: dict[str, object] = {"adaptive_verification": AdaptiveVerification.ENABLED}
        case Compares.DRAFTING:
            wished = {"drafting": Drafting.DISABLED}
    speculation = spec.speculation.model_copy(update=wished)
    return spec.model_copy(update={"speculation": speculation})


def beside_arm(spec: SpeculativeDeploymentSpec) -> int:
    """How many other replicas there are while the arm is there."""
    rollout = spec.rollout
    return ReplicaBounds(spec.replicas, rollout.max_unavailable, rollout.max_surge).beside(1)


def why_no_arm(spec: SpeculativeDeploymentSpec) -> str:
    """What in the spec keeps the arm from being compared, and what to do; empty: nothing."""
    if spec.replicas < LEAST_REPLICAS and not (spec.replicas and spec.rollout.max_surge):
        return (
            "it is compared with a replica beside it: set spec.replicas to 2 or more, or "
            "spec.rollout.maxSurge to 1 where there are GPUs for one more"
        )
    if not spec.rollout.canary_minutes:
        return "spec.rollout.canaryMinutes is 0, and so long it is compared: set it to 20 or more"
    return ""
