from typing import Any

import pytest

from fathom.api.conditions import ConditionStatus, Reason
from fathom.model_facts import Absence, ModelConfig, ModelFacts
from fathom.validation.model_input import preflight_input
from fathom.validation.model_verdict import DraftVerdict, check_draft
from fathom_intake.model_weights import Weights
from manifest_samples import resource
from support.draft_weights import changed, shapes_of, tensors_from
from support.model_pairs import Pair

EAGLE_3_1 = {"fc_norm": True, "norm_output": True}
MLA = {"kv_lora_rank": 512}
OLD = {"engine.image": "vllm/vllm-openai:v0.22.1"}
OTHER = {"draft.id": "someone/draft"}
NO_TARGET = {"model.id": "someone/target"}
GIB = 1 << 30
AWQ = {"quantization_config": {"quant_method": "awq", "bits": 4}}
MODELOPT = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
SAID = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "vocab_size": 32000}
DRAFT = SAID | {"architectures": ["LlamaForCausalLMEagle3"]}
"""What a pair is compared by."""

LLAMA = Pair.read("good", "llama-eagle3")
KIMI = Pair.read("good", "kimi-eagle3.1-mla")
DEEPSEEK = Pair.read("good", "deepseek-mtp")
DRAFT_MODEL = Pair.read("good", "draft-model")
GPT_OSS = Pair.read("good", "gpt-oss-eagle3")
NO_TABLE = Weights(tensors=tensors_from(changed(shapes_of(LLAMA.draft or {}), {"d2t": None})))


def judged(
    changes: dict[str, Any], target: dict[str, Any] | None, draft: dict[str, Any] | None
) -> DraftVerdict:
    """The verdict on what is in two config.json files; None: not at hand."""
    facts = [
        ModelFacts(config=ModelConfig.from_json(each))
        if each is not None
        else ModelFacts(absence=Absence.UNREACHABLE, explanation="the hub is down")
        for each in (target, draft)
    ]
    return check_draft(preflight_input(resource(changes).engine, *facts))


@pytest.mark.parametrize(
    ("changes", "target", "draft", "status", "reason", "family"),
    [
        ({}, None, None, ConditionStatus.TRUE, Reason.KNOWN_PAIR, "EAGLE-3.1"),
        # The table knows the draft alone.
        (NO_TARGET, None, None, ConditionStatus.UNKNOWN, Reason.NOT_CHECKED, "EAGLE-3.1"),
        (NO_TARGET, SAID, None, ConditionStatus.UNKNOWN, Reason.NOT_CHECKED, "EAGLE-3.1"),
        (NO_TARGET | OLD, None, None, ConditionStatus.FALSE, Reason.ENGINE_TOO_OLD, "EAGLE-3.1"),
        (OLD, None, None, ConditionStatus.FALSE, Reason.ENGINE_TOO_OLD, "EAGLE-3.1"),
        (
            {"engine.image": "vllm/vllm-openai:v0.23.0"},
            None,
            None,
            ConditionStatus.TRUE,
            Reason.KNOWN_PAIR,
            "EAGLE-3.1",
        ),
        (
            {"engine.image": "vllm/vllm-openai:latest"},
            None,
            None,
            ConditionStatus.UNKNOWN,
            Reason.NOT_CHECKED,
            "EAGLE-3.1",
        ),
        ({}, None, EAGLE_3_1 | MLA, ConditionStatus.TRUE, Reason.KNOWN_PAIR, "EAGLE-3.1"),
        (
            {},
            SAID,
            DRAFT | EAGLE_3_1 | MLA,
            ConditionStatus.TRUE,
            Reason.COMPATIBLE,
            "EAGLE-3.1",
        ),
        (
            {},
            None,
            {"num_attention_heads": 30, "draft_vocab_size": 32000},
            ConditionStatus.FALSE,
            Reason.INCOMPATIBLE,
            "EAGLE-3",
        ),
        (OTHER, None, None, ConditionStatus.UNKNOWN, Reason.NOT_CHECKED, ""),
        (OTHER | OLD, None, None, ConditionStatus.UNKNOWN, Reason.NOT_CHECKED, ""),
        (OTHER, None, EAGLE_3_1, ConditionStatus.UNKNOWN, Reason.NOT_CHECKED, "EAGLE-3.1"),
        (OTHER, SAID, DRAFT | EAGLE_3_1, ConditionStatus.TRUE, Reason.COMPATIBLE, "EAGLE-3.1"),
        (OTHER, SAID, DRAFT, ConditionStatus.TRUE, Reason.COMPATIBLE, "EAGLE-3"),
        (OTHER, {}, DRAFT, ConditionStatus.UNKNOWN, Reason.NOT_CHECKED, "EAGLE-3"),
        (OTHER, SAID, {}, ConditionStatus.UNKNOWN, Reason.NOT_CHECKED, ""),
        (OTHER, {}, {}, ConditionStatus.UNKNOWN, Reason.NOT_CHECKED, ""),
        (
            OTHER | OLD,
            None,
            EAGLE_3_1 | MLA,
            ConditionStatus.FALSE,
            Reason.ENGINE_TOO_OLD,
            "EAGLE-3.1",
        ),
        (
            OTHER | OLD,
            {"text_config": MLA},
            EAGLE_3_1,
            ConditionStatus.FALSE,
            Reason.ENGINE_TOO_OLD,
            "EAGLE-3.1",
        ),
        (
            OTHER | OLD,
            SAID,
            DRAFT | EAGLE_3_1,
            ConditionStatus.TRUE,
            Reason.COMPATIBLE,
            "EAGLE-3.1",
        ),
        (OTHER | OLD, SAID | MLA, DRAFT | MLA, ConditionStatus.TRUE, Reason.COMPATIBLE, "EAGLE-3"),
        (
            {"draft.method": "mtp", "draft.id": None} | OLD,
            None,
            None,
            ConditionStatus.UNKNOWN,
            Reason.NOT_CHECKED,
            "MTP",
        ),
        (
            {"draft.method": "ngram", "draft.id": None},
            None,
            None,
            ConditionStatus.TRUE,
            Reason.COMPATIBLE,
            "n-gram",
        ),
        (
            {"draft.method": "suffix", "draft.id": None},
            {},
            None,
            ConditionStatus.UNKNOWN,
            Reason.NOT_CHECKED,
            "suffix",
        ),
    ],
    ids=str,
)
def test_verdicts(  # noqa: PLR0917 - the columns of the table above
    changes: dict[str, Any],
    target: dict[str, Any] | None,
    draft: dict[str, Any] | None,
    status: ConditionStatus,
    reason: Reason,
    family: str,
) -> None:
    verdict = judged(changes, target, draft)

    assert (verdict.status, verdict.reason, verdict.family) == (status, reason, family)
    assert verdict.refused == (status is ConditionStatus.FALSE)
    assert verdict.message.endswith(".")


@pytest.mark.parametrize(
    "config",
    [
        {"fc_norm": True},
        {"norm_output": True},
        {"fc_norm": False, "norm_output": True},
        {"eagle_config": {"fc_norm": True, "norm_output": True}},
        {"norm_before_fc": True, "norm_before_residual": True},
    ],
    ids=str,
)
def test_eagle_3_1_is_told_by_two_fields_at_the_top(config: dict[str, Any]) -> None:
    assert judged(OTHER, SAID, DRAFT | config).family == "EAGLE-3"


def test_says_why_a_config_is_not_at_hand() -> None:
    assert judged(OTHER, {}, None).message == (
        "the config.json of someone/draft is not at hand (the hub is down): vLLM says at start "
        "whether this draft fits."
    )
    assert judged(OTHER, None, {}).message == (
        "the config.json of nvidia/Kimi-K2.6-NVFP4 is not at hand (the hub is down): vLLM says at "
        "start whether this draft fits."
    )


@pytest.mark.parametrize(
    ("pair", "changed", "field", "message"),
    [
        (
            LLAMA,
            {"target": {"architectures": ["MixtralForCausalLM"]}},
            "spec.draft.method",
            (
                "meta-llama/llama-70b is a MixtralForCausalLM, and vLLM 0.32.0 gives no hidden "
                "states of such models to an EAGLE 3 draft: choose another spec.draft.method, such "
                "as draft_model or ngram."
            ),
        ),
        (
            LLAMA,
            {"draft": {"draft_vocab_size": 200000}},
            "spec.draft.id",
            (
                "someone/llama-70b-eagle3 has draft_vocab_size 200000 and vocab_size 128256: no "
                "table can map more draft tokens than there are tokens. Its config.json is wrong: "
                "use another draft or revision."
            ),
        ),
        (
            LLAMA,
            {"draft": {"vocab_size": 151936, "draft_vocab_size": 128256}},
            "spec.draft.id",
            (
                "someone/llama-70b-eagle3 has vocab_size 151936, and meta-llama/llama-70b 128256, "
                "though the draft's draft_vocab_size is 128256: vLLM stops at the first draft. Use "
                "a draft that was trained for this target."
            ),
        ),
        (
            LLAMA,
            {"target": {"num_attention_heads": 66}},
            "spec.engine.tensorParallelSize",
            (
                "meta-llama/llama-70b has 66 attention heads, which 4 GPUs cannot share evenly: "
                "set tensorParallelSize to a divisor of the number of heads."
            ),
        ),
        (
            LLAMA,
            {"draft": {"num_key_value_heads": 6}},
            "spec.draft.id",
            (
                "someone/llama-70b-eagle3 has 6 KV heads, which the target's 4 GPUs can neither "
                "share nor repeat evenly: use another draft, or another tensorParallelSize."
            ),
        ),
        (
            DEEPSEEK,
            {"target": {"num_nextn_predict_layers": 2}},
            "spec.speculation.maxTokens",
            (
                "deepseek-ai/deepseek predicts 2 tokens at a time, and vLLM takes a depth of 7 "
                "only if that divides it: set maxTokens to a multiple of 2."
            ),
        ),
        (
            DEEPSEEK,
            {"target": {"model_type": "qwen3_moe"}},
            "spec.draft.method",
            (
                "deepseek-ai/deepseek has no multi-token prediction layers: choose another "
                "spec.draft.method, such as eagle3 with a draft of its own."
            ),
        ),
        (
            DEEPSEEK,
            {"target": {"model_type": "gemma3_text"}},
            "spec.draft.method",
            (
                "deepseek-ai/deepseek has no multi-token prediction layers: choose another "
                "spec.draft.method, such as eagle3 with a draft of its own."
            ),
        ),
        (
            LLAMA,
            {"spec": {"engine.args": ["-dcp", "2"]}},
            "spec.engine.args",
            (
                "--decode-context-parallel-size 2 needs 2 GPUs for each of the 8 KV heads of "
                "meta-llama/llama-70b, in even shares of its 64 attention heads, and "
                "tensorParallelSize is 4: vLLM stops at start. Remove it, or choose other sizes."
            ),
        ),
        (
            LLAMA,
            {"target": AWQ, "spec": {"engine.args": ["--quantization", "fp8"]}},
            "spec.engine.args",
            (
                "meta-llama/llama-70b is quantised by awq (its config.json), and vLLM stops at "
                "--quantization fp8: leave it out, and vLLM takes the checkpoint's."
            ),
        ),
        (
            DRAFT_MODEL,
            {"spec": {"engine.args": ["--max-model-len", "131072"]}},
            "spec.engine.args",
            (
                "--max-model-len 131072 is more than the 40960 positions of qwen/qwen3-32b: lower "
                "it."
            ),
        ),
        (
            LLAMA,
            {
                "target_bytes": 141 * GIB,
                "spec": {"engine.tensorParallelSize": 1, "nodePool.accelerator": "H100"},
            },
            "spec.engine.tensorParallelSize",
            (
                "the weights of meta-llama/llama-70b take 141 GiB on one GPU, and one "
                "H100 has 80: raise tensorParallelSize, or use a quantised model."
            ),
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_is_certain_to_fail_is_refused(
    pair: Pair, changed: dict[str, Any], field: str, message: str
) -> None:
    verdict = pair.verdict(**changed)

    assert verdict.refused
    assert (verdict.field, verdict.reason) == (field, Reason.INCOMPATIBLE)
    assert verdict.message == message


@pytest.mark.parametrize(
    ("pair", "changed", "message"),
    [
        (
            LLAMA,
            {"draft": {"vocab_size": 128000}},
            (
                "someone/llama-70b-eagle3 has vocab_size 128000, and meta-llama/llama-70b 128256: "
                "unless one of them is only padded, the draft is not this target's. Watch ACCEPT."
            ),
        ),
        (
            LLAMA,
            {"draft_weights": NO_TABLE},
            (
                "the weights of someone/llama-70b-eagle3 hold no d2t, which says which 32000 of "
                "128256 tokens it proposes: vLLM takes the first ones, without an error. Watch "
                "ACCEPT, or use another draft."
            ),
        ),
        (
            LLAMA,
            {
                "target_bytes": 4 * 76 * GIB,
                "spec": {"nodePool.accelerator": "H100", "engine.args": ["--enforce-eager"]},
                "draft_weights": Weights(total_bytes=2 * GIB),
            },
            (
                "the weights take about 76 GiB on each GPU, and vLLM may use 73 GiB of one H100, "
                "so none may be left for the KV cache: raise tensorParallelSize, or use a "
                "quantised model."
            ),
        ),
        (
            # Only its CUDA graphs are too many.
            LLAMA,
            {
                "target_bytes": 4 * 68 * GIB,
                "spec": {"nodePool.accelerator": "H100"},
                "draft_weights": Weights(total_bytes=2 * GIB),
            },
            (
                "the weights take about 68 GiB on each GPU, CUDA graphs 7, and vLLM may use 73 GiB "
                "of one H100, so none may be left for the KV cache: raise tensorParallelSize, use "
                "a quantised model, or lower --max-num-seqs, which saves graphs."
            ),
        ),
        (
            DRAFT_MODEL,
            {"spec": {"draft.id": "someone/eagle3-like"}, "draft": {"vocab_size": 32000}},
            (
                "vLLM takes the method of someone/eagle3-like from its name, not from "
                "spec.draft.method (draft_model): set that to what the draft is."
            ),
        ),
        (
            KIMI,
            {
                "target": {
                    "quantization_config": {
                        "quant_method": "compressed-tensors",
                        "kv_cache_scheme": {"num_bits": 8, "type": "float"},
                    }
                }
            },
            (
                "tokenspeed_mla needs an FP8 KV cache, and the config.json of moonshotai/kimi "
                "declares none: unless its hf_quant_config.json does, vLLM stops at start. Add "
                "--kv-cache-dtype=fp8 to spec.engine.args."
            ),
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_may_fail_is_doubted_and_never_refused(
    pair: Pair, changed: dict[str, Any], message: str
) -> None:
    verdict = pair.verdict(**changed)

    assert (verdict.status, verdict.reason) == (ConditionStatus.UNKNOWN, Reason.DOUBTFUL)
    assert verdict.message == message


@pytest.mark.parametrize(
    ("pair", "changed"),
    [
        # The target is not what its config.json says, so nothing about it is certain.
        (LLAMA, {"draft": {"target_hidden_size": 1}, "spec": {"engine.args": ["--hf_over={}"]}}),
        (
            DRAFT_MODEL,
            {"spec": {"engine.args": ["--max-model-len=auto"]}},
        ),
        (
            DRAFT_MODEL,
            {
                "spec": {
                    "engine.args": ["--max-model-len=99999"],
                    "engine.env": [{"name": "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "value": "1"}],
                }
            },
        ),
        (
            DRAFT_MODEL,
            {
                "spec": {"engine.args": ["--max-model-len=99999"]},
                "target": {"rope_parameters": {"full": {"rope_type": "linear", "factor": 4.0}}},
            },
        ),
        (LLAMA, {"target_bytes": 9999 * GIB, "spec": {"engine.args": ["--cpu-offload-gb", "99"]}}),
        (LLAMA, {"target_bytes": 9999 * GIB, "spec": {"engine.args": ["-q", "fp8"]}}),
        (
            LLAMA,
            {
                "target_bytes": 9999 * GIB,
                "spec": {"nodePool.accelerator": "Custom", "nodePool.gpusPerNode": 4},
            },
        ),
        # A tenth of a checkpoint may stay out of memory.
        (LLAMA, {"target_bytes": 4 * 85 * GIB, "spec": {"nodePool.accelerator": "H100"}}),
        # Names are judged in releases that were read.
        (
            GPT_OSS,
            {
                "draft": {"architectures": ["GptOssForCausalLM"]},
                "spec": {"engine.image": "vllm/vllm-openai:v0.33.0"},
            },
        ),
        (GPT_OSS, {"draft": {"architectures": ["Mine"], "auto_map": {"AutoModel": "m.Mine"}}}),
        (GPT_OSS, {"draft": {"architectures": ["Mine"], "speculators_model_type": "eagle3"}}),
        (KIMI, {"draft": {"num_key_value_heads": 3}}),
        (LLAMA, {"target": {"hc_mult": 4, "hidden_size": 2048}}),
        (
            LLAMA,
            {
                "target": {"num_key_value_heads": 2},
                "spec": {"engine.args": ["--decode-context-parallel-size=2"]},
            },
        ),
        (KIMI, {"spec": {"engine.args": ["-dcp", "2"]}}),
        (LLAMA, {"target": AWQ, "spec": {"engine.args": ["-q", "awq_marlin"]}}),
        (LLAMA, {"target": AWQ, "spec": {"engine.args": ["-q=humming"]}}),
        (LLAMA, {"spec": {"engine.args": ["--quantization", "fp8"]}}),
        (LLAMA, {"target": MODELOPT, "spec": {"engine.args": ["--quantization", "fp8"]}}),
        (
            LLAMA,
            {
                "target": AWQ,
                "spec": {"engine.args": ["-q", "fp8"], "engine.image": "vllm/vllm-openai:v0.34.0"},
            },
        ),
        (DEEPSEEK, {"target": {"num_nextn_predict_layers": 7}}),
        (
            DEEPSEEK,
            {
                "target": {"num_nextn_predict_layers": 3},
                "spec": {"speculation.tuning.mode": "Static"},
            },
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_is_not_certain_is_not_refused(pair: Pair, changed: dict[str, Any]) -> None:
    assert not pair.verdict(**changed).refused


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"},
        {"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8"}},
    ],
    ids=str,
)
def test_an_fp8_kv_cache_is_declared_in_several_ways(quantization: dict[str, Any]) -> None:
    verdict = KIMI.verdict(target={"quantization_config": quantization})

    assert verdict.reason is Reason.COMPATIBLE


@pytest.mark.parametrize(
    "spec",
    [
        {"engine.args": ["--kv-cache-dtype", "fp8"]},
        {"engine.args": ["--kv_cache_dtype=fp8_e4m3"]},
        {"engine.attentionBackend": ""},
        {"engine.attentionBackend": "flashinfer_mla"},
    ],
    ids=str,
)
def test_a_kv_cache_that_is_asked_for_or_free_is_not_doubted(spec: dict[str, Any]) -> None:
    assert KIMI.verdict(spec=spec, target={"quantization_config": None}).reason is Reason.COMPATIBLE


OFF = {"speculation.drafting": "Disabled"}


@pytest.mark.parametrize(
    ("engine", "field"),
    [
        ({"engine.image": "vllm/vllm-openai:v0.40.0"}, "spec.engine.image"),
        ({"engine.image": "a/b:c", "engine.version": "0.40.0"}, "spec.engine.version"),
    ],
)
def test_nothing_is_claimed_of_a_release_that_was_not_read(
    engine: dict[str, Any], field: str
) -> None:
    found = judged(engine, None, None)

    assert (found.status, found.reason) == (ConditionStatus.UNKNOWN, Reason.NOT_CHECKED)
    assert found.field == field
    assert found.message.startswith("vLLM 0.40.0 is a later release than those that were read")


def test_a_draft_that_is_not_loaded_is_not_judged() -> None:
    verdict = judged(OFF | OLD | {"draft.method": "dflash"}, None, None)
    assert (verdict.status, verdict.reason) == (ConditionStatus.TRUE, Reason.NO_DRAFT)
    assert verdict.family == ""


def test_a_target_is_judged_without_a_draft_too() -> None:
    verdict = judged(OFF | {"engine.tensorParallelSize": 4}, {"num_attention_heads": 6}, None)
    assert (verdict.reason, verdict.field) == (
        Reason.INCOMPATIBLE,
        "spec.engine.tensorParallelSize",
    )


def test_a_refusal_comes_before_a_doubt_and_a_doubt_before_what_is_not_known() -> None:
    doubt: dict[str, Any] = {"draft_weights": NO_TABLE}
    unknown = {"engine.image": "vllm/vllm-openai:latest"}

    assert LLAMA.verdict(spec=unknown, **doubt).reason is Reason.DOUBTFUL
    assert LLAMA.verdict(target={"num_attention_heads": 66}, **doubt).refused


def test_hidden_states_of_a_nested_target_are_compared() -> None:
    verdict = KIMI.verdict(draft={"hidden_size": 4096})

    assert verdict.refused
    assert "reads hidden states of size 4096" in verdict.message
