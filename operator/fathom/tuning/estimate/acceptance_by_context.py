"""Acceptance by context: many drafts are worse at contexts that they were not trained with. Pure.

It is shown, and no depth follows from it. The first token's acceptance is compared, which does not
depend on how deep drafts are. Requests of other contexts are often of other text as well, so a
difference is evidence against a draft, and no proof.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import sqrt
from operator import add
from typing import Final

from fathom.measurement.counters import NO_CONTEXT, ContextCounts
from fathom.measurement.deltas import PodDelta
from fathom.tuning.estimate.acceptance_length import decay
from fathom_vllm.buckets import CONTEXT_RANGES, context_range, first_context, last_context

HALF_LIFE_S: Final = 1800.0
"""Half-life of what is shown by context: long requests are few, and nothing is decided by it."""
CONTEXT_COLUMNS: Final = ("context", "drafts", "first token", "±", "accepted of drafted")
"""What `ContextAcceptance.row` has."""
_MOST_TOKENS: Final = 1e12
"""No engine drafts so many in a window; a page may show anything, and squares are kept."""
_LITTLE: Final = 0.005
"""Shares below half a percent are shown as less than one."""
LEAST_DRAFTS: Final = 200.0
"""Drafts of one range of contexts: fewer say nothing of acceptance there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSums:
    """Drafts of one range of contexts, discounted by their age."""

    index: int
    """The range, counted from 0."""
    counts: ContextCounts = NO_CONTEXT
    drafts_squared: float = 0.0
    """Sum of the squares of each pod's drafts in each window; so the other two."""
    first_squared: float = 0.0
    first_by_drafts: float = 0.0

    def aged(self, kept: float) -> "ContextSums":
        """When that share of it is kept."""
        old = self.counts
        counts = ContextCounts(
            kept * old.drafts, kept * old.tokens, kept * old.accepted, kept * old.first_accepted
        )
        return replace(
            self,
            counts=counts,
            drafts_squared=kept**2 * self.drafts_squared,
            first_squared=kept**2 * self.first_squared,
            first_by_drafts=kept**2 * self.first_by_drafts,
        )

    def with_window(self, window: ContextCounts) -> "ContextSums":
        """With what one pod counted in one more window."""
        drafts, first = window.drafts, window.first_accepted
        return replace(
            self,
            counts=self.counts + window,
            drafts_squared=self.drafts_squared + drafts**2,
            first_squared=self.first_squared + first**2,
            first_by_drafts=self.first_by_drafts + first * drafts,
        )

    def __add__(self, other: "ContextSums") -> "ContextSums":
        """Both ranges together, named by the shorter one."""
        return ContextSums(
            index=min(self.index, other.index),
            counts=self.counts + other.counts,
            drafts_squared=self.drafts_squared + other.drafts_squared,
            first_squared=self.first_squared + other.first_squared,
            first_by_drafts=self.first_by_drafts + other.first_by_drafts,
        )

    @property
    def length(self) -> float:
        """Tokens of a step with such a draft, on average."""
        return 1 + self.counts.accepted / self.counts.drafts

    @property
    def first(self) -> float:
        """Share of the drafts whose first token was accepted."""
        return max(0.0, min(1.0, self.counts.first_accepted / self.counts.drafts))

    @property
    def error(self) -> float:
        """Standard error of `first`: by the scatter between windows, and no less than by chance.

        That of a ratio estimator (Cochran, Sampling Techniques, 1977, 2.11): the windows' residuals
        over the whole. Requests of one text, and steps that count as several, are in the scatter.
        """
        drafts, first = self.counts.drafts, self.first
        # As if one more had been accepted and one more rejected: no error is zero.
        likely = (first * drafts + 1) / (drafts + 2)
        chance = likely * (1 - likely) / drafts
        residuals = (
            self.first_squared - 2 * first * self.first_by_drafts + first**2 * self.drafts_squared
        )
        return sqrt(max(chance, residuals / (drafts * drafts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextAcceptance:
    """What is known of one range of contexts."""

    context_ge: int
    """Its shortest context, in tokens."""
    context_le: int | None
    """Its longest; None: it has no end."""
    drafts: float
    """What this rests on: drafts of the last half hour or so."""
    share: float
    """Its part of all drafts, 0 to 1."""
    first: float | None
    """P(the first token is accepted); None: too few drafts."""
    error: float | None
    """One standard error of it."""
    accepted: float | None
    """Tokens accepted of a draft, on average."""
    drafted: float | None
    """Tokens of a draft, on average."""

    @property
    def row(self) -> tuple[str, ...]:
        """In words, under `CONTEXT_COLUMNS`."""
        share = f"{self.share:.0%}" if self.share >= _LITTLE else "<1%"
        if self.first is None or self.error is None:
            return (self.contexts, share, "?", "", "")
        mean = f"{self.accepted:.2f} of {self.drafted:.2f}"
        return (self.contexts, share, f"{self.first:.0%}", f"{self.error:.1%}", mean)

    @property
    def contexts(self) -> str:
        """The range, such as `2k-4k`: thousands of 1,024, without the end."""
        first = thousands(self.context_ge)
        if self.context_le is None:
            return f"{first} and more"
        return f"{first}-{thousands(self.context_le + 1)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """Drafts by the context of their request."""

    ranges: tuple[ContextSums, ...] = ()
    """Those that had any, ascending."""
    at_s: float = 0.0
    """When the last window ended (Unix seconds)."""

    def updated(self, deltas: Iterable[PodDelta], at_s: float) -> "Contexts":
        """With one more window. Without drafts nothing changes, so that at rest nothing is written.

        Args:
            deltas: what each pod counted.
            at_s: when the window ended (Unix seconds).
        """
        windows = [
            (each, window)
            for pod in deltas
            for each, window in pod.contexts.items()
            if max(window.drafts, window.tokens) <= _MOST_TOKENS
        ]
        if not windows:
            return self
        kept = decay(max(0.0, at_s - self.at_s), HALF_LIFE_S) if self.at_s else 1.0
        known = {each.index: each.aged(kept) for each in self.ranges}
        for each, window in windows:
            # By the ranges of this version, whatever those of the plugin are.
            index = context_range(each.context_ge)
            known[index] = known.get(index, ContextSums(index=index)).with_window(window)
        ranges = tuple(known[index] for index in sorted(known) if known[index].counts.drafts >= 1)
        return Contexts(ranges=ranges, at_s=at_s)

    def parted(self) -> Iterator[tuple[ContextSums, ContextSums]]:
        """All shorter contexts and all longer ones, parted between each two ranges in turn."""
        known = self._known()
        for at in range(1, len(known)):
            yield reduce(add, known[:at]), reduce(add, known[at:])

    def acceptance(self) -> tuple[ContextAcceptance, ...]:
        """Range by range; empty: nothing was drafted lately, or plugins are older."""
        total = sum(each.counts.drafts for each in self._known())
        return tuple(_acceptance(each, total) for each in self._known())

    def _known(self) -> Sequence[ContextSums]:
        """Those that make sense: what was kept may say anything."""
        return [
            each
            for each in self.ranges
            if 0 <= each.index < CONTEXT_RANGES and each.counts.drafts >= 1
        ]


def _acceptance(sums: ContextSums, total: float) -> ContextAcceptance:
    counts = sums.counts
    enough = counts.drafts >= LEAST_DRAFTS
    return ContextAcceptance(
        context_ge=first_context(sums.index),
        context_le=last_context(sums.index),
        drafts=counts.drafts,
        share=counts.drafts / total,
        first=sums.first if enough else None,
        error=sums.error if enough else None,
        accepted=counts.accepted / counts.drafts if enough else None,
        drafted=counts.tokens / counts.drafts if enough else None,
    )


def thousands(tokens: int) -> str:
    """Such as `32k`, of 1,024 each."""
    return f"{tokens // 1024}k" if tokens else "0"
