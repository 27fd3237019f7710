"""What the API owns may not come in through `engine.args`, however it is spelled."""

import pytest

from fathom.engine.argument_parser import EngineArguments
from fathom.engine.flags import engine_args
from fathom.validation.argument_checks import owned_flag_problems
from manifest_samples import resource
from support.validated import errors

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
    "--host=127.0.0.1": ["the operator sets it", "write --host ::"],
    "--host.x": ["the operator sets it"],
    "--hos=::": ["the operator sets it"],
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
    ["--host", "::"],
    ["--host=::"],
    ["--host", "0.0.0.0"],
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
    (problem,) = owned_flag_problems(EngineArguments.of(["--seed", "1", argument]))

    assert problem.field == "spec.engine.args[2]"
    assert problem.message.startswith(argument.partition("=")[0].split(".")[0])
    for part in REFUSED[argument]:
        assert part in problem.message


@pytest.mark.parametrize("args", ALLOWED, ids=str)
def test_what_has_no_field_passes(args: list[str]) -> None:
    assert owned_flag_problems(EngineArguments.of(args)) == ()


def test_the_message_says_what_an_abbreviation_stands_for() -> None:
    (problem,) = owned_flag_problems(EngineArguments.of(["-sc.method=ngram"]))

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
    (problem,) = owned_flag_problems(EngineArguments.of([argument]))

    reads = f" (which vLLM reads as {meaning})" if meaning else ""
    assert problem.message.startswith(f"{argument}{reads} may not be set here: ")


@pytest.mark.parametrize("argument", ["--tensor-parallel-size", "--tensor_parallel_size=8"])
def test_and_nothing_of_one_that_is_spelled_out(argument: str) -> None:
    (problem,) = owned_flag_problems(EngineArguments.of([argument]))

    assert problem.message == (
        f"{argument.partition('=')[0]} may not be set here: "
        "set spec.engine.tensorParallelSize instead."
    )


@pytest.mark.parametrize("args", [["--disable-log-stats"], ["--scheduler-cls", "mine.Own"]])
def test_an_engine_without_the_plugin_may_do_without_what_that_needs(args: list[str]) -> None:
    (problem,) = owned_flag_problems(EngineArguments.of(args), plugin=True)

    assert "tuning mode Static" in problem.message
    assert owned_flag_problems(EngineArguments.of(args), plugin=False) == ()


def test_a_scheduler_of_one_s_own_stands_in_the_command_of_a_static_engine() -> None:
    own = {"engine.args": ["--scheduler-cls", "mine.Own"]}
    static = resource({**own, "speculation.tuning.mode": "Static"})

    assert errors(static) == ()
    assert [each for each in engine_args(static.engine) if "cheduler" in each] == [
        "--scheduler-cls"
    ]
    assert [each.field for each in errors(resource(own))] == ["spec.engine.args[0]"]


def test_asynchronous_scheduling_may_be_turned_off() -> None:
    assert owned_flag_problems(EngineArguments.of(["--no-async-scheduling"])) == ()
