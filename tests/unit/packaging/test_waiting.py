"""Tests wait for events, and none says how fast a machine is: `support.waiting`."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from support.waiting import GUARD_S

TESTS: Final = Path(__file__).parents[2]
GIVES_UP: Final = {"timeout": 0, "wait_for": 1, "wait": 0, "join": 0, "acquire": 1}
"""Which argument of a call says after how many seconds it gives up."""
CLOCKS: Final = {"monotonic", "perf_counter", "process_time", "thread_time"}
ALLOWED: Final[Mapping[str, str]] = {
    "support/bad_server.py": "a byte in each 50 ms is how that server is bad",
    "rights/mutants.py": "`make rbac-mutants` gives up after the patience that it is given",
    "storms/__main__.py": "it prints what a hunt took",
    "support/simulated_load.py": "it writes what its load took, as vLLM does",
    "e2e/observation.py": "it tells what a fleet took, for the tests to print",
    "e2e/test_rollouts.py": "it prints when what happened",
    "training/__main__.py": "it prints what each part of the chain took",
    "training/on_cluster.py": "it says how long each phase took",
    "training/pod.py": "it says how long a training took",
}
"""Files that may, and why."""


def problems(source: str) -> Iterator[tuple[int, str]]:
    """Lines of a test, and what is wrong there."""
    tree = ast.parse(source)
    known = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        if name in CLOCKS:
            yield call.lineno, f"{name}() measures the machine: count work (support.work), or wait"
        at = GIVES_UP.get(name, len(call.args))
        bound = {"timeout", "within_s"} if name in {"until", "guarded"} else {"timeout"}
        given = [each.value for each in call.keywords if each.arg in bound]
        for each in (*given, *call.args[at : at + 1]):
            value = known.get(each.id, each) if isinstance(each, ast.Name) else each
            seconds = getattr(value, "value", None)
            if isinstance(seconds, int | float) and 0 < seconds < GUARD_S:
                yield call.lineno, f"{seconds} s: use until, guarded or GUARD_S of support.waiting"


def test_nobody_gives_up_before_the_guard_nor_measures_time() -> None:
    assert [
        f"tests/{path.relative_to(TESTS)}:{line}: {what}"
        for path in sorted(TESTS.rglob("*.py"))
        if str(path.relative_to(TESTS)) not in ALLOWED
        for line, what in problems(path.read_text(encoding="utf-8"))
    ] == []


def test_what_is_allowed_is_needed() -> None:
    assert [name for name in ALLOWED if not [*problems((TESTS / name).read_text())]] == []
