"""The mutants there are."""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from mutants.operators import operators
from mutants.sampling import Candidate, Position

_LOGS: Final = frozenset({"_log", "log"})
_LATEST: Final[Position] = (1_000_000_000, 0)


def candidates(path: str, source: str) -> Iterator[Candidate]:
    """Each mutant of a file but those of annotations, of what is logged, and of `frozen=True`.

    The type checker holds what no test needs to.
    """
    lines = source.splitlines()
    left_out = tuple(_left_out(ast.parse(source)))
    tree = get_ast(source)
    alike: Counter[str] = Counter()
    for name, operator in _all_operators().items():
        positions = (
            found for node in ast_nodes(tree) for found in operator.mutation_positions(node)
        )
        for occurrence, (start, end) in enumerate(positions):
            if any(first <= start < last for first, last in left_out):
                continue
            text = lines[start[0] - 1]
            if text[end[1] :].lstrip().startswith((",", ")")) and text[start[1]] in "*/":
                continue  # the mark between kinds of parameters
            column = start[1] - (len(text) - len(text.lstrip()))
            key = f"{path}|{text.strip()}|{column}|{name}"
            alike[key] += 1
            yield Candidate(path, name, occurrence, start, end, f"{key}|{alike[key]}")


def compiles(source: str, candidate: Candidate) -> bool:
    """Whether a mutant is Python at all; if not, its operator was mistaken."""
    try:
        ast.parse(mutated(source, candidate))
    except SyntaxError:
        return False
    return True


def mutated(source: str, candidate: Candidate) -> str:
    """The file with this mutant."""
    operator = _all_operators()[candidate.operator]
    changed: str | None = mutate_code(source, operator, candidate.occurrence)
    if changed is None:
        raise RuntimeError(f"{candidate.operator} finds nothing in {candidate.path}")
    return changed


@cache
def _all_operators() -> Mapping[str, Any]:
    return operators()


def _left_out(tree: ast.AST) -> Iterator[tuple[Position, Position]]:
    """Where nothing is mutated."""
    for node in ast.walk(tree):
        match node:
            case ast.arg(annotation=ast.expr() as found) | ast.AnnAssign(annotation=found):
                yield _span(found)
            case ast.FunctionDef(returns=ast.expr() as found):
                yield _span(found)
            case ast.AsyncFunctionDef(returns=ast.expr() as found):
                yield _span(found)
            case ast.ClassDef(decorator_list=decorators):
                yield from (_span(each) for each in decorators if isinstance(each, ast.Call))
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=logger))) if _logs(logger):
                yield _span(node)


def _logs(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in _LOGS


def _span(node: ast.expr | ast.Expr) -> tuple[Position, Position]:
    if node.end_lineno is None or node.end_col_offset is None:
        return (node.lineno, node.col_offset), _LATEST
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
