"""Starts engines one after the other, each at one depth after the other, and puts load on them.

Or asks vLLM whether it takes the arguments: `start_probe`. Runs in the engine's own image,
delivered by a ConfigMap: nothing but the standard library, the `vllm` that is there, and Python
from 3.10 on.
"""
