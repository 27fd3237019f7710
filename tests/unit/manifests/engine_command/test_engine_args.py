"""Fields of the spec become flags of vLLM."""

from typing import Any

import pytest

from fathom.manifests.engine_command.engine_args import engine_args
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
    line = " ".join(engine_args(resource(changes).spec))

    for pair in pairs:
        assert pair in line


@pytest.mark.parametrize(("version", "passed"), [("0.17.1", False), ("0.18.0", True)])
def test_a_flag_that_the_engine_lacks_is_left_out(
    version: str,
    passed: bool,  # noqa: FBT001 - a parameter of the table above
) -> None:
    args = engine_args(resource({"engine.version": version}).spec)

    assert ("--shutdown-timeout" in args) is passed


@pytest.mark.parametrize(
    "stated", [["--host", "::"], ["--host=::"], ["--host", "0.0.0.0"]], ids=str
)
def test_an_engine_listens_where_its_user_says(stated: list[str]) -> None:
    sd = resource({"engine.args": stated})

    assert [part for part in engine_args(sd.spec) if part.startswith("--host")] == stated[:1]
