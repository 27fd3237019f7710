"""What `fathom bench` gives `vllm bench serve`, against vLLM's own parser and loaders."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.job.prompts import share_gpt, speed_bench
from fathom.bench.planning import load_arguments
from fathom.bench.request import BenchData, BenchRequest, data_of
from local_cluster.engine.language import EASY, HARD
from local_cluster.engine.model_pair import ModelPair
from manifest_samples import resource
from support.asked_vllm import AskVllm

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("asked")]

PROBE: Final = Path(__file__).with_name("bench_probe.py")
PROMPTS: Final = 6
REQUEST: Final = BenchRequest(
    prompts=("configmap:data/hard.json", "pvc:data", "random"),
    categories=("easy",),
    input_tokens=(64,),
    output_tokens=32,
    num_prompts=PROMPTS,
)
FILES: Final = {"hard.json": share_gpt(HARD, PROMPTS), "qualitative.jsonl": speed_bench(EASY, 9)}


def at(folder: Path, data: BenchData) -> BenchData:
    """The data where it lies here."""
    if data.volume is None:
        return data
    moved = (each.replace(data.volume.mount_path, str(folder)) for each in data.arguments)
    return replace(data, arguments=tuple(moved))


@pytest.fixture(scope="module")
def answers(
    pair: ModelPair, ask_vllm: AskVllm, tmp_path_factory: pytest.TempPathFactory
) -> list[Mapping[str, Any]]:
    folder = tmp_path_factory.mktemp("data")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    sd = resource({"model.trustRemoteCode": True})
    result = ("--result-dir", str(folder), "--result-filename", "result.json")
    lines = [
        [*load_arguments(sd, REQUEST, at(folder, each), 4), *result] for each in data_of(REQUEST)
    ]
    found: list[Mapping[str, Any]] = ask_vllm(PROBE, lines, str(pair.target))
    return found


def test_vllm_s_parser_takes_every_argument_for_what_it_is_meant(
    answers: list[Mapping[str, Any]],
) -> None:
    for answer in answers:
        assert (answer["host"], answer["port"]) == ("127.0.0.1", 8000)
        assert (answer["max_concurrency"], answer["num_warmups"]) == (4, 4)
        assert (answer["num_prompts"], answer["temperature"]) == (PROMPTS, 0)
        assert answer["save_result"]
        assert answer["disable_tqdm"]
        assert answer["trust_remote_code"]
        assert answer["result_filename"] == "result.json"
    assert [each["backend"] for each in answers] == ["openai-chat", "openai-chat", "openai"]


def test_its_loaders_find_the_prompts_that_are_in_the_files(
    answers: list[Mapping[str, Any]],
) -> None:
    hard, easy, random = (answer["prompts"] for answer in answers)

    assert len(hard) == len(easy) == len(random) == PROMPTS
    assert all(each.startswith("hard-") for each in hard)
    assert all(each.startswith("easy-") for each in easy)
    assert all(len(each.split()) == 64 for each in random)
