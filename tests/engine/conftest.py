"""Real vLLM on the CPU: of each release that is asked one engine, and one import."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from local_cluster.engine.environment import ensure_engine_environment
from local_cluster.engine.model_pair import ModelPair, ensure_model_pair
from local_cluster.engine.process import EngineProcess, EngineSetup, real_setup
from local_cluster.engine.releases import asked_releases
from local_cluster.paths import cache_dir
from support.asked_vllm import AskVllm


@pytest.fixture(scope="session")
def pair() -> ModelPair:
    python = ensure_engine_environment() / "bin" / "python"
    return ensure_model_pair(cache_dir(), python)


@pytest.fixture(scope="session")
def setup(pair: ModelPair) -> EngineSetup:
    return real_setup(ensure_engine_environment(), pair)


@pytest.fixture(scope="session", params=asked_releases(os.environ))
def engine(
    request: pytest.FixtureRequest, pair: ModelPair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineProcess]:
    environment = ensure_engine_environment(version=request.param)
    # As long as the pair's positions reach, so that contexts of more than one range are served.
    long = replace(real_setup(environment, pair), more_arguments=("--max-model-len", "4096"))
    with EngineProcess(long, tmp_path_factory.mktemp("engine")) as process:
        yield process


@pytest.fixture(scope="session")
def ask_vllm() -> Iterator[AskVllm]:
    with ExitStack() as stack:
        yield AskVllm(stack)


@pytest.fixture(scope="session")
def generations() -> Iterator[int]:
    """Generations that no test has used yet, so that each can wait for its own."""
    return iter(range(1, 1_000_000))
