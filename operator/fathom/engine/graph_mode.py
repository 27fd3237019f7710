"""The `cudagraph_mode` that `engine.args` ask for. Pure.

Source: `OPTIMIZATION_LEVEL_TO_CONFIG` in vllm/config/vllm.py and `CUDAGraphMode` in
vllm/config/compilation.py; tests/engine/test_parser_matrix.py asks vLLM.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fathom.engine.arguments import EngineArguments, EngineOption
from fathom.engine.cuda_graphs import GraphMode

CONFIG: Final = "--compilation-config"
_KEY: Final = "cudagraph_mode"
_BY_NUMBER: Final[Mapping[str, GraphMode]] = MappingProxyType(
    {"0": GraphMode.NONE, "1": GraphMode.PIECEWISE, "2": GraphMode.FULL}
)
"""vLLM takes these, too."""
_BY_LEVEL: Final[Mapping[str, GraphMode]] = MappingProxyType(
    {"0": GraphMode.NONE, "1": GraphMode.PIECEWISE}
)
"""Optimization levels with another mode than vLLM's own."""


@dataclass(frozen=True, slots=True)
class StatedMode:
    """What is captured, and what asks for it."""

    mode: GraphMode
    said: str
    """As the user may have written it; empty: it is vLLM's own."""

    @property
    def without_full(self) -> str:
        """What leaves an engine that captures graphs without full ones; empty: nothing."""
        return self.said if self.mode in {GraphMode.NONE, GraphMode.PIECEWISE} else ""


VLLMS_OWN: Final = StatedMode(GraphMode.FULL_AND_PIECEWISE, "")


def stated_mode(arguments: EngineArguments) -> StatedMode:
    """What `engine.args` ask for, else vLLM's own. What vLLM refuses counts as its own."""
    stated = arguments.object(CONFIG).get(_KEY)
    if stated is not None:
        text = str(stated).upper()
        mode = _BY_NUMBER.get(text) or GraphMode.__members__.get(text)
        return StatedMode(mode, f"{_KEY} {mode}") if mode else VLLMS_OWN
    levels = [level for option in arguments.options if (level := _level(option))]
    mode = _BY_LEVEL.get(levels[-1]) if levels else None
    return StatedMode(mode, f"-O{levels[-1]}") if mode else VLLMS_OWN


def _level(option: EngineOption) -> str:
    """The optimization level that an option states, such as 0 in -O0; empty: none."""
    if option.name.startswith("-O"):
        return option.name.removeprefix("-O") or option.value or ""
    return (option.value or "") if option.name.startswith("--optimization-l") else ""
