"""The arm: one replica with adaptive verification, beside others of the same spec without. Pure."""

from typing import Final

from fathom.api.choices import AdaptiveVerification
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.core.replicas import ReplicaBounds

LEAST_REPLICAS: Final = 2


def arm_of(spec: SpeculativeDeploymentSpec) -> SpeculativeDeploymentSpec | None:
    """The spec of the one replica that is compared with the others; None: none is asked for."""
    speculation = spec.speculation
    if not spec.drafts or speculation.adaptive_verification is not AdaptiveVerification.CANARY:
        return None
    wished = {"adaptive_verification": AdaptiveVerification.ENABLED}
    return spec.model_copy(update={"speculation": speculation.model_copy(update=wished)})


def beside_arm(spec: SpeculativeDeploymentSpec) -> int:
    """How many replicas there are without it while the arm is there."""
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
