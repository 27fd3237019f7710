"""What the API owns may not come in through `engine.args`, however it is spelled."""

import json
from typing import Any

import pytest

from fathom.manifests.vllm_args import (
    OWNED_SPECULATIVE_KEYS,
    draft_option_problems,
    engine_args,
    max_batch,
    owned_flag_problems,
    speculative_config,
    stated_max_num_seqs,
)
from manifest_samples import resource

REFUSED = {
    "--tensor-parallel-size": ["spec.engine.tensorParallelSize"],
    "--tensor_parallel_size": ["spec.engine.tensorParallelSize"],
    "--tensor-parallel-size=8": ["spec.engine.tensorParallelSize"],
    "--tensor-par": ["spec.engine.tensorParallelSize"],
    "--tensor_par=8": ["spec.engine.tensorParallelSize"],
    "-tp": ["spec.engine.tensorParallelSize"],
    "-tp=8": ["spec.engine.tensorParallelSize"],
    "-t": ["spec.engine.tensorParallelSize"],
    "--pipeline-parallel-size": ["spec.engine.pipelineParallelSize"],
    "-pp": ["spec.engine.pipelineParallelSize"],
    "--data-parallel-size": ["spec.engine.dataParallelSize"],
    "-dp": ["spec.engine.dataParallelSize"],
    "-dpl=2": ["spec.engine.dataParallelSize"],
    "--data-parallel-size-local": ["spec.engine.dataParallelSize"],
    "--data_parallel_hybrid_lb": ["spec.engine.dataParallelSize"],
    "--prefill-context-parallel-size": ["not supported yet"],
    "--speculative-config": ["spec.draft", "spec.speculation"],
    "--speculative_config={}": ["spec.draft", "spec.speculation"],
    "--speculative-config.num_speculative_tokens": ["spec.draft", "spec.speculation"],
    "--specul.method=ngram": ["spec.draft", "spec.speculation"],
    "-sc": ["spec.draft", "spec.speculation"],
    "-sc.method": ["spec.draft", "spec.speculation"],
    "-sc.num_speculative_tokens=9": ["spec.draft", "spec.speculation"],
    "--spec-tokens": ["spec.speculation.tokens"],
    "--spec_tokens=4": ["spec.speculation.tokens"],
    "--spec-t": ["spec.speculation.tokens"],
    "--spec-method": ["spec.draft.method"],
    "--spec-model": ["spec.draft.id"],
    "--spec-something-new": ["spec.speculation"],
    "--scheduler-cls": ["own scheduler"],
    "--scheduler_c=x": ["own scheduler"],
    "--config": ["spec.engine.args"],
    "--config=/etc/vllm.yaml": ["spec.engine.args"],
    "--conf": ["spec.engine.args"],
    "--api-key": ["Secret", "VLLM_API_KEY", "spec.engine.env"],
    "--api_key=secret": ["Secret", "VLLM_API_KEY"],
    "--host": ["the operator sets it"],
    "--port": ["the operator sets it"],
    "--po=9": ["the operator sets it"],
    "--uds": ["the operator sets it"],
    "--grpc": ["the operator sets it"],
    "--shutdown-timeout": ["spec.engine.drainSeconds"],
    "--shutdown_timeout=0": ["spec.engine.drainSeconds"],
    "--api-server-count": ["one server per pod"],
    "-asc": ["one server per pod"],
    "--ssl-keyfile": ["plain HTTP"],
    "--ssl_certfile=x": ["plain HTTP"],
    "--enable-ssl-refresh": ["plain HTTP"],
    "--attention-backend": ["spec.engine.attentionBackend"],
    "--attention_backend=FLASHINFER": ["spec.engine.attentionBackend"],
    "--attention-config.backend": ["spec.engine.attentionBackend"],
    "-ac.backend=FLASHINFER": ["spec.engine.attentionBackend"],
    '--attention-config={"backend":"FLASHINFER"}': ["spec.engine.attentionBackend"],
    '--attention-config={"x":' + "[" * 20_000: ["spec.engine.attentionBackend"],
    "--model": ["spec.model.id"],
    "--served-model-name": ["spec.model.servedName"],
    "--served_model": ["spec.model.servedName"],
    "--revision": ["spec.model.revision"],
    "--trust-remote-code": ["spec.model.trustRemoteCode"],
    "--no-trust-remote-code": ["spec.model.trustRemoteCode"],
    "--hf-token": ["spec.model.tokenSecretRef"],
    "--headless": ["lays out the nodes"],
    "--nnodes": ["lays out the nodes"],
    "-n": ["lays out the nodes"],
    "-n2": ["lays out the nodes"],
    "-r=1": ["lays out the nodes"],
    "--master-addr": ["lays out the nodes"],
    "--": ["remove it"],
}

ALLOWED = [
    ["--tool-call-parser", "kimi_k2"],
    ["--max-model-len", "4096"],
    ["--max_num_seqs=64"],
    ["--seed", "-1"],
    ["--model-impl", "vllm"],
    ["--config-format", "hf"],
    ["--tokenizer-revision", "main"],
    ["--code-revision", "main"],
    ["--hf-overrides", '{"model": "--tensor-parallel-size"}'],
    ["--enable-expert-parallel"],
    ["-ep"],
    ["-O3"],
    ["-O", "2"],
    ["-q", "fp8"],
    ["-cc.mode=3"],
    ["-dcp", "2"],
    ["-dc", "{}"],
    ["--attention-config", '{"use_prefill_query_quantization": true}'],
    ["-ac.use_prefill_query_quantization", "true"],
    ["--distributed-executor-backend", "mp"],
    ["--root-path", "/v1"],
    ["--performance-mode", "throughput"],
    ["--speculation"],
]


@pytest.mark.parametrize("argument", REFUSED)
def test_owned_flags_are_refused_and_the_field_is_named(argument: str) -> None:
    (problem,) = owned_flag_problems(["--seed", "1", argument])

    assert problem.field == "spec.engine.args[2]"
    assert problem.message.startswith(argument.partition("=")[0].split(".")[0])
    for part in REFUSED[argument]:
        assert part in problem.message


@pytest.mark.parametrize("args", ALLOWED, ids=str)
def test_what_has_no_field_passes(args: list[str]) -> None:
    assert owned_flag_problems(args) == ()


def test_the_message_says_what_an_abbreviation_stands_for() -> None:
    (problem,) = owned_flag_problems(["-sc.method=ngram"])

    assert str(problem) == (
        "spec.engine.args[0]: -sc.method (which vLLM reads as --speculative-config) may not be "
        "set here: set spec.draft and spec.speculation instead."
    )


@pytest.mark.parametrize(
    ("argument", "meaning"),
    [
        ("--tensor-par", "--tensor-parallel-size"),
        ("--no-trust", "--trust-remote-code"),
        ("-tp", "--tensor-parallel-size"),
        ("--no-trust-remote-code", ""),
        ("--spec-anything", ""),  # one of a whole family
    ],
)
def test_and_that_of_whatever_is_not_a_name_of_its_own(argument: str, meaning: str) -> None:
    (problem,) = owned_flag_problems([argument])

    reads = f" (which vLLM reads as {meaning})" if meaning else ""
    assert problem.message.startswith(f"{argument}{reads} may not be set here: ")


@pytest.mark.parametrize("argument", ["--tensor-parallel-size", "--tensor_parallel_size=8"])
def test_and_nothing_of_one_that_is_spelled_out(argument: str) -> None:
    (problem,) = owned_flag_problems([argument])

    assert problem.message == (
        f"{argument.partition('=')[0]} may not be set here: "
        "set spec.engine.tensorParallelSize instead."
    )


def test_a_static_engine_may_do_without_what_tuning_needs() -> None:
    (problem,) = owned_flag_problems(["--disable-log-stats"], live=True)

    assert "tuning mode Static" in problem.message
    assert owned_flag_problems(["--disable-log-stats"], live=False) == ()


def test_asynchronous_scheduling_may_be_turned_off() -> None:
    assert owned_flag_problems(["--no-async-scheduling"], live=True) == ()


@pytest.mark.parametrize(
    ("args", "batch"),
    [
        ([], 1024),
        (["--max-num-seqs", "16"], 16),
        (["--max-num-seqs=16"], 16),
        (["--max_num_seqs", "16"], 16),
        (["--max-num-se", "16"], 16),
        (["--max-num-seqs", "16", "--max_num_seqs=32"], 32),
        (["--max-num-batched-tokens", "16"], 16),
        (["--max-num-batched-tokens", "4096"], 1024),
        (["--max-num-batched-tokens", "many"], 1024),
        (["--max-num-batched-tokens=-1"], 1024),
        (["--max-num-batched-tokens", "0.5k"], 500),
        (["--max-num-batched-tokens", "1K"], 1024),
        (["--max-num-batched-tokens", "1_000"], 1000),
        (["--max-num-batched-tokens", "1.5K"], 1024),
        (["--performance-mode", "throughput"], 2048),
        (["--performance-mode=balanced"], 1024),
        (["--max", "16"], 1024),
        (["--max-num-seqs-per-node", "16"], 1024),
        (["--max-num-seqs.key", "16"], 1024),
    ],
    ids=str,
)
def test_the_largest_batch_is_read_in_every_spelling(args: list[str], batch: int) -> None:
    spec = resource({"engine.args": args}).spec

    assert max_batch(spec) == batch
    ours = [part for part in engine_args(spec) if part == "--max-num-seqs"]
    added = stated_max_num_seqs(spec) is None
    assert len(ours) == args.count("--max-num-seqs") + added


def test_of_gpus_that_nobody_named_the_smaller_default_is_taken() -> None:
    pool = {"accelerator": "Custom", "gpusPerNode": 4}
    assert max_batch(resource({"nodePool": pool}).spec) == 256


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
    ("changes", "keys"),
    [
        ({"draft.revision": "main"}, {"revision": "main"}),
        ({"draft.tensorParallelSize": 1}, {"draft_tensor_parallel_size": 1}),
        (
            {"speculation.adaptiveVerification": "Enabled", "speculation.tokens": 5},
            {"enable_adaptive_verification": True, "num_speculative_tokens": 7},
        ),
        ({"draft.method": "mtp", "draft.id": None}, {"method": "mtp"}),
    ],
    ids=str,
)
def test_fields_become_keys_of_the_speculative_config(
    changes: dict[str, Any], keys: dict[str, Any]
) -> None:
    args = engine_args(resource(changes).spec)

    config = json.loads(args[args.index("--speculative-config") + 1])

    assert {key: config.get(key) for key in keys} == keys
    assert ("model" in config) == ("draft.id" not in changes)


def test_draft_options_reach_vllm_as_what_they_say() -> None:
    options = {"draft_sample_method": "probabilistic", "prompt_lookup_max": "4", "x": "true"}
    spec = resource({"draft": {"method": "ngram", "options": options}}).spec
    found = speculative_config(spec)
    assert found["draft_sample_method"] == "probabilistic"
    assert (found["prompt_lookup_max"], found["x"]) == (4, True)
    assert found["method"] == "ngram"


def test_a_draft_option_that_is_nested_too_deep_is_refused() -> None:
    spec = resource({"draft.options": {"x": "[" * 200 + "]" * 200}}).spec
    (problem,) = draft_option_problems(spec)
    assert problem.field == "spec.draft.options.x"
    assert problem.message.endswith("write less of it.")


@pytest.mark.parametrize("key", sorted(OWNED_SPECULATIVE_KEYS))
def test_a_draft_option_that_has_a_field_is_refused(key: str) -> None:
    spec = resource({"draft.options": {key: "1"}}).spec
    (problem,) = draft_option_problems(spec)
    assert problem.field == f"spec.draft.options.{key}"
    assert f"set spec.{OWNED_SPECULATIVE_KEYS[key]} instead" in problem.message


def test_synthetic_acceptance_is_for_static_engines() -> None:
    options = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": "2.27"}
    tuned = resource({"draft.options": options}).spec
    assert "says nothing about the draft" in draft_option_problems(tuned)[0].message
    static = resource({"draft.options": options, "speculation.tuning.mode": "Static"}).spec
    assert draft_option_problems(static) == ()
