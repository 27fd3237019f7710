"""Writes which options and values each vLLM release knows (`known_names.json`), by asking it.

Run as `python -m generators.known_names`, or by `make known-names`. A release that has no
build for the CPU is asked through its wheel's Python files.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

from fathom.engine.known_options import KnownNames, Names, Options, Values
from local_cluster.engine import names_probe
from local_cluster.engine.releases import NEWEST_KNOWN, OLDEST_TESTED
from local_cluster.engine.script_client import imported_vllm

Answer = Mapping[str, Any]
"""What one release says: see `names_probe.known_names`."""


def rows(answers: Mapping[str, Iterable[str]]) -> tuple[Names, ...]:
    """Names, together with others that the same releases know.

    Args:
        answers: the names of each release, ascending.
    """
    return tuple(
        Names(releases=releases, names=names)
        for (releases, _), names in _shared(
            {release: dict.fromkeys(names, "") for release, names in answers.items()}
        )
    )


def option_rows(answers: Mapping[str, Mapping[str, Any]]) -> tuple[Options, ...]:
    """Options, together with others of the same releases that take the same.

    Args:
        answers: what each option takes, by release, ascending.
    """
    written = {
        release: {name: json.dumps(takes, sort_keys=True) for name, takes in options.items()}
        for release, options in answers.items()
    }
    return tuple(
        Options(releases=releases, names=names, **json.loads(takes))
        for (releases, takes), names in _shared(written)
    )


def value_rows(answers: Mapping[str, Mapping[str, Sequence[str]]]) -> tuple[Values, ...]:
    """Values of each option, together with others that the same releases know.

    Args:
        answers: the values of each option, by release, ascending.
    """
    found: dict[tuple[Names, ...], list[str]] = {}
    for option in sorted({option for answer in answers.values() for option in answer}):
        of_it = rows(
            {release: answer[option] for release, answer in answers.items() if option in answer}
        )
        # Two names of one option have the same.
        found.setdefault(of_it, []).append(option)
    return tuple(
        Values(of=tuple(options), releases=row.releases, names=row.names)
        for of_it, options in sorted(found.items(), key=lambda each: each[1])
        for row in of_it
    )


def _shared(
    answers: Mapping[str, Mapping[str, str]],
) -> list[tuple[tuple[tuple[str, ...], str], tuple[str, ...]]]:
    """Names, by the releases that know them and by what these say of them.

    Args:
        answers: what is said of each name, by release, ascending.
    """
    found: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for name in sorted({name for names in answers.values() for name in names}):
        said: dict[str, list[str]] = {}
        for release, names in answers.items():
            if name in names:
                said.setdefault(names[name], []).append(release)
        for what, releases in said.items():
            found.setdefault((tuple(releases), what), []).append(name)
    return [(key, tuple(names)) for key, names in sorted(found.items())]


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
    of_options, of_draft, of_values, of_keys, of_aliases = (
        {release: answer[kind] for release, answer in answers.items()}
        for kind in ("options", "draft", "values", "keys", "aliases")
    )
    return KnownNames(
        releases=tuple(answers),
        options=option_rows(of_options),
        draft=rows(of_draft),
        values=value_rows(of_values),
        keys=value_rows(of_keys),
        aliases=value_rows(of_aliases),
    )


def written(known: KnownNames) -> str:
    """The file's text: a row on each line."""
    kinds = [
        f'"{kind}": [\n' + ",\n".join(json.dumps(row, sort_keys=True) for row in rows_of_it) + "\n]"
        for kind, rows_of_it in known.model_dump(mode="json", exclude_defaults=True).items()
    ]
    return "{\n" + ",\n".join(kinds) + "\n}\n"


def main() -> None:
    """Ask, and write where the operator reads."""
    answers: dict[str, Answer] = {}
    for release in known_releases():
        sys.stderr.write(f"asking vLLM {release}\n")
        with imported_vllm(release) as vllm:
            answers[release] = vllm.ask(Path(names_probe.__file__), None)
    sys.stdout.write(written(known_names(answers)))


if __name__ == "__main__":
    main()
