"""Scripts that share one import of vLLM, and nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.asked_vllm import AskVllm

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("asked")]

Script = Callable[[str], Path]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Writes one that reads what is asked, and prints `answer`."""

    def written(body: str) -> Path:
        path = tmp_path / "probe.py"
        lines = ("import json, sys", "asked = json.load(sys.stdin)", body)
        path.write_text("\n".join([*lines, "print(json.dumps(answer))"]))
        return path

    return written


def test_a_script_reads_what_is_asked_and_its_arguments(ask_vllm: AskVllm, script: Script) -> None:
    echo = script("print('a log'); answer = [asked, sys.argv[1:], __name__]")
    assert ask_vllm(echo, {"a": [1]}, "H100", "x y") == [{"a": [1]}, ["H100", "x y"], "__main__"]


def test_what_a_script_changes_in_vllm_no_other_sees(ask_vllm: AskVllm, script: Script) -> None:
    change = script(
        "import os, vllm.envs\n"
        "answer = [hasattr(vllm.envs, 'CHANGED'), 'CHANGED' in os.environ]\n"
        "vllm.envs.CHANGED = os.environ['CHANGED'] = 'yes'"
    )
    for _ in range(2):
        assert ask_vllm(change, None) == [False, False]


LOOK = """
import os
from vllm.model_executor.models import registry
registry.CHANGED = True

def look():
    if asked == 'fails':
        raise ValueError('no such class')
    if asked == 'dies':
        os.abort()
    return hasattr(registry, 'CHANGED')

try:
    answer = registry._run_in_subprocess(look)
except RuntimeError as error:
    answer = str(error).splitlines()[-1]
"""


@pytest.mark.parametrize(
    ("asked", "answer"),
    [("sees", False), ("fails", "ValueError: no such class"), ("dies", "it ended with -6")],
)
def test_vllm_looks_at_classes_where_no_script_has_changed_it(
    ask_vllm: AskVllm, script: Script, asked: str, answer: Any
) -> None:
    assert ask_vllm(script(LOOK), asked) == answer


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ValueError('its last words')", "probe.py in vLLM 0.32.0: ValueError: its last"),
        ("import os; os.abort()", "probe.py in vLLM 0.32.0: exit code -6"),
    ],
)
def test_one_that_fails_is_told_by_its_last_words_and_the_next_one_answers(
    ask_vllm: AskVllm, script: Script, body: str, said: str
) -> None:
    with pytest.raises(pytest.fail.Exception, match=said):
        ask_vllm(script(body), None)
    assert ask_vllm(script("answer = asked"), "well?") == "well?"
