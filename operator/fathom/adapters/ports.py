"""The protocols between the operator and the world. Each has a real twin and a fake one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fathom.core.measurement import PodCounters


@dataclass(frozen=True, slots=True)
class PodEndpoint:
    """Where one serving pod's metrics are."""

    namespace: str
    pod: str
    ip: str
    port: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at several pods. A pod that could not be read is absent, never zero."""

    counters: tuple[PodCounters, ...]
    failures: tuple[str, ...] = ()
    """One sentence for each pod or source that could not be read."""


class MetricsPort(Protocol):
    """Where measurements come from. Never raises for what it cannot read: it says so."""

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        """Read the counters of these pods, each at its own time. Idempotent."""
        ...


class Clock(Protocol):
    """Wall-clock time, injected so that tests own it."""

    def now_s(self) -> float:
        """Unix seconds."""
        ...
