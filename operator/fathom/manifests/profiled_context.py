"""What to see to where drafts are cut by what verifying them costs at some context. Pure."""

from collections.abc import Iterator

from fathom.api.choices import AdaptiveVerification
from fathom.api.problem import Problem
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.profiled_context import PROFILED_BY_DEFAULT, PROFILED_CONTEXT


def profiled_context_doubts(spec: SpeculativeDeploymentSpec) -> Iterator[Problem]:
    """Where nobody says which context the traffic has."""
    cuts = spec.speculation.adaptive_verification is not AdaptiveVerification.DISABLED
    if cuts and all(each.name != PROFILED_CONTEXT for each in spec.engine.env):
        yield Problem(
            "spec.engine.env",
            f"{PROFILED_CONTEXT} is not set: adaptive verification cuts drafts by what verifying "
            f"them costs at {PROFILED_BY_DEFAULT} tokens of context, measured once at start. With "
            "shorter contexts it cuts what is nearly free: set it to the mean context of your "
            "requests, which `fathom explain` tells.",
        )
