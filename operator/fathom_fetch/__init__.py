"""Fetches a model's and its draft's files into a cache that pods share, and shows how far it is.

Runs in the engine's own image, delivered by a ConfigMap: nothing but the standard library and what
vLLM brings along (huggingface_hub from 0.36 on, prometheus_client), and Python from 3.10 on.
"""
