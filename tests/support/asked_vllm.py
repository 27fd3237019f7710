"""Asks a real vLLM, as `fathom_local.engine.asking` does; what it cannot answer fails the test."""

from pathlib import Path
from typing import Any

import pytest

from fathom_local.engine.asking import ask
from fathom_local.engine.environment import DEFAULT_ENGINE_VERSION, EngineEnvironmentError


def ask_vllm(
    probe: Path, question: object, *arguments: str, release: str = DEFAULT_ENGINE_VERSION
) -> Any:
    """What a probe answers; one process, since importing vLLM takes longer than most questions.

    Args:
        probe: the script.
        question: what it reads.
        arguments: of its command line.
        release: of vLLM.
    """
    try:
        return ask(probe, question, *arguments, release=release)
    except EngineEnvironmentError as error:
        pytest.fail(str(error), pytrace=False)
