"""Names and values of options against what the engine's release knows."""

from typing import Any

import pytest

from fathom.api.problem import Severity
from fathom.validation.release_checks import argument_values, option_pairs, registered_values
from manifest_samples import resource
from support.validated import candidate, errors, warnings

Said = list[tuple[str, str]]


def said(check: Any, *args: str, **changes: Any) -> Said:
    sd = resource({"engine.args": [*args], **changes})
    return [(problem.field, problem.message) for problem in check(candidate(sd))]


def refused(check: Any, *args: str, **changes: Any) -> str:
    """What the one error says after the release."""
    ((field, message),) = said(check, *args, **changes)
    assert field.startswith("spec.engine.args[")
    return message.removeprefix("vLLM 0.32.0 would not start: ")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ["--hf-overrides", """'{"rope_theta": 1}'"""],
            '--hf-overrides needs a JSON object, such as {"key": 1}, without quotes around it',
        ),
        (["--hf-overrides={rope_theta: 1}"], "names need double quotes (character 2)"),
        (["--kv-transfer-config", "{kv_connector: A}"], "names need double quotes (character 2)"),
        (['--limit-mm-per-prompt={"image":5'], "needs JSON, and its value ends too early."),
        (["--compilation-config", """'{"mode":3}'"""], "without quotes around it"),
        (
            ["--model-loader-extra-config", "{threads: 8}"],
            "needs a text or a JSON object, and has none: names need double quotes (character 2)",
        ),
        (["-cc", '{"mode":3,}'], "-cc needs a JSON object"),
        (["--compilation-config", "3"], "needs a JSON object"),
        (
            ["--compilation-config", '{"cudagraph_capture_size": [1]}'],
            "has no key cudagraph_capture_size. Did you mean cudagraph_capture_sizes?",
        ),
        (["-cc.cudagraph_mod=NONE"], "has no key cudagraph_mod. Did you mean cudagraph_mode?"),
        (["--enforce-eager=true"], "remove the value, or write --no-enforce-eager to have it off"),
        (["--enable-prefix-caching=True"], "--enable-prefix-caching takes no value"),
        (["--enforce-eager", "true"], "--enforce-eager takes no value: remove the value"),
        (["--headless=1"], "--headless takes no value: remove the value."),
        (["--enforce-eager.x=1"], "has no keys"),
        (["--block-size.x=1"], "has no keys"),
        (["--block-size", "16k"], "--block-size needs a whole number."),
        (["--block-size", "16.0"], "needs a whole number."),
        (["--max-num-batched-tokens", "8x"], "such as 8192 or 8k."),
        (["--max-model-len", "long"], "or auto."),
        (["--max-model-len", "-5"], "--max-model-len needs a whole number from -1 up"),
        (["--gpu-memory-utilization", "90%"], "--gpu-memory-utilization needs a number."),
        (["--cudagraph-capture-sizes", "1", "2,4"], "needs a whole number."),
        (["--kv-cache-dtype", "fp8_e4m3fn"], "has no value fp8_e4m3fn. Did you mean fp8_e4m3?"),
        (["--kv_cache_dtype=fp8_e4m3fn"], "Did you mean fp8_e4m3?"),
        (["--moe-backend", "trtllm"], "has no value trtllm: write flashinfer_trtllm."),
        (["--dtype", "s3cret / x"], "has no value of this name: write auto, bfloat16, "),
        (["--max-lora-rank", "48"], "--max-lora-rank has no value 48: write 1"),
        (["--seed"], "--seed needs a value: write one behind it."),
        (["--seed", "--enforce-eager"], "--seed needs a value"),
        (["--seed", "1", "2"], "--seed takes one value: remove what comes behind the first."),
        (["-dcp", "two"], "-dcp needs a whole number."),
        (["--all2all-backend", "deepep"], "write deepep_v2, deepep_low_latency or deepep_high_"),
    ],
    ids=str,
)
def test_a_value_that_stops_the_engine_is_told(args: list[str], words: str) -> None:
    assert words in refused(argument_values, *args)


@pytest.mark.parametrize(
    "args",
    [
        ["--hf-overrides", '{"rope_theta": 1}'],
        ["--model-loader-extra-config", "text", "--max-num-seqs"],
        ["--compilation-config.mode=3", "-cc.pass_config.fuse_norm_quant=true"],
        ["--compilation-config", '{"mode": 3, "max_cudagraph_capture_size": 1k}'],
        ["--limit-mm-per-prompt", '{"image": 5}'],
        ["--pt-load-map-location", "cuda:0"],
        ["--enforce-eager", "--no-enable-prefix-caching", "-ep"],
        ["--max-model-len", "auto", "--max-num-batched-tokens=8k", "--seed", "-1"],
        ["--max-log-len", "None"],
        ["--cudagraph-capture-sizes", "1", "2", "4"],
        ["--kv-cache-dtype", "fp8"],
        ["--moe-backend", "FlashInfer-TRTLLM"],
        ["--max-lora-rank", "64"],
        ["-O3", "-O", "2"],
        ["--tool-call-parser", "hermes", "--chat-template", "- {{ messages }}"],
        ["--block-size", "$(BLOCK)", "--hf-overrides", "$(OVERRIDES)", "--dtype=$(TYPE)"],
        ["--collect-detailed-traces", "model", "worker"],
    ],
    ids=str,
)
def test_what_the_parser_takes_is_taken(args: list[str]) -> None:
    assert said(argument_values, *args) == []


@pytest.mark.parametrize(
    "image", ["vllm/vllm-openai:latest", "vllm/vllm-openai:v0.27.0", "acme/engine:2.1"]
)
def test_of_releases_that_nobody_asked_nothing_is_said(image: str) -> None:
    args = ("--dtype=fp4", "--load-format=x", "--enable-eplb", "--enforce-eager=1")
    for check in (argument_values, registered_values, option_pairs):
        assert said(check, *args, **{"engine.image": image}) == []


def test_an_option_in_one_argument_with_its_value_is_told_by_that_alone() -> None:
    sd = resource({"engine.args": ["--seed", "1", "--max-model-len 4096"]})
    (error,) = errors(sd)
    assert error.rule == "arguments-alone"


def test_a_value_of_later_releases_is_told_in_those_before() -> None:
    args = ("--reasoning-parser", "muse")
    assert "has no value muse" in refused(registered_values, *args)
    assert said(registered_values, *args, **{"engine.image": "vllm/vllm-openai:v0.33.0"}) == []


AUTO = "--enable-auto-tool-choice"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([AUTO, "--tool-call-parser=nemotron_nano"], "has no value nemotron_nano"),
        (["--reasoning-parser", "kimi_k25"], "has no value kimi_k25. Did you mean kimi_k2?"),
        (["--load-format=fast_safetensor"], "Did you mean fastsafetensors?"),
    ],
    ids=str,
)
def test_what_is_not_registered_is_told(args: list[str], words: str) -> None:
    assert words in refused(registered_values, *args)


@pytest.mark.parametrize(
    "args",
    [
        [AUTO, "--tool-call-parser", "mine", "--tool-parser-plugin", "/plugins/mine.py"],
        ["--reasoning-parser", "mine", "--reasoning-parser-plugin=/plugins/mine.py"],
        [AUTO, "--tool-call-parser=kimi_k2", "--reasoning-parser=kimi_k2", "--load-format=DUMMY"],
        [AUTO, "--tool-call-parser", "$(PARSER)"],
        ["--reasoning-parser", ""],
        ['--kv-transfer-config={"kv_connector":"Mine","kv_connector_module_path":"mine"}'],
    ],
    ids=str,
)
def test_what_is_registered_or_may_be_is_taken(args: list[str]) -> None:
    assert said(registered_values, *args) == []


def test_a_parser_that_no_request_uses_stops_nothing() -> None:
    sd = resource({"engine.args": ["--tool-call-parser", "nemotron_nano"]})
    (doubt,) = registered_values(candidate(sd))
    assert doubt.severity is Severity.WARNING
    assert "has no tool parser nemotron_nano, and uses none without" in doubt.message


def test_a_connector_that_is_not_there_is_told() -> None:
    option = '--kv-transfer-config={"kv_connector": "NixlConnecter", "kv_role": "kv_both"}'
    ((field, message),) = said(registered_values, option)
    assert field == "spec.engine.args"
    assert message.endswith("has no KV connector NixlConnecter. Did you mean NixlConnector?")


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("flash", "write FLASHMLA, FLASHINFER, FLASH_ATTN, "),
        ("flash_infer", "Did you mean FLASHINFER?"),
        ("sdpa", "write TORCH_SDPA."),
    ],
)
def test_a_backend_that_is_not_there_is_told(backend: str, words: str) -> None:
    ((field, message),) = said(registered_values, **{"engine.attentionBackend": backend})
    assert field == "spec.engine.attentionBackend"
    assert f"it has no attention backend {backend}" in message
    assert words in message


@pytest.mark.parametrize("backend", ["flashinfer", "FLASH_ATTN", "auto", ""])
def test_a_backend_that_is_there_is_taken(backend: str) -> None:
    assert said(registered_values, **{"engine.attentionBackend": backend}) == []


def test_values_of_a_draft_are_compared_too() -> None:
    options = {"moe_backend": "trtllm", "attention_backend": "flash", "kv_cache_dtype": "fp8"}
    found = said(registered_values, **{"draft.options": options})
    assert [field for field, _ in found] == [
        "spec.draft.options.moe_backend",
        "spec.draft.options.attention_backend",
    ]
    assert found[0][1].endswith("has no moe_backend trtllm: write flashinfer_trtllm.")
    assert said(registered_values, **{"draft.options": {"draft_sample_method": "greedy"}}) == []


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([AUTO], f"{AUTO} needs --tool-call-parser: add that"),
        (["--enable-log-outputs"], "needs --enable-log-requests"),
        (["--enable-eplb"], "needs --enable-expert-parallel"),
        (["--enable-eplb", "-ep", "--no-enable-expert-parallel"], "needs --enable-expert-parallel"),
        (["--enable-per-request-metrics", "--disable-log-stats"], "excludes --disable-log-stats"),
        (
            ["--max-num-batched-tokens=64", "--max-num-seqs=128"],
            "--max-num-batched-tokens (64) needs to be --max-num-seqs (128) or more",
        ),
        (
            ["--max-num-batched-tokens=2k", "--max-model-len=4096", "--no-enable-chunked-prefill"],
            "--max-num-batched-tokens (2000) needs to be --max-model-len (4096) or more",
        ),
        (["-dcp", "3"], "-dcp (3) needs to divide tensorParallelSize (4)"),
        (["--gpu-memory-utilization=90"], "needs a part of the memory: above 0, and 1 at most"),
        (["--lora-modules", "a=/a"], "--lora-modules needs --enable-lora: add that"),
        (["--enable-lora", "--lora-modules=a=/a", "--no-enable-lora"], "needs --enable-lora"),
        (
            ["--enable-lora", "--max-loras=4", "--max-cpu-loras", "2"],
            "--max-cpu-loras (2) needs to be --max-loras (4) or more",
        ),
    ],
    ids=str,
)
def test_options_that_do_not_go_together_are_told(args: list[str], words: str) -> None:
    assert words in refused(option_pairs, *args, **{"engine.tensorParallelSize": 4})


@pytest.mark.parametrize(
    "args",
    [
        [AUTO, "--tool-call-parser=hermes"],
        [AUTO, "--no-enable-auto-tool-choice"],
        ["--lora-modules", "a=/a", "--enable-lora"],
        ["--lora-modules", "a=/a", "--no-enable-lora", "--enable-lora"],
        ["--enable-lora", "--max-loras=4", "--max-cpu-loras=4"],
        ["--enable-lora", "--max-loras=4", "--max-cpu-loras=0"],
        ["--enable-lora", "--max-loras=4"],
        ["--max-loras=4", "--max-cpu-loras=2"],
        ["--enable-log-outputs", "--enable-log-requests"],
        ["--enable-eplb", "-ep"],
        ["--enable-per-request-metrics"],
        ["--max-num-batched-tokens=128", "--max-num-seqs=128"],
        ["--max-num-batched-tokens=2k", "--max-model-len=4096"],
        ["--max-num-batched-tokens=2k", "--max-model-len=auto", "--no-enable-chunked-prefill"],
        ["--max-model-len", "-1"],
        ["-dcp", "2"],
        ["--gpu-memory-utilization=1"],
        ["--gpu-memory-utilization=$(PART)", "--max-num-batched-tokens=$(TOKENS)"],
    ],
    ids=str,
)
def test_options_that_go_together_are_taken(args: list[str]) -> None:
    assert said(option_pairs, *args, **{"engine.tensorParallelSize": 4}) == []


def test_a_connector_needs_a_role() -> None:
    option = '--kv-transfer-config={"kv_connector": "NixlConnector"}'
    ((_, message),) = said(option_pairs, option)
    assert "kv_connector in --kv-transfer-config needs kv_role: set it to" in message
    assert said(option_pairs, "--kv-transfer-config.kv_role=kv_both") == []


def test_a_name_with_two_meanings_stops_the_engine() -> None:
    (error,) = errors(resource({"engine.args": ["--max-num-b=8192", "--max-num-s=8192"]}))
    assert error.field == "spec.engine.args[1]"
    assert "--max-num-s may be --max-num-scheduled-tokens or --max-num-seqs in" in error.message


@pytest.mark.parametrize(
    ("args", "field", "words"),
    [
        (["--max-num-seqs=$(N)"], 0, "the depth schedule ends at vLLM's default"),
        (["--seed=1", "--max-model-len", "$(LENGTH)"], 1, "write the value itself"),
        (["--compilation-config=$(CONFIG)"], 0, "CUDA graphs are not counted"),
        (["-cc.cudagraph_mode=$(MODE)"], 0, "CUDA graphs are not counted"),
    ],
    ids=str,
)
def test_a_variable_that_decides_something_here_is_told(
    args: list[str], field: int, words: str
) -> None:
    (doubt,) = warnings(resource({"engine.args": args}))
    assert doubt.rule == "unread-variables"
    assert doubt.field == f"spec.engine.args[{field}]"
    assert words in doubt.message


@pytest.mark.parametrize(
    "args",
    [
        ["--seed=$(SEED)", "--chat-template", "$(TEMPLATE)"],
        ["--max-num-seqs=64", "--override-generation-config", "$(CONFIG)"],
        [
            "--kv-transfer-config",
            '{"kv_connector":"OffloadingConnector","kv_role":"kv_both","engine_id":"$(POD_IP)"}',
        ],
    ],
    ids=str,
)
def test_a_variable_that_decides_nothing_here_is_left_alone(args: list[str]) -> None:
    sd = resource({"engine.args": args})
    assert errors(sd) == ()
    assert [each for each in warnings(sd) if each.rule == "unread-variables"] == []


def test_a_dollar_that_kubernetes_keeps_is_no_variable() -> None:
    (error,) = errors(resource({"engine.args": ["--max-num-seqs", "$$(N)"]}))
    assert "--max-num-seqs needs a whole number" in error.message


@pytest.mark.parametrize(
    ("option", "field"),
    [
        ("--num-speculative-tokens=5", "speculation.tokens"),
        ("--speculative-model=acme/draft", "draft.id"),
        ("--ngram-prompt-lookup-max=4", "draft.options.prompt_lookup_max"),
    ],
)
def test_an_option_of_older_pages_has_a_field(option: str, field: str) -> None:
    (problem,) = errors(resource({"engine.args": [option]}))
    assert problem.rule == "option-names"
    assert problem.message.endswith(f"would not start: set spec.{field} instead.")


@pytest.mark.parametrize("method", ["ngram", "ngram_gpu"])
def test_words_that_are_looked_up_have_bounds_in_order(method: str) -> None:
    def found(least: str, most: str, **changes: Any) -> list[str]:
        options = {"prompt_lookup_min": least, "prompt_lookup_max": most}
        draft = {"draft.method": method, "draft.id": None, "draft.options": options}
        return [each.message for each in errors(resource({**draft, **changes}))]

    assert found("4", "2") == [
        "vLLM stops at start where it (2) is below prompt_lookup_min (4): raise it, or lower that."
    ]
    assert found("2", "2") == []
    assert found("4", "2", **{"speculation.drafting": "Disabled"}) == []
