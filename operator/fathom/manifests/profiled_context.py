"""At which context vLLM measures what verifying costs, where it cuts drafts by that. Pure.

Source: `VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN` in vllm/envs.py (0.32).
"""

from collections.abc import Iterator
from typing import Final

from fathom.api.choices import AdaptiveVerification
from fathom.api.problem import Problem
from fathom.api.spec import SpeculativeDeploymentSpec

PROFILED_CONTEXT: Final = "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN"
_BY_DEFAULT: Final = 8192


def profiled_context_doubts(spec: SpeculativeDeploymentSpec) -> Iterator[Problem]:
    """Where nobody says which context the traffic has."""
    cuts = spec.speculation.adaptive_verification is not AdaptiveVerification.DISABLED
    if cuts and all(each.name != PROFILED_CONTEXT for each in spec.engine.env):
        yield Problem(
            "spec.engine.env",
            f"{PROFILED_CONTEXT} is not set: adaptive verification cuts drafts by what verifying "
            f"them costs at {_BY_DEFAULT} tokens of context, measured once at start. With shorter "
            "contexts it cuts what is nearly free: set it to the mean context of your requests, "
            "which `fathom explain` tells.",
        )
