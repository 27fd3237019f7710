"""Fathom's preflight against what vLLM itself says of the same config.json files."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from fathom.model_facts import ModelConfig
from fathom.validation.pair_checks import TARGETS_WITHOUT_EAGLE3, knows_eagle3_draft
from local_cluster.engine.releases import asked_releases
from support.asked_vllm import AskVllm
from support.model_pairs import NAMES, Pair

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("asked")]

PROBE: Final = Path(__file__).with_name("preflight_probe.py")

SAYS: Final = {
    "deepseek-mtp": "ZeroDivisionError: integer modulo by zero",
    "draft-model": "should have the same vocabulary size",
    "gpt-oss-eagle3": "['Eagle3GptOssForCausalLM'] are not supported",
    "qwen3-moe-eagle3": "attention heads (2) must be divisible by tensor parallel size (4)",
}
"""Errors of broken pairs, in vLLM's words."""
NOTICED_LATER: Final = {"kimi-eagle3.1-mla", "llama-eagle3"}
"""Broken pairs whose configuration vLLM accepts: one that only an old engine gets wrong, and one
that fails when the first hidden states arrive."""


def case(pair: Pair) -> dict[str, Any]:
    """A pair as vLLM gets it."""
    speculative = {
        "method": pair.spec.get("draft.method", "eagle3"),
        "num_speculative_tokens": 7,
    }
    if pair.draft is not None:
        speculative["model"] = str(pair.directory / "draft")
    return {
        "target": str(pair.directory / "target"),
        "gpus": pair.spec.get("engine.tensorParallelSize", 4),
        "speculative": speculative,
    }


@pytest.fixture(scope="module", params=asked_releases(os.environ))
def told(request: pytest.FixtureRequest, ask_vllm: AskVllm) -> Mapping[str, Any]:
    """What one release of vLLM says."""
    pairs = {
        f"{kind}/{name}": case(Pair.read(kind, name))
        for kind in ("good", "broken")
        for name in NAMES
    }
    question = {"pairs": pairs, "targets": sorted(TARGETS_WITHOUT_EAGLE3)}
    found: Mapping[str, Any] = ask_vllm(PROBE, question, release=request.param)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_vllm_takes_the_good_pairs(told: Mapping[str, Any], name: str) -> None:
    assert told["refusals"][f"good/{name}"] == ""


@pytest.mark.parametrize("name", sorted(SAYS))
def test_vllm_refuses_what_fathom_refuses(told: Mapping[str, Any], name: str) -> None:
    assert SAYS[name] in told["refusals"][f"broken/{name}"]


@pytest.mark.parametrize("name", sorted(NOTICED_LATER))
def test_some_of_it_vllm_notices_late_or_never(told: Mapping[str, Any], name: str) -> None:
    assert told["refusals"][f"broken/{name}"] == ""


def test_the_targets_without_eagle_3_are_those_of_vllm(told: Mapping[str, Any]) -> None:
    assert [name for name, able in told["eagle3_targets"].items() if able] == []


def test_every_eagle_3_draft_that_vllm_has_is_known(told: Mapping[str, Any]) -> None:
    theirs = {name for name in told["known"] if name.startswith("Eagle3") or "Eagle3" in name}

    unknown = {
        name for name in theirs if not knows_eagle3_draft(ModelConfig(architectures=(name,)))
    }

    assert theirs
    assert unknown == set()
