"""Which APIs the cluster serves."""

from dataclasses import dataclass
from typing import Final

from fathom.core.kinds import Kind


@dataclass(frozen=True, slots=True)
class ServedApis:
    """What discovery found. An API that is not served is gone without, and said so."""

    kinds: frozenset[tuple[str, str]] = frozenset()
    """Pairs of apiVersion and kind."""
    everything: bool = False
    """Assume that any API is served: no cluster was asked."""

    def has(self, kind: Kind) -> bool:
        return self.everything or (kind.api_version, kind.kind) in self.kinds


ALL: Final = ServedApis(everything=True)
"""For `fathom render`, which asks no cluster."""
