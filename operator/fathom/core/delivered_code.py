"""Code that runs in pods beside what their image holds."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeliveredCode:
    """One version of it."""

    files: Mapping[str, str]
    """Path relative to the directory on `PYTHONPATH`, and its text."""
    content: str
    """Changes whenever any path or text does. It names the ConfigMap, which is immutable."""
