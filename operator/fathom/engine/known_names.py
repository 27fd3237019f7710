"""Which options and draft fields each release of vLLM knows; others it would not start with.

The lists stand in `known_names.json`, written by `fathom_local.tools.known_names` from the releases
themselves. Pure.
"""

from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from typing import Final

from packaging.version import Version
from pydantic import BaseModel, ConfigDict

from fathom.api.near import VERY_NEAR, nearest
from fathom.api.problem import Problem
from fathom.engine.profile import EngineProfile

FILE: Final = "known_names.json"


class Names(BaseModel):
    """Names that the same releases know."""

    model_config = ConfigDict(frozen=True)

    releases: tuple[str, ...]
    names: tuple[str, ...]


class KnownNames(BaseModel):
    """Of every release that was asked."""

    model_config = ConfigDict(frozen=True)

    releases: tuple[str, ...]
    """Ascending."""
    options: tuple[Names, ...]
    """Of `vllm serve`, those that begin with two dashes."""
    draft: tuple[Names, ...]
    """Fields of vLLM's speculative configuration."""


@lru_cache(maxsize=1)
def known_names() -> KnownNames:
    """What the file says."""
    text = files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return KnownNames.model_validate_json(text)


def names_of(release: str, rows: tuple[Names, ...]) -> frozenset[str]:
    """What one of the releases that were asked knows."""
    return frozenset(name for row in rows if release in row.releases for name in row.names)


def name_doubts(engine: EngineProfile) -> Iterator[Problem]:
    """Options and draft fields that the engine's release does not know.

    Nothing is said of releases that were not asked, nor where the release is not known. A patch
    release knows what the first of its minor release does.
    """
    spec, version, known = engine.spec, engine.version, known_names()
    asked = {Version(each).release[:2]: each for each in known.releases}
    if version is None or (release := asked.get(version.release[:2])) is None:
        return
    said = f"vLLM {version} does not know"
    taken = names_of(release, known.options)
    for option in engine.arguments.options:
        # argparse takes any beginning of a name for it.
        if option.name.startswith("--") and not any(each.startswith(option.name) for each in taken):
            spelling = option.spelling.partition(".")[0]
            advice = _advice(option.name, taken, known.options)
            yield Problem(f"spec.engine.args[{option.index}]", f"{said} {spelling} {advice}")
    fields = names_of(release, known.draft)
    for key in spec.draft.options if spec.drafts else ():
        if key not in fields:
            advice = _advice(key, fields, known.draft)
            yield Problem(f"spec.draft.options.{key}", f"{said} {key} {advice}")


def _advice(name: str, taken: frozenset[str], rows: tuple[Names, ...]) -> str:
    """What comes of a name that is not taken, and what to do instead."""
    if elsewhere := next((row.releases for row in rows if name in row.names), ()):
        known = f"{', '.join(elsewhere)} do{'es' * (len(elsewhere) == 1)}"
        return f"and would not start; {known}: remove it, or change spec.engine.image."
    near = nearest(name, taken, VERY_NEAR)
    return f"and would not start{f'. Did you mean {near}?' if near else ': remove it.'}"
