"""Checks the subject of a commit message against the rules of CONTRIBUTING.md, "Commits".

    python tools/commit_subject.py .git/COMMIT_EDITMSG

Exit code 1 means that it is refused, with a sentence for each problem. `pre-commit install` makes
it Git's commit-msg hook.
"""

import re
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Final

LONGEST: Final = 72
"""Characters of a subject: what `git log` shows in a terminal of 80 columns."""
IMPERATIVES: Final = frozenset(
    {
        *("bleed", "breed", "embed", "exceed", "feed", "heed", "need", "proceed", "seed", "shed"),
        *("shred", "speed", "succeed", "weed"),
        *("bring", "cling", "fling", "ping", "ring", "sling", "spring", "string", "swing", "wring"),
    }
)
"""Verbs whose imperative ends in "ed" or "ing"."""
_SCISSORS: Final = re.compile(r"# -+ >8 -+")
"""The line below which Git ignores everything, as `git commit --verbose` writes it."""
_AUTOSQUASH: Final = re.compile(r"^((fixup|squash|amend)! )+")
"""The prefixes of commits that `git rebase --autosquash` melts into others."""


def subject_of(message: str) -> str:
    """The subject as `git log` prints it: the first paragraph in one line, without comments."""
    lines = takewhile(lambda line: not _SCISSORS.match(line), message.splitlines())
    text = "\n".join(line.strip() for line in lines if not line.startswith("#")).strip()
    return _AUTOSQUASH.sub("", " ".join(text.partition("\n\n")[0].split()))


def problems_of(message: str) -> Iterator[str]:
    """A sentence for each thing that is wrong: what it is, and what to do."""
    subject = subject_of(message)
    if not subject:
        yield "The message is empty: say in its first line what the change does."
        return
    if len(subject) > LONGEST:
        yield (
            f"The subject has {len(subject)} characters, {LONGEST} are allowed: shorten it, and say"
            " the rest in the body, below an empty line."
        )
    if subject.endswith("."):
        yield "The subject ends with a full stop: remove it."
    if re.match(r"Merge (branch|tag|commit).* of \S", subject):
        yield (
            "The subject names the repository that was merged, which readers do not have:"
            " say what the merge brings, or rebase instead."
        )
    first, *_ = re.split(r"[^A-Za-z]", subject, maxsplit=1)
    if first.lower().endswith(("ed", "ing")) and first.lower() not in IMPERATIVES:
        yield (
            f'The subject begins with "{first}", which is no imperative: write what the change does'
            ' ("Add", not "Added" or "Adding").'
        )


def main(path: str) -> None:
    """Check the file that Git names.

    Raises:
        SystemExit: the subject has problems; its message lists them.
    """
    problems = list(problems_of(Path(path).read_text(encoding="utf-8")))
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main(*sys.argv[1:])
