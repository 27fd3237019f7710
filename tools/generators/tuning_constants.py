"""Writes docs/tuning-constants.md: every constant of the tuner, as the code states it.

A constant is a public `NAME: Final = value` of numbers, with the reason as its docstring. The last
word of its name is its unit.
"""

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Final, TypeGuard

from fathom import tuning

_UNITS: Final = {
    "BYTES": "bytes",
    "CELLS": "cells",
    "COHORTS": "cohorts",
    "DAYS": "days",
    "DEPTHS": "depths",
    "DOUBTS": "sentences",
    "DRAFTS": "drafts",
    "EFFECT": "times",
    "EFFECTS": "times",
    "ERROR": "share",
    "FACTOR": "times",
    "FACTORS": "times",
    "GAIN": "relative",
    "HOURS": "hours",
    "LEVELS": "bins",
    "LOSS": "relative",
    "ONE": "windows",
    "PODS": "pods",
    "POSITIONS": "positions",
    "PRIOR": "mean, and error or weight",
    "QUANTILE": "share",
    "REQUESTS": "requests",
    "S": "s",
    "SD": "relative sd",
    "SHARE": "share",
    "STEPS": "steps",
    "TOKENS": "tokens",
    "TRIALS": "trials",
    "TURNS": "turns",
    "VARIANCE": "relative variance",
    "VISITS": "visits",
    "WEIGHT": "share",
    "WINDOWS": "windows",
    "Z": "standard errors",
}
_RATE: Final = "relative variance per s"
_HEAD = """# Constants of the tuner

Generated from the code by `make regenerate`. What they do: [tuning](tuning.md), and
[alarms](alarms.md), which also says how long the cause of each must last. None can be set: another
value is an edit of the code, and `make bench-tuner` shows what it is worth.

Names are those of `operator/fathom/tuning/`. Of several values the text says which is which.
Shares, gains and losses are fractions: 0.01 is one percent.
"""


class UndocumentedConstantError(Exception):
    """A constant lacks its unit or its reason."""


@dataclass(frozen=True, slots=True)
class Constant:
    """One row."""

    name: str
    value: float | tuple[float, ...]
    unit: str
    reason: str


def reference() -> str:
    """The whole page.

    Raises:
        UndocumentedConstantError: a constant says not what it is, or not in which unit.
    """
    root = Path(next(iter(tuning.__path__)))
    rooms: dict[str, list[Constant]] = {}
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        room = parts[0] if len(parts) > 1 else "On top"
        module = import_module(".".join((tuning.__name__, *parts)))
        found = constants(file.read_text(), parts[-1], vars(module))
        rooms.setdefault(room, []).extend(found)
    return "\n".join((_HEAD, *(_section(room, rooms[room]) for room in sorted(rooms))))


def constants(source: str, module: str, values: Mapping[str, object]) -> Iterator[Constant]:
    """Those of one module, in its order.

    Args:
        source: its text.
        module: what it is called on the page.
        values: what its names stand for.

    Raises:
        UndocumentedConstantError: as above.
    """
    body = ast.parse(source).body
    for statement, following in zip_longest(body, body[1:]):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        name, value = statement.target.id, values[statement.target.id]
        if not name.startswith("_") and _is_number(value):
            where = f"{module}.{name}"
            yield Constant(where, value, _unit(where), _reason(where, following))


def _is_number(value: object) -> TypeGuard[float | tuple[float, ...]]:
    if isinstance(value, tuple):
        return all(map(_is_number, value))
    return isinstance(value, int | float)


def _unit(where: str) -> str:
    if where.endswith("_PER_S"):
        return _RATE
    word = re.split(r"[._]", where)[-1]
    if word not in _UNITS:
        raise UndocumentedConstantError(
            f"{where}: its last word is no unit. Those there are: {', '.join(_UNITS)}."
        )
    return _UNITS[word]


def _reason(where: str, following: ast.stmt | None) -> str:
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        return " ".join(str(following.value.value).split()).replace("|", "\\|")
    raise UndocumentedConstantError(
        f"{where}: say below it, as a docstring, what it is and why it is so much."
    )


def _section(room: str, rows: list[Constant]) -> str:
    lines = [f"## {room}", "", "| constant | value | unit | |", "|---|---|---|---|"]
    lines += [
        f"| `{each.name}` | {_shown(each.value)} | {each.unit} | {each.reason} |" for each in rows
    ]
    return "\n".join(lines) + "\n"


def _shown(value: float | tuple[float, ...]) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value))
    return f"{value:.10g}" if abs(value) >= 1 else f"{value:.4g}"


if __name__ == "__main__":
    sys.stdout.write(reference())
