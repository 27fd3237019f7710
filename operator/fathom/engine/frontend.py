"""Which of vLLM's two frontends an engine gets: the server that also answers `/metrics`. Pure.

The one in Rust loads no plugin for statistics (`vllm.stat_logger_plugins`), so that the plugin's
counters are made and never shown. Source: `VLLM_USE_RUST_FRONTEND` in vllm/envs.py and
vllm/entrypoints/cli/serve.py, read in 0.32 and 0.33.
"""

from typing import Final

from fathom.api.spec import SpeculativeDeploymentSpec

FRONTEND_VARIABLE: Final = "VLLM_USE_RUST_FRONTEND"


def why_rust_frontend(spec: SpeculativeDeploymentSpec) -> str:
    """What in the spec selects the one in Rust, as the user writes it; empty: it is Python's."""
    stated = [each.value for each in spec.engine.env if each.name == FRONTEND_VARIABLE]
    return f"{FRONTEND_VARIABLE} in spec.engine.env" if stated and _is_set(stated[-1]) else ""


def _is_set(text: str | None) -> bool:
    """Whether it is what vLLM reads as True; what is no number ends it at start."""
    try:
        return int(text or "0") != 0
    except ValueError:
        return False
