"""What the tuner remembers. Placeholder until the estimators land; see `tuner.py`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TuningState:
    """Sufficient statistics; `to_json` is what survives a restart of the operator."""
