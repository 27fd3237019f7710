"""Stacks that were sampled, as text, and what they say. Pure.

A line is a stack, outermost function first, and how often it was seen: `a;b;c 12`. That is what
flamegraph.pl and speedscope.app read.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

Stacks = Mapping[str, int]
"""How often each stack was seen, by its line without the number."""

_OURS: Final = "fathom/"
_SHOWN: Final = 15
_ROOTS: Final = ("site-packages/", "/operator/", "lib/python3.", "lib-dynload/")


@dataclass(frozen=True, slots=True)
class Hot:
    """A function, and its share of all samples."""

    name: str
    share: float


@dataclass(frozen=True, slots=True)
class Hottest:
    """The functions that took the most."""

    what: str
    samples: int
    itself: tuple[Hot, ...]
    """By the time in the function alone: the innermost of a stack."""
    whole: tuple[Hot, ...]
    """Fathom's own, with all that they call."""


def function_name(file: str, function: str) -> str:
    """Name of a frame: the file as its importer knows it, and the function."""
    for root in _ROOTS:
        _, found, rest = file.rpartition(root)
        if found:
            # The standard library's folder is named by its version.
            file = rest.partition("/")[2] if found == "lib/python3." else rest
            break
    return f"{file}:{function}".replace(";", ",").replace(" ", "_")


def to_text(stacks: Stacks, within: str = "") -> str:
    """As lines; `within` stands for what they all are part of."""
    before = f"{within};" if within else ""
    return "".join(f"{before}{stack} {count}\n" for stack, count in sorted(stacks.items()))


def from_text(text: str) -> Counter[str]:
    """The stacks of lines that `to_text` wrote."""
    stacks = Counter[str]()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        stacks[stack] += int(count)
    return stacks


def hottest(stacks: Stacks, what: str) -> Hottest:
    """The functions that most samples were in."""
    total = sum(stacks.values())
    itself, whole = Counter[str](), Counter[str]()
    for stack, count in stacks.items():
        frames = stack.split(";")
        itself[frames[-1]] += count
        # A function that calls itself is in a stack several times, and took the time once.
        whole.update({each: count for each in frames if each.startswith(_OURS)})
    return Hottest(what, total, _hot(itself, total), _hot(whole, total))


def _hot(counts: Counter[str], total: int) -> tuple[Hot, ...]:
    return tuple(Hot(name, count / total) for name, count in counts.most_common(_SHOWN))


def merged(parts: Iterable[Stacks]) -> Counter[str]:
    """All stacks together."""
    result = Counter[str]()
    for each in parts:
        result.update(each)
    return result


@dataclass(slots=True)
class Profile:
    """Samples of the operator, by what it was doing."""

    parts: dict[str, Stacks] = field(default_factory=dict)

    def to_text(self) -> str:
        """As one file of stacks; what it was doing is their outermost frame."""
        return "".join(to_text(stacks, what) for what, stacks in self.parts.items())
