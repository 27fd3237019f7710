"""Which options and draft fields each release of vLLM knows; others it would not start with.

The lists stand in `known_names.json`, written by `fathom_local.tools.known_names` from the releases
themselves. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Final

from packaging.version import Version
from pydantic import BaseModel, ConfigDict

from fathom.api.problem import Problem
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.api.unknown_field import nearest
from fathom.core.engine.options import options
from fathom.core.engine.version import engine_version

FILE: Final = "known_names.json"
_ALIKE: Final = 0.75
"""By `nearest`'s measure, from which one name may be meant by another."""


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


def name_doubts(spec: SpeculativeDeploymentSpec) -> Iterator[Problem]:
    """Options and draft fields that the engine's release does not know.

    Nothing is said of releases that were not asked, nor where the release is not known. A patch
    release knows what the first of its minor release does.
    """
    known = _Known.of(spec)
    if known is None:
        return
    for option in options(spec.engine.args):
        # argparse takes any beginning of a name for it.
        if option.name.startswith("--") and not known.begins(option.name):
            where = f"spec.engine.args[{option.index}]"
            spelling = option.spelling.partition(".")[0]
            yield Problem(where, known.sentence(spelling, option.name, known.rows.options))
    fields = names_of(known.release, known.rows.draft)
    for key in spec.draft.options:
        if spec.drafts and key not in fields:
            where = f"spec.draft.options.{key}"
            yield Problem(where, known.sentence(key, key, known.rows.draft))


@dataclass(frozen=True, slots=True)
class _Known:
    """What one engine's release knows."""

    version: str
    release: str
    """That was asked in its stead: the first of the same minor release."""
    rows: KnownNames

    @classmethod
    def of(cls, spec: SpeculativeDeploymentSpec) -> "_Known | None":
        version, rows = engine_version(spec.engine), known_names()
        if version is None:
            return None
        same = (each for each in rows.releases if Version(each).release[:2] == version.release[:2])
        release = next(same, None)
        return None if release is None else cls(str(version), release, rows)

    def begins(self, name: str) -> bool:
        return any(each.startswith(name) for each in names_of(self.release, self.rows.options))

    def sentence(self, spelling: str, name: str, rows: tuple[Names, ...]) -> str:
        said = f"vLLM {self.version} does not know {spelling} and would not start"
        if elsewhere := next((row.releases for row in rows if name in row.names), ()):
            known = f"{', '.join(elsewhere)} do{'es' * (len(elsewhere) == 1)}"
            return f"{said}; {known}: remove it, or change spec.engine.image."
        near = nearest(name, names_of(self.release, rows), _ALIKE)
        return f"{said}. Did you mean {near}?" if near else f"{said}: remove it."
