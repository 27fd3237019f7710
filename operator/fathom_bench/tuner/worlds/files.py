"""Worlds from their files."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from fathom_bench.tuner.worlds.errors import WorldError
from fathom_bench.tuner.worlds.world import SimulatedWorld


def shipped() -> tuple[str, ...]:
    """Names of the worlds that come with the package."""
    return tuple(sorted(_shipped_files()))


def load(name_or_path: str) -> SimulatedWorld:
    """A shipped world by its name, or any other by the path of its file.

    Raises:
        WorldError: there is no such world, or its file says what cannot be; in a sentence.
    """
    path = _shipped_files().get(name_or_path, Path(name_or_path))
    try:
        return parse(path.read_text(), path.stem)
    except (OSError, UnicodeDecodeError) as error:
        raise WorldError(
            f"There is no world {name_or_path}: neither a file that can be read nor one of "
            f"{', '.join(shipped())}."
        ) from error


def parse(text: str, name: str) -> SimulatedWorld:
    """A world from the text of its file.

    Raises:
        WorldError: every mistake of the file, in one message.
    """
    try:
        return SimulatedWorld.model_validate({**tomllib.loads(text), "name": name})
    except tomllib.TOMLDecodeError as error:
        raise WorldError(f"World {name} is not TOML: {error}.") from error
    except ValidationError as error:
        mistakes = "; ".join(
            f"{'.'.join(str(part) for part in each['loc']) or 'world'}: {each['msg']}"
            for each in error.errors()
        )
        raise WorldError(f"World {name}: {mistakes}. docs/worlds.md explains each field.") from None


def _shipped_files() -> Mapping[str, Path]:
    folder = Path(__file__).with_name("shipped")
    return {file.stem: file for file in folder.rglob("*.toml")}
