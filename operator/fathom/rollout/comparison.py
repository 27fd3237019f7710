"""How much faster or slower one replica is that stays beside the others: the arm's verdict. Pure.

Nobody waits for it, so it may take as long as it takes: what is settled at the end of the bake is
settled by three standard errors, since it is looked at often from then on; at the end of the
longest bake two decide, once. What cannot be told by then is watched on, and three decide again.
"""

from dataclasses import dataclass
from math import expm1, inf, log1p
from typing import Final

from fathom.api.status import Compared
from fathom.rollout.evidence import CanaryEvidence
from fathom.rollout.unix_seconds import UnixSeconds
from fathom.rollout.verdict import (
    EARLY_Z,
    END_Z,
    LEAST_WINDOWS,
    LONGEST_BAKE,
    MOST_LOSS,
    blind,
    harm_beside_speed,
)

_NO_DIFFERENCE: Final = -log1p(-MOST_LOSS)
"""Of log speed: less, in both directions, is none that a rollout would be held back for."""
_FIELD: Final = "spec.speculation.adaptiveVerification"


@dataclass(frozen=True, slots=True)
class ArmComparison:
    """What was found, and stands."""

    found: Compared
    at_s: UnixSeconds
    """Unix seconds at which it was found."""
    mean: float = 0.0
    """Log ratio of the one replica's tokens per second and request to the others'."""
    error: float | None = None
    """Standard error of it; None: no speeds were compared."""
    remark: str = ""
    """What else differs, in a sentence, or why it cannot be told."""

    @property
    def settled(self) -> bool:
        return self.found is not Compared.CANNOT_TELL

    @property
    def percent(self) -> str:
        """Of tokens per second and request; empty: no speeds were compared."""
        return "" if self.error is None else f"{expm1(self.mean) * 100:+.1f}"

    @property
    def interval_percent(self) -> str:
        """95 % of it."""
        if self.error is None:
            return ""
        low, high = (expm1(self.mean + z * self.error) * 100 for z in (-END_Z, END_Z))
        return f"{low:+.1f} to {high:+.1f}"

    def __str__(self) -> str:
        speed = ""
        if self.error is not None:
            speed = (
                f"{self.percent} % tokens per second and request at equal batch "
                f"(95 %: {self.interval_percent}). "
            )
        remark = f"{self.remark} " if self.remark else ""
        return f"{speed}{remark}{_ADVICE[self.found]}"


_ADVICE: Final = {
    Compared.FASTER: f"To have it in all replicas, set {_FIELD} to Enabled.",
    Compared.SLOWER: f"To have it in none, set {_FIELD} to Disabled.",
    Compared.NO_DIFFERENCE: (f"That is no difference: to be rid of it, set {_FIELD} to Disabled."),
    Compared.CANNOT_TELL: (
        "So far that tells nothing; it is watched on, and what is found later will stand here. To "
        f"end it, set {_FIELD} to Disabled."
    ),
}


def comparison_of(
    evidence: CanaryEvidence, *, baked_s: float, bake_s: float, now_s: float, doubted: bool = False
) -> ArmComparison | None:
    """What has come of it; None: it is too early to say.

    Args:
        evidence: of both sides.
        baked_s: seconds since the one replica is ready.
        bake_s: seconds that it should be watched at least.
        now_s: Unix seconds.
        doubted: whether it could not be told before.
    """
    if baked_s < bake_s:
        return None
    over = baked_s >= LONGEST_BAKE * bake_s
    found = _found(evidence, END_Z if over and not doubted else EARLY_Z)
    if found is None:
        found = Compared.CANNOT_TELL if over else None
    if found is None:
        return None
    speed = evidence.speed
    known = speed.error < inf  # of two windows or more
    return ArmComparison(
        found,
        now_s,
        mean=speed.mean if known else 0.0,
        error=speed.error if known else None,
        remark=_beside(evidence) if found is not Compared.CANNOT_TELL else _why_not(evidence),
    )


def _found(evidence: CanaryEvidence, z: float) -> Compared | None:
    speed = evidence.speed
    if blind(evidence) or speed.windows < LEAST_WINDOWS or speed.error == inf:
        return None
    if abs(speed.mean) + END_Z * speed.error <= _NO_DIFFERENCE:
        return Compared.NO_DIFFERENCE
    if speed.mean - z * speed.error > 0:
        return Compared.FASTER
    return Compared.SLOWER if speed.mean + z * speed.error < 0 else None


def _beside(evidence: CanaryEvidence) -> str:
    """What speed does not tell."""
    harm = harm_beside_speed(evidence, END_Z)
    return f"But {harm.message}" if harm is not None else ""


def _why_not(evidence: CanaryEvidence) -> str:
    if blind(evidence):
        return "The metrics of one side or of both could not be read."
    if not evidence.canary.tokens:
        return "It served no requests."
    if evidence.speed.windows < LEAST_WINDOWS:
        return "Both sides were hardly ever busy with batches of the same size."
    return ""
