"""What came of operations that were tried. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from fathom.reconcile.writing.operations import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The operations are in order. A failure that may pass by itself ends the attempt."""

    written: tuple[Operation, ...] = ()
    """Those that the API server took."""
    refused: tuple[tuple[Operation, str], ...] = ()
    """Those that it refuses for good, each with a sentence."""
    broke_off: tuple[Operation, str] | None = None
    """The one that failed in a way that may pass by itself, so that the rest was not tried."""
    outdated: bool = False
    """Whether that one found the cluster in another state than the one it was decided on."""
    raised: Exception | None = None
    """An error of our own, at which the rest was given up."""

    @property
    def tried(self) -> bool:
        """Whether anything was sent."""
        return bool(self.written or self.refused or self.broke_off)

    @property
    def failed(self) -> tuple[tuple[Operation, str], ...]:
        """Those that failed, in order, each with a sentence."""
        return (*self.refused, *((self.broke_off,) if self.broke_off else ()))

    def left(self, wanted: Sequence[Operation]) -> tuple[Operation, ...]:
        """Those of what was wanted that were not written."""
        return tuple(each for each in wanted if not any(each is done for done in self.written))
