"""Which graphs `engine.args` ask for. tests/engine/test_parser_matrix.py asks vLLM."""

import pytest

from fathom.engine.argument_parser import EngineArguments
from fathom.engine.cuda_graphs import VLLMS_OWN, GraphMode, stated_mode


@pytest.mark.parametrize(
    ("args", "mode", "said"),
    [
        (["-O0"], GraphMode.NONE, "-O0"),
        (["-O", "0"], GraphMode.NONE, "-O0"),
        (["--optimization-level", "1"], GraphMode.PIECEWISE, "-O1"),
        (["-O1", "-O0"], GraphMode.NONE, "-O0"),
        (["-cc.cudagraph_mode=0"], GraphMode.NONE, "cudagraph_mode NONE"),
        (["-cc.cudagraph_mode=piecewise"], GraphMode.PIECEWISE, "cudagraph_mode PIECEWISE"),
        (["-O0", "-cc.cudagraph_mode=2"], GraphMode.FULL, "cudagraph_mode FULL"),
    ],
    ids=str,
)
def test_the_mode_is_the_one_that_is_asked_for(args: list[str], mode: GraphMode, said: str) -> None:
    found = stated_mode(EngineArguments.of(args))

    assert (found.mode, found.said) == (mode, said)
    assert stated_mode(EngineArguments.of(args)).without_full == (
        "" if mode is GraphMode.FULL else said
    )


@pytest.mark.parametrize(
    "args", [[], ["-O2"], ["-O3"], ["-O1", "-O2"], ["-cc.cudagraph_mode=unheard_of"]], ids=str
)
def test_else_it_is_vllms_own(args: list[str]) -> None:
    assert stated_mode(EngineArguments.of(args)) == VLLMS_OWN
    assert stated_mode(EngineArguments.of(args)).without_full == ""
