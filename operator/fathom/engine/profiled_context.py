"""At which context vLLM measures what verifying costs, where it cuts drafts by that.

Source: `VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN` in vllm/envs.py (0.32).
"""

from typing import Final

PROFILED_CONTEXT: Final = "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN"
"""The variable that says it, in tokens."""
PROFILED_BY_DEFAULT: Final = 8192
"""Tokens, where it is not set."""
