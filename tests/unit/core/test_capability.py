from typing import Any

import pytest

from fathom.api.conditions import Reason
from fathom.core.capability import (
    adaptive_verification_problem,
    live_depth,
    live_depth_refusal,
)
from manifest_samples import resource


def image(version: str) -> dict[str, str]:
    return {"engine.image": f"vllm/vllm-openai:v{version}"}


@pytest.mark.parametrize("version", ["0.32.0", "0.32.1", "0.33.0"])
def test_known_engines_change_depth_live(version: str) -> None:
    assert live_depth_refusal(resource(image(version)).spec) is None


@pytest.mark.parametrize(
    ("changes", "reason", "part"),
    [
        (image("0.31.9"), Reason.LIVE_DEPTH_UNSUPPORTED, "this is 0.31.9"),
        (image("0.32.0rc1"), Reason.LIVE_DEPTH_UNSUPPORTED, "this is 0.32.0rc1"),
        (image("0.34.0"), Reason.LIVE_DEPTH_UNSUPPORTED, "this is 0.34.0"),
        (
            {"engine.image": "vllm/vllm-openai:latest"},
            Reason.ENGINE_VERSION_UNKNOWN,
            "set spec.engine.version",
        ),
        ({"engine.dataParallelSize": 2}, Reason.LIVE_DEPTH_UNSUPPORTED, "dataParallelSize"),
        (
            {"draft.method": "suffix", "draft.id": None},
            Reason.LIVE_DEPTH_UNSUPPORTED,
            "method suffix ignores the depth schedule",
        ),
        ({"draft.method": "dspark"}, Reason.LIVE_DEPTH_UNSUPPORTED, "method dspark"),
    ],
    ids=str,
)
def test_others_say_why_not(changes: dict[str, Any], reason: Reason, part: str) -> None:
    spec = resource(changes).spec

    refusal = live_depth_refusal(spec)

    assert refusal is not None
    assert refusal[0] is reason
    assert part in refusal[1]
    assert "depth stays at tokens (3)" in refusal[1]
    assert not live_depth(spec)


def test_a_static_engine_is_not_live_though_it_could_be() -> None:
    spec = resource({"speculation.tuning.mode": "Static"}).spec

    assert live_depth_refusal(spec) is None
    assert not live_depth(spec)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (image("0.30.0"), None),
        ({"draft.method": "dspark", **image("0.28.0")}, None),
        (image("0.29.0"), "vLLM 0.29.0 has none for method eagle3; it needs >=0.30.0"),
        (
            {"draft.method": "ngram"},
            "vLLM has no adaptive verification for method ngram: set it to Disabled.",
        ),
        ({"engine.image": "vllm:latest"}, "set spec.engine.version"),
        ({"engine.attentionBackend": "TOKENSPEED_MLA"}, "tokenspeed_mla cannot do it"),
        ({"engine.pipelineParallelSize": 2, "engine.tensorParallelSize": 2}, "pipelineParallel"),
    ],
    ids=str,
)
def test_adaptive_verification_needs_an_engine_that_has_it(
    changes: dict[str, Any], sentence: str | None
) -> None:
    spec = resource({"speculation.adaptiveVerification": "Enabled", **changes}).spec

    problem = adaptive_verification_problem(spec)

    if sentence is None:
        assert problem is None
    else:
        assert problem is not None
        assert problem.field == "spec.speculation.adaptiveVerification"
        assert sentence in problem.message
