"""Fields of the spec become flags of vLLM."""

import json
from typing import Any

import pytest

from fathom.engine.flags import engine_args
from manifest_samples import resource


@pytest.mark.parametrize(
    ("changes", "pairs"),
    [
        ({"model.revision": "main"}, ["--revision main"]),
        ({"model.servedName": "kimi"}, ["--served-model-name kimi"]),
        (
            {"engine.pipelineParallelSize": 2, "engine.tensorParallelSize": 2},
            ["--tensor-parallel-size 2", "--pipeline-parallel-size 2"],
        ),
        ({"engine.drainSeconds": 30}, ["--shutdown-timeout 30"]),
    ],
    ids=str,
)
def test_fields_become_flags(changes: dict[str, Any], pairs: list[str]) -> None:
    line = " ".join(engine_args(resource(changes).engine))

    for pair in pairs:
        assert pair in line


@pytest.mark.parametrize(("version", "passed"), [("0.17.1", False), ("0.18.0", True)])
def test_a_flag_that_the_engine_lacks_is_left_out(
    version: str,
    passed: bool,  # noqa: FBT001 - a parameter of the table above
) -> None:
    args = engine_args(resource({"engine.version": version}).engine)

    assert ("--shutdown-timeout" in args) is passed


@pytest.mark.parametrize(
    "stated", [["--host", "::"], ["--host=::"], ["--host", "0.0.0.0"]], ids=str
)
def test_an_engine_listens_where_its_user_says(stated: list[str]) -> None:
    sd = resource({"engine.args": stated})

    assert [part for part in engine_args(sd.engine) if part.startswith("--host")] == stated[:1]


CONFIG = "--compilation-config"
PASSES = {"pass_config": {"fuse_allreduce_rms": True}, "cudagraph_mode": "FULL_AND_PIECEWISE"}


@pytest.mark.parametrize(
    ("stated", "kept"),
    [
        ([], {}),
        (["-O3"], {}),
        ([CONFIG, json.dumps(PASSES)], PASSES),
        ([f"-cc={json.dumps(PASSES)}"], PASSES),
    ],
    ids=str,
)
def test_sizes_of_graphs_are_added_to_a_config_of_the_user_s(
    stated: list[str], kept: dict[str, Any]
) -> None:
    """VLLM takes the last one."""
    args = engine_args(resource({"engine.args": stated}).engine)
    last = len(args) - 1 - args[::-1].index(CONFIG)
    config = json.loads(args[last + 1])

    assert last > args.index("--scheduler-cls")
    assert config.pop("cudagraph_capture_sizes")[:3] == [1, 2, 3]
    assert config == kept


@pytest.mark.parametrize(
    "stated",
    [
        ["--cudagraph-capture-sizes", "8", "16"],
        ["--max-cudagraph-capture-size", "64"],
        [CONFIG, '{"max_cudagraph_capture_size":64}'],
        ["-cc.mode=3"],
        [CONFIG, "no JSON"],
        ["-O1"],
        ["--enforce-eager"],
    ],
    ids=str,
)
def test_no_sizes_are_added_where_the_user_says_them_or_there_is_no_place(
    stated: list[str],
) -> None:
    args = engine_args(resource({"engine.args": stated, "nodePool.accelerator": "GB200"}).engine)
    ours = args[args.index("--scheduler-cls") :]

    assert CONFIG not in ours
