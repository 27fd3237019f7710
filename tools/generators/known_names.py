"""Writes which options and draft fields each vLLM release knows (`known_names.json`), by asking it.

Run as `python -m generators.known_names`, or by `make known-names`. A release that has no
build for the CPU is asked through its wheel's Python files.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.version import Version

from fathom.engine.capability_table import KnownNames, Names
from local_cluster.engine import names_probe
from local_cluster.engine.releases import NEWEST_KNOWN, OLDEST_TESTED
from local_cluster.engine.script_client import imported_vllm

Answer = Mapping[str, Sequence[str]]
"""Names by what they are of: the fields of `KnownNames`."""


def rows(answers: Mapping[str, Sequence[str]]) -> tuple[Names, ...]:
    """Names, together with others that the same releases know.

    Args:
        answers: the names of each release, ascending.
    """
    found: dict[tuple[str, ...], list[str]] = {}
    for name in sorted({name for names in answers.values() for name in names}):
        known_by = tuple(release for release, names in answers.items() if name in names)
        found.setdefault(known_by, []).append(name)
    return tuple(Names(releases=each, names=tuple(names)) for each, names in sorted(found.items()))


def known_releases() -> tuple[str, ...]:
    """The first of each minor release that the capability table was compared with."""
    major, oldest, _ = Version(OLDEST_TESTED).release
    newest = Version(NEWEST_KNOWN).minor
    return tuple(f"{major}.{minor}.0" for minor in range(oldest, newest + 1))


def known_names(answers: Mapping[str, Answer]) -> KnownNames:
    """What the file is to say.

    Args:
        answers: of each release, ascending.
    """
    of_options, of_draft = (
        rows({release: answer[kind] for release, answer in answers.items()})
        for kind in ("options", "draft")
    )
    return KnownNames(releases=tuple(answers), options=of_options, draft=of_draft)


def main() -> None:
    """Ask, and write where the operator reads."""
    answers: dict[str, Answer] = {}
    for release in known_releases():
        sys.stderr.write(f"asking vLLM {release}\n")
        with imported_vllm(release) as vllm:
            answers[release] = vllm.ask(Path(names_probe.__file__), None)
    sys.stdout.write(known_names(answers).model_dump_json(indent=1) + "\n")


if __name__ == "__main__":
    main()
