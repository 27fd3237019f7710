"""Model configs that lie on this machine."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import JsonValue

MAX_CONFIG_BYTES: Final = 1 << 20


def local_config(model_id: str) -> Mapping[str, JsonValue] | None:
    """The config.json of a model given as an absolute path; None: not on this machine.

    What cannot be read or is no JSON object is not at hand either: the engine says what is wrong
    with it. Reads from the disk; call it in a thread from asynchronous code.
    """
    directory = Path(model_id)
    if not directory.is_absolute():
        return None
    try:
        with (directory / "config.json").open("rb") as file:
            document = json.loads(file.read(MAX_CONFIG_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
