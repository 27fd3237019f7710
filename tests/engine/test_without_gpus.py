"""What Fathom says of an engine without GPUs is what vLLM's platform for processors decides.

Under whatever `engine.args` say. What Fathom makes of it: tests/unit/engine/test_without_gpus.py.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fathom.engine.flags import speculative_config
from local_cluster.engine.environment import DEFAULT_ENGINE_VERSION
from local_cluster.engine.model_pair import ModelPair
from local_cluster.engine.releases import asked_releases
from manifest_samples import resource
from support.asked_vllm import AskVllm

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("asked")]

PROBE = Path(__file__).with_name("platform_probe.py")
ARGS: tuple[list[str], ...] = (
    [],
    ["--async-scheduling"],
    ["-O3"],
    ['--compilation-config={"cudagraph_mode":"FULL"}'],
    ["--cudagraph-capture-sizes", "1", "8"],
    ["--performance-mode", "throughput"],
)


@pytest.mark.parametrize("release", asked_releases(os.environ))
def test_vllm_decides_as_it_is_said_here(release: str, pair: ModelPair, ask_vllm: AskVllm) -> None:
    engines = [
        resource(
            {
                "model.id": str(pair.target),
                "draft.id": str(pair.draft),
                "nodePool.accelerator": "CPU",
                "engine.version": release,
                "engine.tensorParallelSize": 1,
                "engine.resources": {"requests": {"cpu": 1}},
                "engine.args": ["--max-model-len", "1024", *args],
            }
        ).engine
        for args in ARGS
    ]

    question = [
        [
            str(pair.target),
            *("--speculative-config", json.dumps(speculative_config(each))),
            *each.arguments.words,
        ]
        for each in engines
    ]
    answers: list[dict[str, Any]] = ask_vllm(PROBE, question, release=release)

    for engine, answer in zip(engines, answers, strict=True):
        assert answer == {
            "runner": "V1",
            "asynchronous": engine.start.synchronous == "",
            "graphs": "NONE",
            "sizes": list(engine.added_sizes),
            "max_num_seqs": engine.max_num_seqs,
            "schedule": speculative_config(engine).get("num_speculative_tokens_per_batch_size"),
        }
    assert all(engine.live for engine in engines) is (release == DEFAULT_ENGINE_VERSION)
