"""Which APIs the cluster serves."""

from dataclasses import dataclass, replace
from typing import Final

from fathom.core.cluster.kinds import Kind

VERSION: Final = "version"


@dataclass(frozen=True, slots=True)
class ServedApis:
    """What discovery found. An API that is not served is gone without, and said so."""

    kinds: frozenset[tuple[str, str]] = frozenset()
    """Pairs of apiVersion and kind."""
    version: tuple[int, int] | None = None
    """Of the API server, such as (1, 34); None: not known."""
    unknown: frozenset[str] = frozenset()
    """Each apiVersion, and "version", that the server could not show just now."""
    everything: bool = False
    """Assume that any API is served: no cluster was asked."""

    def has(self, kind: Kind) -> bool:
        return self.everything or (kind.api_version, kind.kind) in self.kinds

    def since(self, version: tuple[int, int]) -> bool:
        """Whether the API server is known to be of this version or newer.

        For fields: one that a server does not know makes it refuse the whole object.
        """
        return self.everything or (self.version is not None and self.version >= version)

    def or_before(self, before: "ServedApis") -> "ServedApis":
        """What is unknown now is as it was before."""
        known = {each for each in before.kinds if each[0] in self.unknown}
        version = before.version if VERSION in self.unknown else self.version
        return replace(self, kinds=self.kinds | known, version=version)


ALL: Final = ServedApis(everything=True)
"""For `fathom render`, which asks no cluster."""
