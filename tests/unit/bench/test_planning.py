"""What is asked becomes what the pod measures, or a sentence that says why not."""

import pytest

from fathom.api.status import FetchedModel, SpeculativeDeploymentStatus, WeightsStatus
from fathom.bench.planning import as_fetched, planned
from fathom.bench.request import BenchRefusedError, BenchRequest, data_of
from fathom_vllm.environment import DEFAULT_DEPTH_FILE
from unit.bench.benches import BUNDLE, bench_of, sample


def test_every_depth_of_the_set_then_true_off() -> None:
    on, off = bench_of().measure.engines

    assert on.depths == (0, 1, 3, 7)
    assert on.depth_file == DEFAULT_DEPTH_FILE
    assert "--speculative-config" in on.command
    assert off.depths == ()
    assert "--speculative-config" not in off.command
    assert "--scheduler-cls" not in off.command
    assert off.hidden == "/etc/fathom/plugin"


def test_true_off_differs_in_speculation_alone() -> None:
    on, off = bench_of(**{"engine.args": ["--max-model-len", "4096"]}).measure.engines

    assert on.command[:3] == off.command[:3] == ("vllm", "serve", "nvidia/Kimi-K2.6-NVFP4")
    ours = {
        *("--speculative-config", "--scheduler-cls", "--max-num-seqs", "--compilation-config"),
    }
    left_out = {word for word in on.command if word not in off.command and word.startswith("--")}
    assert left_out <= ours
    assert set(off.command) <= set(on.command)


def test_no_engine_finds_what_an_earlier_depth_computed() -> None:
    for engine in bench_of(**{"engine.args": ["--enable-prefix-caching"]}).measure.engines:
        assert engine.command[-1] == "--no-enable-prefix-caching"


def test_chosen_depths_and_no_true_off() -> None:
    (engine,) = bench_of(BenchRequest(depths=(3, 0), true_off=False)).measure.engines

    assert engine.depths == (0, 3)


def test_where_depth_is_not_live_it_is_measured_where_it_is() -> None:
    engine, _ = bench_of(**{"speculation.tuning.mode": "Static"}).measure.engines

    assert (engine.depths, engine.depth_file) == ((3,), "")


@pytest.mark.parametrize(
    ("changes", "request_", "sentence"),
    [
        ({}, BenchRequest(depths=(2, 5)), "The engine has no depth 2, 5, only 0, 1, 3, 7."),
        (
            {"engine.dataParallelSize": 2, "engine.tensorParallelSize": 2},
            BenchRequest(depths=(0,)),
            "vLLM drops the depth schedule when dataParallelSize is above 1",
        ),
        ({"engine.tensorParallelSize": 8}, BenchRequest(), "a replica of kimi is 2"),
        ({"speculation.drafting": "Disabled"}, BenchRequest(), "drafting is Disabled"),
        (
            {"podTemplate": {"spec": {"containers": [{"name": "vllm", "command": None}]}}},
            BenchRequest(),
            "The image's own entrypoint starts the engine",
        ),
        ({}, BenchRequest(prompts=("chats.json",)), "is no source of prompts"),
        ({}, BenchRequest(prompts=("pvc:a/../b.json",)), "is no source of prompts"),
        ({}, BenchRequest(prompts=("pvc:a",), subset="easy"), "has no subset 'easy'"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_the_reason(
    changes: dict[str, object], request_: BenchRequest, sentence: str
) -> None:
    with pytest.raises(BenchRefusedError, match=sentence.replace("(", r"\(")):
        bench_of(request_, **changes)


def test_a_run_for_each_series_and_concurrency_with_so_many_requests() -> None:
    asked = BenchRequest(concurrency=(1, 4), input_tokens=(1024, 32768))

    loads = bench_of(asked).measure.loads

    assert [(each.data, each.concurrency, each.prompts) for each in loads] == [
        ("random 1024", 1, 8),
        ("random 1024", 4, 32),
        ("random 32768", 1, 8),
        ("random 32768", 4, 32),
    ]
    assert bench_of(asked).measure.runs == 4 * 5
    said = " ".join(loads[1].arguments)
    assert "--max-concurrency 4 --num-prompts 32 --num-warmups 4 --temperature 0 " in said


def test_a_number_of_prompts_that_is_asked_for_holds_at_every_concurrency() -> None:
    loads = bench_of(BenchRequest(num_prompts=20)).measure.loads

    assert {each.prompts for each in loads} == {20}


def test_code_of_the_model_s_own_is_trusted_where_the_engine_trusts_it() -> None:
    (load, *_) = bench_of(**{"model.trustRemoteCode": True}).measure.loads

    assert "--trust-remote-code" in load.arguments
    assert "--trust-remote-code" not in bench_of().measure.loads[0].arguments


def test_a_json_file_is_share_gpt_s_and_a_folder_speed_bench_s() -> None:
    chats, one, other = data_of(
        BenchRequest(
            prompts=("configmap:prompts/chats.json", "pvc:speed/bench"),
            categories=("coding", "math"),
            output_tokens=64,
        )
    )

    assert (chats.label, one.label, other.label) == (
        "chats", "qualitative/coding", "qualitative/math",
    )  # fmt: skip
    said = " ".join(chats.arguments)
    assert "--dataset-name sharegpt" in said
    assert "--dataset-path /data/fathom-bench/configmap/prompts/chats.json" in said
    assert "--sharegpt-output-len 64" in said
    said = " ".join(one.arguments)
    assert "--dataset-name speed_bench --dataset-path /data/fathom-bench/pvc/speed/bench" in said
    assert "--speed-bench-category coding" in said
    assert one.volume == other.volume
    assert one.volume is not None
    assert one.volume.source() == {
        "persistentVolumeClaim": {"claimName": "speed", "readOnly": True}
    }


def test_it_loads_what_the_replicas_load_and_waits_for_no_download() -> None:
    sd = sample()
    fetched = FetchedModel(id=sd.spec.model.id, commit="a" * 40)
    known = SpeculativeDeploymentStatus(weights=WeightsStatus(models=(fetched,)))
    coming = SpeculativeDeploymentStatus(weights=WeightsStatus(summary="1 GiB of 5 GiB"))

    command = planned(as_fetched(sd, known), BenchRequest(), BUNDLE).measure.engines[0].command
    assert command[command.index("--revision") + 1] == "a" * 40
    assert as_fetched(sd, SpeculativeDeploymentStatus()) == sd
    with pytest.raises(BenchRefusedError, match="not fetched yet: 1 GiB of 5 GiB"):
        as_fetched(sd, coming)
