"""Asks real vLLMs, as `local_cluster.engine.script_client` does; no answer fails the test."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from local_cluster.engine.environment import DEFAULT_ENGINE_VERSION, EngineEnvironmentError
from local_cluster.engine.script_client import ImportedVllm, imported_vllm


class AskVllm:
    """Asks any release, and imports each once: it costs more than most questions."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._imported: dict[str, ImportedVllm] = {}

    def __call__(
        self,
        probe: Path,
        question: object,
        *arguments: str,
        release: str = DEFAULT_ENGINE_VERSION,
    ) -> Any:
        """What a probe answers.

        Args:
            probe: the script.
            question: what it reads.
            arguments: of its command line.
            release: of vLLM.
        """
        try:
            if release not in self._imported:
                vllm = self._stack.enter_context(imported_vllm(release))
                self._imported[release] = vllm
            return self._imported[release].ask(probe, question, *arguments)
        except EngineEnvironmentError as error:
            pytest.fail(str(error), pytrace=False)
