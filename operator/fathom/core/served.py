"""Which APIs the cluster serves."""

from dataclasses import dataclass
from typing import Final

from fathom.core.kinds import Kind


@dataclass(frozen=True, slots=True)
class ServedApis:
    """What discovery found. An API that is not served is gone without, and said so."""

    kinds: frozenset[tuple[str, str]] = frozenset()
    """Pairs of apiVersion and kind."""
    version: tuple[int, int] | None = None
    """Of the API server, such as (1, 34); None: not known."""
    everything: bool = False
    """Assume that any API is served: no cluster was asked."""

    def has(self, kind: Kind) -> bool:
        return self.everything or (kind.api_version, kind.kind) in self.kinds

    def since(self, version: tuple[int, int]) -> bool:
        """Whether the API server is known to be of this version or newer.

        For fields: one that a server does not know makes it refuse the whole object.
        """
        return self.everything or (self.version is not None and self.version >= version)


ALL: Final = ServedApis(everything=True)
"""For `fathom render`, which asks no cluster."""
