"""How much faster or slower one replica is that stays beside the others: the arm's verdict. Pure.

From the end of the bake on, faster or slower takes three standard errors, since it is looked at
often. At the end of the longest bake one look takes two. If that does not tell either, it is
watched on, and takes three again. No difference takes two at any time.
"""

from dataclasses import dataclass
from math import expm1, inf, log1p
from typing import Final

from fathom.api.choices import Compares
from fathom.api.status import Compared
from fathom.rollout.canary_evidence import CanaryEvidence
from fathom.rollout.canary_verdict import (
    EARLY_Z,
    END_Z,
    LEAST_WINDOWS,
    LONGEST_BAKE,
    MOST_LOSS,
    blind,
    harm_beside_speed,
)
from fathom.times import UnixSeconds

_NO_DIFFERENCE: Final = -log1p(-MOST_LOSS)
"""Difference of log speed: less, in both directions, is none that would hold a rollout back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What a comparison is called in sentences."""

    has: str
    """What the one replica is; `{draft}` stands for the draft on trial."""
    none: str
    """The edit that makes it like the others."""
    to_all: str
    """The edit that makes the others like it, as a whole sentence."""


WORDS: Final = {
    Compares.ADAPTIVE_VERIFICATION: Words(
        has="with adaptive verification",
        none="set spec.speculation.adaptiveVerification to Disabled",
        to_all="To run all replicas with adaptive verification, set "
        "spec.speculation.adaptiveVerification to Enabled.",
    ),
    Compares.DRAFTING: Words(
        has="without drafts",
        none="set spec.speculation.drafting to Enabled",
        to_all="To run all replicas without drafts, set spec.speculation.drafting to Disabled.",
    ),
    Compares.DRAFT: Words(
        has="with draft {draft}",
        none="remove spec.draft.trial",
        to_all="To adopt its draft, set spec.draft.id and spec.draft.revision to those of "
        "spec.draft.trial.",
    ),
}


def what_it_has(compares: Compares, draft: str) -> str:
    """What the one replica is, in words.

    Args:
        compares: what it has otherwise than the others.
        draft: the one on trial, if that is it.
    """
    return WORDS[compares].has.format(draft=draft)


_MEANS: Final = {
    Compared.FASTER: "",
    Compared.SLOWER: "That replica is slower than the others.",
    Compared.NO_DIFFERENCE: "That is no difference.",
    Compared.CANNOT_TELL: "So far that shows nothing; it is still watched, and what is found later "
    "will be shown here.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmComparison:
    """What was found, and stands."""

    found: Compared
    at_s: UnixSeconds
    """Unix seconds at which it was found."""
    mean: float = 0.0
    """Log ratio of the one replica's tokens per second per request to the others'."""
    error: float | None = None
    """Standard error of it; None: no speeds were compared."""
    remark: str = ""
    """What else differs, in a sentence, or why it cannot be told."""
    compares: Compares = Compares.ADAPTIVE_VERIFICATION
    """What the one replica has otherwise; an older Fathom knew nothing else."""
    own_depth: bool = False
    """Whether each side had a depth of its own."""

    @property
    def settled(self) -> bool:
        return self.found is not Compared.CANNOT_TELL

    @property
    def percent(self) -> str:
        """Difference of tokens per second per request; empty: no speeds were compared."""
        return "" if self.error is None else f"{expm1(self.mean) * 100:+.1f}"

    @property
    def interval_percent(self) -> str:
        """95 % of it."""
        if self.error is None:
            return ""
        low, high = (expm1(self.mean + z * self.error) * 100 for z in (-END_Z, END_Z))
        return f"{low:+.1f} to {high:+.1f}"

    def __str__(self) -> str:
        return " ".join(each for each in (self.finding, self._edit) if each)

    @property
    def finding(self) -> str:
        """What was found, in sentences; without the edit that would follow."""
        speed = ""
        if self.error is not None:
            at = ", each side at its own depth" if self.own_depth else ""
            speed = (
                f"{self.percent} % tokens per second per request at equal batch{at} "
                f"(95 %: {self.interval_percent})."
            )
        return " ".join(each for each in (speed, self.remark, _MEANS[self.found]) if each)

    @property
    def words(self) -> Words:
        """What it is called."""
        return WORDS[self.compares]

    @property
    def _edit(self) -> str:
        if self.found is Compared.FASTER:
            return self.words.to_all
        return f"To end it, {self.words.none}."


def comparison_of(
    evidence: CanaryEvidence,
    compares: Compares,
    *,
    baked_s: float,
    bake_s: float,
    now_s: float,
    doubted: bool = False,
    own_depth: bool = False,
) -> ArmComparison | None:
    """What has come of it; None: it is too early to say.

    Args:
        evidence: of both sides.
        compares: what the one replica has otherwise.
        baked_s: seconds since the one replica is ready.
        bake_s: seconds that it should be watched at least.
        now_s: Unix seconds.
        doubted: whether it could not be told before.
        own_depth: whether each side had a depth of its own.
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
        found=found,
        at_s=now_s,
        mean=speed.mean if known else 0.0,
        error=speed.error if known else None,
        remark=_beside(evidence) if found is not Compared.CANNOT_TELL else _why_not(evidence),
        compares=compares,
        own_depth=own_depth,
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
    if not evidence.looks:
        return "Nothing could be compared: a pod that is held at a depth is no measure."
    if blind(evidence):
        return "The metrics of one side or of both could not be read."
    if not evidence.canary.tokens:
        return "It served no requests."
    if evidence.speed.windows < LEAST_WINDOWS:
        return "Both sides were hardly ever busy with batches of the same size."
    return ""
