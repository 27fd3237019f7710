"""Which tests can notice a mutant: those that execute its line."""

import ast
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mutants.sampling import Candidate

MOST_S: Final = 60.0
"""Seconds of tests for one mutant, as measured while they were recorded, which takes two to three
times as long as otherwise. Only what survives takes so long."""
QUICK_S: Final = 0.05
"""All cases of a test that takes no longer go first: most are of a single function."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Records of clean runs."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Processor time of each test."""
    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    """By file and line, the tests that execute it."""

    def add(
        self, seconds: Mapping[str, float], lines: Mapping[str, Mapping[str, list[str]]]
    ) -> None:
        """Take over what one run recorded."""
        self.seconds.update(seconds)
        for path, by_line in lines.items():
            mine = self.lines.setdefault(path, {})
            for line, tests in by_line.items():
                mine.setdefault(int(line), set()).update(test for test in tests if test)

    def tests_of(self, candidate: Candidate, sources: Mapping[str, str]) -> list[str]:
        """The tests to ask: those that execute this line, the file's own and then quick ones first.

        Its own are those of `test_verdict.py` where it is `verdict.py`. Of a slow test with many
        cases the quickest goes before all second cases. Where none executes the line, all are
        asked: one may start a process that does. Of hundreds, as many as `MOST_S` allows: what
        those do not notice has survived.

        Args:
            candidate: the mutant.
            sources: the files of its module, by path.
        """
        statement = _statement_at(sources[candidate.path], candidate.start[0])
        by_line = self.lines.get(candidate.path, {})
        found = set().union(*(by_line.get(line, ()) for line in statement.lines))
        if statement.names:
            found |= self._mentioning(statement.names, sources)
        own = f"/test_{Path(candidate.path).name}::"
        quick_first = sorted(found or self.seconds, key=lambda test: (self.seconds[test], test))
        cases: Counter[str] = Counter()
        turns: dict[str, tuple[bool, int]] = {}
        for test in quick_first:
            name = test.split("[")[0]
            turns[test] = (own not in test, cases[name] if self.seconds[test] > QUICK_S else 0)
            cases[name] += 1
        ordered = sorted(quick_first, key=turns.__getitem__)
        taken_s = (self.seconds[test] for test in ordered)
        begins_s = itertools.accumulate(taken_s, initial=0.0)
        return [test for test, at_s in zip(ordered, begins_s, strict=False) if at_s < MOST_S]

    def _mentioning(self, names: tuple[str, ...], sources: Mapping[str, str]) -> set[str]:
        """The tests that execute a line with one of these names."""
        named = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
        found: set[str] = set()
        for path, by_line in self.lines.items():
            lines = sources.get(path, "").splitlines()
            for number, tests in by_line.items():
                if 0 < number <= len(lines) and named.search(lines[number - 1]):
                    found |= tests
        return found


@dataclass(frozen=True, slots=True)
class _Statement:
    lines: range
    """Those of which one runs when it does; of a function's head also its body's."""
    names: tuple[str, ...]
    """What it defines if it runs when its module is imported; else none."""


def _statement_at(source: str, line: int) -> _Statement:
    """The innermost statement of a line; of a compound one only its head."""
    for statement, names in _statements(ast.parse(source), ()):
        lines = _own_lines(statement)
        if line in lines:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = range(lines.start, (statement.end_lineno or lines.stop) + 1)
            return _Statement(lines, names)
    return _Statement(range(line, line + 1), ())


def _statements(
    parent: ast.AST, outer: tuple[str, ...], *, imported: bool = True
) -> Iterator[tuple[ast.stmt | ast.match_case | ast.ExceptHandler, tuple[str, ...]]]:
    for node in ast.iter_child_nodes(parent):
        if not isinstance(node, ast.stmt | ast.match_case | ast.ExceptHandler):
            continue
        names = tuple(_defined(node)) if imported else ()
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        within = names if isinstance(node, ast.ClassDef) else ()
        yield from _statements(node, within, imported=imported and not is_function)
        yield node, (*names, *outer) if names else (outer if imported else ())


def _defined(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            within = itertools.chain.from_iterable(ast.walk(each) for each in targets)
            yield from (each.id for each in within if isinstance(each, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _own_lines(node: ast.stmt | ast.match_case | ast.ExceptHandler) -> range:
    first = node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno
    decorators = getattr(node, "decorator_list", [])
    first = min([first, *(each.lineno for each in decorators)])
    body = getattr(node, "body", None)
    if body and isinstance(body, list):
        return range(first, max(first + 1, body[0].lineno))
    return range(first, (getattr(node, "end_lineno", None) or first) + 1)
