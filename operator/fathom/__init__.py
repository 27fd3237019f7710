"""Fathom: speculative decoding on Kubernetes whose depth follows live measurements."""

from importlib.metadata import version

__version__ = version("fathom")
