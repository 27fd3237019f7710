"""Worlds from their files."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Generic, TypeVar

from pydantic import ValidationError

from benchmarks.tuner.worlds.errors import WorldError
from benchmarks.tuner.worlds.parts import WorldPart
from benchmarks.tuner.worlds.world import SimulatedWorld

_World = TypeVar("_World", bound=WorldPart)


class WorldFiles(Generic[_World]):
    """Worlds of one kind: those that come with the package, and any others."""

    def __init__(self, kind: type[_World], folder: Path) -> None:
        """Name them.

        Args:
            kind: what a file describes; it has a `name`, which is the file's.
            folder: of the shipped ones, at any depth.
        """
        self._kind = kind
        self._folder = folder

    def shipped(self) -> tuple[str, ...]:
        """Names of the worlds that come with the package."""
        return tuple(sorted(self._files()))

    def load(self, name_or_path: str) -> _World:
        """A shipped world by its name, or any other by the path of its file.

        Raises:
            WorldError: there is no such world, or its file says what cannot be; in a sentence.
        """
        path = self._files().get(name_or_path, Path(name_or_path))
        try:
            return self.parse(path.read_text(), path.stem)
        except (OSError, UnicodeDecodeError) as error:
            raise WorldError(
                f"There is no world {name_or_path}: neither a file that can be read nor one of "
                f"{', '.join(self.shipped())}."
            ) from error

    def parse(self, text: str, name: str) -> _World:
        """A world from the text of its file.

        Raises:
            WorldError: every mistake of the file, in one message.
        """
        try:
            return self._kind.model_validate({**tomllib.loads(text), "name": name})
        except tomllib.TOMLDecodeError as error:
            raise WorldError(f"World {name} is not TOML: {error}.") from error
        except ValidationError as error:
            mistakes = "; ".join(
                f"{'.'.join(str(part) for part in each['loc']) or 'world'}: {each['msg']}"
                for each in error.errors()
            )
            raise WorldError(
                f"World {name}: {mistakes}. docs/worlds.md explains each field."
            ) from None

    def _files(self) -> Mapping[str, Path]:
        return {file.stem: file for file in self._folder.rglob("*.toml")}


_FILES: Final = WorldFiles(SimulatedWorld, Path(__file__).with_name("shipped"))
shipped: Final = _FILES.shipped
load: Final = _FILES.load
parse: Final = _FILES.parse
