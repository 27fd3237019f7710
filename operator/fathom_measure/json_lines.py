"""What vLLM's loaders of JSON lines ask pandas for, for images that hold no pandas.

Stock images of vLLM hold none (vllm-project/vllm issue 40144), and its loader of SPEED-Bench reads
with it. Where there is one, that one is used: see `fathom_measure.load`.
"""

import json
from collections.abc import Iterator
from os import PathLike
from typing import Any


class JsonLine(dict[str, Any]):
    """One line."""

    def to_dict(self) -> dict[str, Any]:
        """As pandas' rows have it."""
        return dict(self)


class JsonLines:
    """All lines of a file."""

    def __init__(self, rows: list[JsonLine]) -> None:
        self._rows = rows
        self.columns = sorted({name for row in rows for name in row})

    def iterrows(self) -> Iterator[tuple[int, JsonLine]]:
        """Each line with its number."""
        return iter(enumerate(self._rows))


def read_json(path_or_buf: str | PathLike[str], *, lines: bool) -> JsonLines:
    """Read a file of one JSON object per line."""
    if not lines:
        raise NotImplementedError("only JSON lines are read here")
    with open(path_or_buf, encoding="utf-8") as file:  # noqa: PTH123 - runs under another name, alone
        return JsonLines([JsonLine(json.loads(line)) for line in file if line.strip()])
