"""The commands, resources and output that README, CONTRIBUTING and the documentation show."""

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fathom.api import names

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
RUNBOOKS = sorted((DOCS / "runbooks").glob("*.md"))
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted(DOCS.glob("*.md")),
    *RUNBOOKS,
]
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`((?:\.venv/bin/)?(?:fathom|make|kubectl|helm|python)(?: [^`]*)?)`")
_PROMPT = "$ "
_SHELL = {"while", "do", "done"}


@dataclass(frozen=True, slots=True)
class ShownCommand:
    """A line that people are told to type."""

    text: str
    """As written."""
    output: tuple[str, ...] = ()
    """What the page says that it prints."""
    inline: bool = False
    """Within a sentence, which may name a command without what it needs."""

    def __str__(self) -> str:
        return self.text.partition(" #")[0].strip()

    @property
    def programs(self) -> Iterator[tuple[str, ...]]:
        """The programs that it starts, each with its arguments."""
        lexer = shlex.shlex(_filled_in(self.text), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if not set(word) <= set(";&|"):
                words.append(word)
                continue
            told = _without_redirections([each for each in words if each not in _SHELL])
            if told:
                yield tuple(told)
            words = []


def commands(page: Path) -> list[ShownCommand]:
    """All of a page, in blocks and in sentences."""
    text = page.read_text(encoding="utf-8")
    found: list[ShownCommand] = []
    for indent, language, block in _BLOCK.findall(text):
        if language == "bash":
            found.append(ShownCommand(block))
        elif language == "console":
            lines = [line.removeprefix(indent) for line in block.splitlines()]
            starts = [at for at, line in enumerate(lines) if line.startswith(_PROMPT)]
            for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
                output = tuple(lines[start + 1 : end])
                found.append(ShownCommand(lines[start].removeprefix(_PROMPT), output))
    prose = _BLOCK.sub("", text)
    return found + [ShownCommand(each, inline=True) for each in _SPAN.findall(prose)]


def blocks(page: Path) -> list[tuple[str, tuple[str, ...]]]:
    """The commands of each block, after the line that is above it."""
    text = page.read_text(encoding="utf-8")
    found = []
    for block in _BLOCK.finditer(text):
        if block[2] == "console":
            above = text[: block.start()].rstrip().rpartition("\n")[2]
            lines = [line for line in block[3].splitlines() if line.startswith(_PROMPT)]
            found.append((above, tuple(line.removeprefix(_PROMPT) for line in lines)))
    return found


def plain_blocks(page: Path) -> list[str]:
    """Those of no language that is named."""
    text = page.read_text(encoding="utf-8")
    return [block for _, language, block in _BLOCK.findall(text) if not language]


def manifests(page: Path) -> list[dict[str, Any]]:
    """All that a page shows; what it leaves out around a spec of ours is filled in."""
    found: list[dict[str, Any]] = []
    for _, language, block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "yaml":
            found.extend(each for each in yaml.safe_load_all(block) if each)
    for manifest in found:
        if manifest.setdefault("kind", names.KIND) == names.KIND:
            manifest.setdefault("apiVersion", names.API_VERSION)
            manifest.setdefault("metadata", {}).setdefault("name", "shown")
    return found


def resources(page: Path) -> dict[str, dict[str, Any]]:
    """The SpeculativeDeployments of a page, by names of which each stands there once."""
    found: dict[str, dict[str, Any]] = {}
    for manifest in manifests(page):
        if manifest["kind"] == names.KIND:
            name = manifest["metadata"]["name"]
            found[name if name not in found else f"{name}-{len(found)}"] = manifest
    return found


def main() -> None:
    """`python -m support.pages docs/kind.md`: what a page has people type, for a shell."""
    for _, shown in blocks(Path(sys.argv[1])):
        print(*shown, sep="\n")


def _filled_in(text: str) -> str:
    """With a name where one is to be put, and with what may be left out."""
    return re.sub(r"\[(-[^\]]*)\]", r"\1", re.sub(r"<(\w+)>", r"\1", text))


def _without_redirections(words: Sequence[str]) -> list[str]:
    for at, word in enumerate(words):
        if set(word) <= set("<>"):
            return list(words[:at])
    return list(words)


if __name__ == "__main__":
    main()
