"""Values of files and documents that anybody may have written are small, or not there."""

import pytest

from fathom.adapters.model_files import weight_bytes
from fathom.engine.depth import DepthDocument
from fathom.model_facts import ModelConfig

LONG = "x" * 1_000_000


def test_names_in_a_config_are_short_and_few() -> None:
    config = ModelConfig.from_json({"architectures": [LONG] * 100, "model_type": LONG})
    assert len(config.architectures) == 8
    assert {len(name) for name in config.architectures} == {len(config.model_type)} == {128}


@pytest.mark.parametrize("value", [10**400, 1 << 54, -1, 1.5, True, "64"])
def test_a_count_that_is_none_is_not_said(value: object) -> None:
    assert ModelConfig.from_json({"hidden_size": value}).hidden_size is None  # type: ignore[dict-item]


@pytest.mark.parametrize("size", [None, -1, 10**400, float("inf"), float("nan"), "5"])
def test_a_size_that_is_none_makes_the_sum_unknown(size: object) -> None:
    sizes = {"model-1.safetensors": 5, "model-2.safetensors": size}
    assert weight_bytes(sizes) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000,
        '{"generation":1e400,"schedule":[]}',
        f'{{"generation":{10**400},"schedule":[]}}',
        f'{{"generation":1,"schedule":[[1,{10**400},3]]}}',
        f'{{"generation":1,"schedule":[[1,256,{1 << 40}]]}}',
    ],
)
def test_no_depth_document_holds_what_no_engine_has(text: str) -> None:
    assert DepthDocument.from_json(text) is None
