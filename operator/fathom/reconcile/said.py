"""What the status said last, and when it may say something else. Pure."""

from dataclasses import dataclass
from typing import Final

from fathom.api.status import SpeculativeDeploymentStatus
from fathom.core.reporting.status import same, urgent
from fathom.core.times import is_over
from fathom.reconcile.writing.retry import Retry

QUIET_S: Final = 60.0
"""Least time between two writes that nobody waits for."""


@dataclass(frozen=True, slots=True)
class Said:
    """The last write of the status.

    What is there afterwards need not be what was written: an older CRD drops what it does not know,
    and others may have fields in it. To write the same again would change nothing.
    """

    at_s: float
    """Unix seconds; minus infinity: there was none."""
    written: SpeculativeDeploymentStatus | None = None
    """None: this operator has written none."""
    kept: SpeculativeDeploymentStatus | None = None
    """What the API server made of it; None: nothing that can be read."""
    version: str | None = None
    """Of the resource, with it; None: this operator has written none."""
    refused: Retry | None = None
    """None: the API server takes it."""

    def stands(
        self, new: SpeculativeDeploymentStatus, live: SpeculativeDeploymentStatus | None
    ) -> bool:
        """Whether there is nothing to write.

        Args:
            new: what should be said.
            live: what is there; None: nothing that can be read.
        """
        return same(new, live) or (same(new, self.written) and live == self.kept)

    def wait_s(
        self,
        new: SpeculativeDeploymentStatus,
        live: SpeculativeDeploymentStatus | None,
        now_s: float,
    ) -> float:
        """Seconds until it may be written."""
        if self.refused is not None:
            return self.refused.left_s(now_s)
        if urgent(new, self.written or live) or is_over(self.at_s, QUIET_S, now_s):
            return 0.0
        return self.at_s + QUIET_S - now_s
