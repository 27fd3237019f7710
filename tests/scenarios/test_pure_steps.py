"""What a reconcile decides follows from its arguments alone, and nobody else remembers anything."""

import ast
import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from fathom.reconcile.loop_state import LoopState
from fathom.runtime import deployment_loop as loop
from fathom.runtime import reporter
from support.loop_harness import LoopHarness

STEPS = {
    loop: ("begun", "intended", "step", "after_writes", "concluded", "found_of", "with_unread"),
    reporter: ("status_step", "after_written", "after_restart", "without_spec"),
}


def twice(
    step: Callable[..., Any], called: set[str], monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    """Have a step made twice wherever it is made; the second time must find the same."""
    name = step.__name__

    def checked(*args: Any, **more: Any) -> Any:
        called.add(name)
        states = [each for each in args if isinstance(each, LoopState)]
        before = [copy.copy(each) for each in states]
        found = step(*args, **more)
        assert step(*args, **more) == found, name
        assert states == before, f"{name} changed what it was given"
        return found

    monkeypatch.setattr(module, name, checked)


async def test_each_step_finds_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    called = set[str]()
    for module, names in STEPS.items():
        for name in names:
            twice(getattr(module, name), called, monkeypatch, module)
    harness = LoopHarness({"replicas": 2})
    await harness.until_ready()
    harness.edit({"engine.args": ["--seed", "1"]})
    for _ in range(4):
        await harness.run_for(60)
        harness.play_controllers()
    harness.edit({"engine.args": ["--port", "1"]})
    await harness.run_for(60)
    assert called >= {"begun", "intended", "step", "after_writes", "concluded", "status_step"}


@pytest.mark.parametrize("module", STEPS, ids=lambda module: module.__name__)
def test_the_runtime_makes_no_state_of_its_own(module: Any) -> None:
    """It is given by a step, and frozen: whoever changes it by `replace` would decide something."""
    names = {
        node.id
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Name)
    }
    assert "replace" not in names
    assert LoopState.__dataclass_params__.frozen  # type: ignore[attr-defined]
