"""`fathom check --engine` with a real vLLM: as it is installed for CPUs, and as if built for GPUs.

A build for GPUs finds no platform where there is none. Here the one for CPUs no longer knows that
it is one, in all its processes, and so finds none either.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fathom.cli.ask_engine import ask_python
from fathom.cli.engine_check import EngineAnswer, EngineQuestion, RoleAnswer, question_of
from fathom.engine.plugin import PluginBundle, plugin_bundle
from local_cluster.engine.environment import DEFAULT_ENGINE_VERSION, ensure_engine_environment
from manifest_samples import resource
from support.tiny_models import with_tiny_models, write_models

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("start probe")]

BUNDLE = plugin_bundle()
AS_BUILT_FOR_GPUS = """
import importlib.metadata
version = importlib.metadata.version
importlib.metadata.version = lambda name: version(name).partition("+")[0]
"""
BUILDS = {
    "for CPUs": {},
    "for GPUs": {"sitecustomize.py": AS_BUILT_FOR_GPUS},
}
SAMPLES: Mapping[str, Mapping[str, Any]] = {
    "an example": {},
    "a worker": {"engine.tensorParallelSize": 16},
    "a misspelt option": {"engine.args": ["--max-num-sqs", "8"]},
    "a wrong value": {"engine.args": ["--max-num-batched-tokens=64", "--max-num-seqs=128"]},
    "a number out of range": {"engine.args": ["--gpu-memory-utilization=90"]},
    "an FP8 target": {"engine.args": ["--quantization=fp8"]},
}
UNREADABLE = "no model"


def asked(models: Path, build: str) -> EngineQuestion:
    """All samples as one question."""
    write_models(models)
    found = {}
    for name, changes in SAMPLES.items():
        arguments = question_of(resource(changes), BUNDLE).arguments
        words = arguments["worker" if name == "a worker" else "leader"]
        found[name] = tuple(with_tiny_models(list(words), models))
    found[UNREADABLE] = (str(models / "nothing"), *found["an example"][1:])
    bundle = PluginBundle({**BUNDLE.files, **BUILDS[build]}, BUNDLE.content)
    return replace(question_of(resource(), bundle), arguments=found)


@pytest.fixture(scope="module", params=BUILDS)
def answer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> EngineAnswer:
    python = ensure_engine_environment() / "bin" / "python"
    question = asked(tmp_path_factory.mktemp("models"), request.param)
    return asyncio.run(ask_python(str(python), question, offline=True, timeout_s=1200))


def test_it_is_the_vllm_of_that_python(answer: EngineAnswer) -> None:
    assert answer.vllm.partition("+")[0] == DEFAULT_ENGINE_VERSION


@pytest.mark.parametrize("name", ["an example", "a worker", "an FP8 target"])
def test_what_vllm_takes_is_taken(name: str, answer: EngineAnswer) -> None:
    assert answer.answers[name] == RoleAnswer()


@pytest.mark.parametrize(
    ("name", "by_what", "said"),
    [
        ("a misspelt option", "parser", "unrecognized arguments: --max-num-sqs 8"),
        (
            *("a wrong value", "configuration"),
            "max_num_batched_tokens (64) must be greater than or equal to max_num_seqs (128).",
        ),
        (
            *("a number out of range", "configuration"),
            "gpu_memory_utilization: Input should be less than or equal to 1",
        ),
    ],
)
def test_what_vllm_refuses_is_repeated(
    name: str, by_what: str, said: str, answer: EngineAnswer
) -> None:
    found = answer.answers[name]
    assert (found.refused_by, found.error, found.unknown) == (by_what, said, "")


def test_a_model_that_cannot_be_read_is_not_refused(answer: EngineAnswer) -> None:
    found = answer.answers[UNREADABLE]
    assert found.refused_by == ""
    assert found.unknown.startswith("a model's files cannot be read here: ")
