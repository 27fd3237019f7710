"""The mutants that no test can kill, listed with the reason."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mutants.sampling import Change


@dataclass(frozen=True, slots=True)
class Equivalent:
    """Mutants of one place that change nothing anyone could notice."""

    file: str
    line: str
    """As it stands, without its indentation."""
    mutants: tuple[str, ...]
    """What it became."""
    reason: str

    def covers(self, path: str, change: Change) -> bool:
        return (self.file, self.line) == (path, change.before) and change.after in self.mutants


def listed(file: Path) -> Sequence[Equivalent]:
    """What the file lists.

    Raises:
        TypeError: an entry lacks a key or has one too many.
    """
    entries = tomllib.loads(file.read_text()).get("equivalent", [])
    return [Equivalent(**{**each, "mutants": tuple(each["mutants"])}) for each in entries]


def stale(known: Sequence[Equivalent], sources: Mapping[str, str]) -> Sequence[Equivalent]:
    """Entries of these files whose line is gone."""
    texts = {path: " ".join(source.split()) for path, source in sources.items()}
    return [each for each in known if each.file in texts and each.line not in texts[each.file]]
