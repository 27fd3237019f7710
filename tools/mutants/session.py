"""What earlier runs found, so that an interrupted one goes on."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from mutants.selection import Recorded


@dataclass(frozen=True, slots=True)
class Outcome:
    key: str
    """Key of the candidate."""
    source: str
    """Digest of the file that was mutated."""
    tests: str
    """Digest of all tests of the module."""
    killed: bool
    by: str
    """The test that failed, or what else ended it."""
    seconds: float

    def holds(self, source: str, tests: str) -> bool:
        """Whether a run today would end the same."""
        return self.source == source and (self.killed or self.tests == tests)


class Session:
    """A file of outcomes, one a line; the last of a key counts."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file
        self.outcomes: dict[str, Outcome] = {}
        if file.exists():
            for line in file.read_text().splitlines():
                outcome = Outcome(**json.loads(line))
                self.outcomes[outcome.key] = outcome

    def add(self, outcome: Outcome) -> None:
        self.outcomes[outcome.key] = outcome
        with self._file.open("a") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")


class Recordings:
    """What clean runs executed, by file of tests and by what it and the sources were."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def path(self, test_file: str, digest: str) -> Path:
        """Where the recording of a file of tests is, or is to be."""
        return self._folder / f"{test_file.replace('/', '.')}-{digest}.json"

    def read(self, files: Iterable[Path]) -> Recorded:
        """All of them as one."""
        recorded = Recorded()
        for each in files:
            found = json.loads(each.read_text())
            recorded.add(found["seconds"], found["lines"])
        return recorded


def digest(texts: Mapping[str, str]) -> str:
    """Digest of files by path."""
    joined = "\0".join(f"{path}\0{text}" for path, text in sorted(texts.items()))
    return hashlib.sha256(joined.encode()).hexdigest()[:16]
