"""What a person reads: each survivor as a diff, and the score."""

import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mutants.candidates import mutated
from mutants.sampling import Candidate, Change
from mutants.session import Outcome
from mutants.survivors import Equivalent, stale

LEAST_SCORE: Final = 0.9


@dataclass(frozen=True, slots=True)
class Report:
    text: str
    killed: int
    counted: int
    """Mutants that are not listed as equivalent."""

    @property
    def enough(self) -> bool:
        return self.killed >= LEAST_SCORE * self.counted


def report_of(
    sample: Sequence[Candidate],
    outcomes: Mapping[str, Outcome],
    sources: Mapping[str, str],
    known: Sequence[Equivalent],
) -> Report:
    """Tell what became of a sample.

    Args:
        sample: its mutants.
        outcomes: of each of them, by its key.
        sources: the files of the module, by path.
        known: mutants that no test can kill.
    """
    text: list[str] = []
    equivalent = 0
    survived = [each for each in sample if not outcomes[each.key].killed]
    for each in survived:
        source = sources[each.path]
        after = mutated(source, each)
        change = Change.between(source, after)
        if any(entry.covers(each.path, change) for entry in known):
            equivalent += 1
            continue
        text += [f"\n{each.path}:{each.start[0]}  {outcomes[each.key].by}", *_diff(source, after)]
    text += [
        f"\nsurvivors.toml lists a line that {entry.file} no longer has; delete it: {entry.line}"
        for entry in stale(known, sources)
    ]
    killed, counted = len(sample) - len(survived), len(sample) - equivalent
    text.append(
        f"\n{killed} of {counted} mutants killed: {killed / max(1, counted):.1%}. "
        f"{equivalent} more survived and are listed as equivalent."
    )
    return Report("\n".join(text), killed, counted)


def _diff(source: str, mutated: str) -> Iterator[str]:
    lines = difflib.unified_diff(source.splitlines(), mutated.splitlines(), lineterm="", n=2)
    return itertools.islice(lines, 2, None)
