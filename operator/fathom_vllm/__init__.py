"""Two hooks for stock vLLM: live speculation depth, and counts per batch and depth.

Nothing is imported here: vLLM loads this package in two processes, and each needs only its own
half. The operator never imports the halves, only the pure modules and `fathom_vllm.bundle`.
"""

__version__ = "0.1.0"
