"""Which of Cosmic Ray's operators are used, and three more in its manner.

Left out is what no test is needed for (`a << b` of two floats) and what asks for an accident of the
interpreter (`count is 3`): such mutants only dilute a score.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

import parso
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.plugins import get_operator, operator_names

_ARITHMETIC: Final = frozenset({"Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow"})
_COMMON: Final = frozenset({"Add", "Sub", "Mul", "Div"})
_SETS: Final = frozenset({"BitOr", "BitAnd"})
_IDENTITY: Final = frozenset({"Is", "IsNot"})
_NO_USE: Final = frozenset(
    {"Invert", "VariableReplacer", "VariableInserter"}  # the last two need names
)


class DeleteStatement(Operator):  # type: ignore[misc]  # Cosmic Ray has no types
    """What is called or raised for its effect is left out."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "simple_stmt" and _has_an_effect(node.children[0]):
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: Any, index: int) -> Any:  # noqa: ARG002  # the interface is Cosmic Ray's
        left_out = node.children[0]
        node.children[0] = parso.parse(f"{left_out.get_first_leaf().prefix}pass")
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example("if x:\n    f(x)\n", "if x:\n    pass\n"),
            Example("raise\n", "pass\n"),
            Example("await f(x)\n", "pass\n"),
        )


class SwapExtremes(Operator):  # type: ignore[misc]
    """`min` for `max`, and the other way round."""

    _other: Final = {"min": "max", "max": "min"}

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "name" and node.value in self._other and _is_called(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:  # noqa: ARG002
        node.value = self._other[node.value]
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("x = min(1, y)", "x = max(1, y)"),)


class SwapMembership(Operator):  # type: ignore[misc]
    """`in` for `not in`, and the other way round."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "comparison":
            yield from ((each.start_pos, each.end_pos) for each in self._membership(node))

    def mutate(self, node: Any, index: int) -> Any:
        found = self._membership(node)[index]
        other = " not in" if found.get_code().strip() == "in" else " in"
        node.children[node.children.index(found)] = parso.parse(other)
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("x in y", "x not in y"), Example("x not in y", "x in y"))

    @staticmethod
    def _membership(node: Any) -> list[Any]:
        between = node.children[1::2]
        return [each for each in between if each.get_code().split() in (["in"], ["not", "in"])]


def operators() -> Mapping[str, Any]:
    """Each operator that is used, by name."""
    own = (DeleteStatement, SwapExtremes, SwapMembership)
    theirs = (each for each in operator_names() if _is_used(each.split("/")[1]))
    return dict(
        chain(
            ((each, get_operator(each)()) for each in theirs),
            ((f"fathom/{each.__name__}", each()) for each in own),
        )
    )


def _is_used(name: str) -> bool:
    kind, *between = name.split("_")
    if not _NO_USE.isdisjoint({kind, *between}):
        return False
    if kind == "ReplaceBinaryOperator":
        before, after = between
        of_sets = before in _SETS and after in _SETS | {"Sub"}
        return of_sets or (before in _ARITHMETIC and after in _COMMON)
    if kind == "ReplaceComparisonOperator":
        return set(between) == _IDENTITY or _IDENTITY.isdisjoint(between)
    return True


def _has_an_effect(statement: Any) -> bool:
    if statement.type in {"raise_stmt", "del_stmt"}:
        return True
    called = statement.type in {"atom_expr", "power", "await"} or (
        statement.type == "keyword" and statement.value == "raise"
    )
    return called and "..." not in statement.get_code()


def _is_called(name: Any) -> bool:
    after = name.get_next_sibling()
    return after is not None and after.type == "trailer" and after.children[0].value == "("
