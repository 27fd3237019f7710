"""A sample of the mutants that there could be."""

import difflib
import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

Position = tuple[int, int]
"""Line from 1, column from 0."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One mutant that could be made."""

    path: str
    operator: str
    occurrence: int
    """Number of this operator in the file, from 0."""
    start: Position
    end: Position
    key: str
    """What it is called whatever stands elsewhere in the file."""

    @property
    def site(self) -> tuple[str, Position, Position]:
        """What it replaces; other mutants may replace it otherwise."""
        return self.path, self.start, self.end


def drawn(found: Iterable[Candidate], seed: int) -> list[Candidate]:
    """All of them in the order in which a seed draws them: first one of each place, then another.

    The draw of each mutant depends on the seed and on its own line, so that an edit changes the
    sample by what it edits.
    """
    ranked = sorted(found, key=lambda each: hashlib.sha256(f"{seed}|{each.key}".encode()).digest())
    taken: Counter[tuple[str, Position, Position]] = Counter()
    turns = []
    for rank, each in enumerate(ranked):
        taken[each.site] += 1
        turns.append((taken[each.site], rank, each))
    return [each for *_, each in sorted(turns, key=lambda turn: turn[:2])]


@dataclass(frozen=True, slots=True)
class Change:
    """What a mutant changes, as a person reads it."""

    before: str
    after: str

    @classmethod
    def between(cls, source: str, mutated: str) -> "Change":
        """Compare two versions of a file; what is on its lines, joined by a blank."""
        changed = list(difflib.ndiff(source.splitlines(), mutated.splitlines()))
        before, after = (
            " ".join(
                " ".join(each[2:].split())
                for each in changed
                if each.startswith(sign) and each[2:].strip()
            )
            for sign in ("- ", "+ ")
        )
        return cls(before, after)
