"""Plain words: what people read has the field's own words, and none of a dialect of ours."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.pages import REPOSITORY

INSTEAD = {
    r"looks?|looked|looking": "read, scrape, check, recheck",
    r"(?:an?|each|every|one|next|last|this|that|the|per|of) pass(?:es)?|passed over": "reconcile",
    r"told|tells?|telling": "report, say, notify; `told apart` is distinguished",
    r"said": "reported, stated",
    r"stands?|stood": "is, is set, is active, is in",
    r"doubts?": "warning, uncertain",
    r"see to (?:it|that)": "warning",
    r"learnt": "learned",
    r"anew": "again, from scratch",
    r"mend(?:s|ed|ing)?": "fix",
    r"(?:goes|go|going|went|gone) on": "continue",
    r"all the same": "still",
    r"bears?|bearing": "has",
    r"lies|lying": "is in",
    r"arms?": "variant",
    r"beside": "next to, compared with, besides",
    r"nobody|somebody": "no one, a user, passive voice",
    r"rooms?": "capacity, space",
    r"pokes?|nudges?": "resync",
    r"sights?": "detector",
    r"hearsay": "cached",
    r"clairvoyant|omniscient": "oracle",
    r"objections?|obstacles?": "problem",
    r"what it brought": "the gain",
}
"""What is not written, and what is instead."""
ALLOWED = re.compile(
    r"look(?:s|ed|ing)? (?:up|for|like)|beyond doubt|stands?[- ]?(?:by|in|alone)",
    re.IGNORECASE,
)
BANNED = {re.compile(rf"\b(?:{old})\b", re.IGNORECASE): new for old, new in INSTEAD.items()}
QUOTED = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)|https?://\S+|<!--.*?-->", re.DOTALL)
PAGES = [
    REPOSITORY / "README.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
    *sorted((REPOSITORY / "docs" / "runbooks").glob("*.md")),
]
CHART = [
    path
    for path in sorted((REPOSITORY / "charts" / "fathom").rglob("*"))
    if path.suffix in {".yaml", ".json", ".md", ".txt"}
]
SOURCES = sorted((REPOSITORY / "operator").rglob("*.py"))
WITH_DOCSTRINGS = [
    path
    for folder in ("operator", "tools", "tests")
    for path in sorted((REPOSITORY / folder).rglob("*.py"))
]


def old_words(text: str) -> list[str]:
    plain = ALLOWED.sub(" ", QUOTED.sub(" ", text))
    return [
        f"{found[0]!r} (write: {new}) in: …{plain[max(0, found.start() - 40) : found.end() + 30]}…"
        for old, new in BANNED.items()
        for found in old.finditer(plain)
    ]


def docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Those of modules, classes and functions, and those below attributes and constants."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            for each in body:
                if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                    yield each.value


def is_command(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
        "command" in ast.unparse(each) or "callback" in ast.unparse(each)
        for each in node.decorator_list
    )


def messages(tree: ast.AST) -> Iterator[str]:
    """Texts with a space in them that are no docstrings; and of commands, these too."""
    documented = {id(each) for each in docstrings(tree)}
    for node in ast.walk(tree):
        if is_command(node) and (text := ast.get_docstring(node)):  # type: ignore[arg-type]
            yield text
        if not isinstance(node, ast.Constant) or id(node) in documented:
            continue
        if isinstance(node.value, str) and " " in node.value:
            yield node.value


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_pages_have_plain_words(page: Path) -> None:
    assert old_words(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("file", CHART, ids=lambda path: path.name)
def test_the_chart_and_the_crd_have_plain_words(file: Path) -> None:
    assert old_words(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source", SOURCES, ids=lambda path: str(path.relative_to(REPOSITORY / "operator"))
)
def test_messages_have_plain_words(source: Path) -> None:
    tree = ast.parse(source.read_text(encoding="utf-8"))
    assert [found for text in messages(tree) for found in old_words(text)] == []


def test_no_docstring_begins_with_a_genitive() -> None:
    found = [
        f"{path.relative_to(REPOSITORY)}:{each.lineno}"
        for path in WITH_DOCSTRINGS
        for each in docstrings(ast.parse(path.read_text(encoding="utf-8")))
        if re.match(r"\s*Of\b", str(each.value))
    ]
    assert found == []
