"""What a preflight takes from `engine.args`."""

import pytest

from fathom.validation.model_input import StatedArgs, stated_args
from manifest_samples import resource


@pytest.mark.parametrize(("text", "share"), [("0.5", 0.5), ("1", 1.0), ("1e-1", 0.1)])
def test_the_share_of_memory_is_the_one_that_is_stated(text: str, share: float) -> None:
    engine = resource({"engine.args": [f"--gpu-memory-utilization={text}"]}).engine
    assert stated_args(engine).gpu_memory_utilization == share


@pytest.mark.parametrize("text", ["0", "-0.5", "1.01", "90", "nan", "most"])
def test_what_is_no_share_is_for_vllm_to_refuse(text: str) -> None:
    engine = resource({"engine.args": [f"--gpu-memory-utilization={text}"]}).engine
    assert stated_args(engine).gpu_memory_utilization == StatedArgs().gpu_memory_utilization


@pytest.mark.parametrize(
    ("dtype", "size"), [("auto", 2), ("bfloat16", 2), ("fp8", 1), ("fp8_e4m3", 1)]
)
def test_a_number_in_the_cache_takes_as_many_bytes_as_its_type(dtype: str, size: int) -> None:
    engine = resource({"engine.args": ["--kv-cache-dtype", dtype]}).engine
    assert stated_args(engine).kv_value_bytes == size
