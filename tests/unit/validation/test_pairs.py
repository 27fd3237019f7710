"""Twelve pairs: six that vLLM runs, and each of them broken in one way."""

import pytest

from fathom.api.conditions import ConditionStatus, Reason
from support.model_pairs import NAMES, Pair, leaves

GOOD = {
    "deepseek-mtp": (
        "MTP",
        (
            "deepseek-ai/deepseek is served with method mtp and no draft of its own, which vLLM "
            "0.32.0 runs; compared: architecture, multi-token prediction layers 1."
        ),
    ),
    "draft-model": (
        "draft model",
        (
            "qwen/qwen3-32b is served with method draft_model and qwen/qwen3-0.6b, which vLLM "
            "0.32.0 runs; compared: vocabulary 151936, attention heads."
        ),
    ),
    "gpt-oss-eagle3": (
        "EAGLE-3",
        (
            "someone/gpt-oss-draft is EAGLE-3 (its config.json), which vLLM 0.32.0 runs; "
            "compared: architecture, hidden size 2880, vocabulary 201088, 3 layers (2, 18, 33: "
            "vLLM's choice, as the draft names none), attention heads, positions 131072."
        ),
    ),
    "kimi-eagle3.1-mla": (
        "EAGLE-3.1",
        (
            "someone/kimi-eagle3.1-mla is EAGLE-3.1 (its config.json), which vLLM 0.32.0 runs; "
            "compared: architecture, hidden size 7168, vocabulary 163840, 3 layers (2, 30, "
            "58), attention heads."
        ),
    ),
    "llama-eagle3": (
        "EAGLE-3",
        (
            "someone/llama-70b-eagle3 is EAGLE-3 (its config.json), which vLLM 0.32.0 runs; "
            "compared: architecture, hidden size 8192, vocabulary 128256, 3 layers (2, 40, "
            "77), attention heads, positions 131072."
        ),
    ),
    "qwen3-moe-eagle3": (
        "EAGLE-3",
        (
            "someone/qwen3-moe-eagle3 is EAGLE-3 (its config.json), which vLLM 0.32.0 runs; "
            "compared: architecture, hidden size 4096, vocabulary 151936, 3 layers (2, 47, 91: "
            "vLLM's choice, as the draft names none), attention heads, positions 40960."
        ),
    ),
}

BROKEN = {
    "deepseek-mtp": (
        "spec.draft.method",
        Reason.INCOMPATIBLE,
        (
            "deepseek-ai/deepseek has no multi-token prediction layers: choose another "
            "spec.draft.method, such as eagle3 with a draft of its own."
        ),
    ),
    "draft-model": (
        "spec.draft.id",
        Reason.INCOMPATIBLE,
        (
            "qwen/qwen3-0.6b has vocab_size 32000, and qwen/qwen3-32b 151936: vLLM takes a "
            "draft_model of the same vocabulary only. Use a draft of the target's own family."
        ),
    ),
    "gpt-oss-eagle3": (
        "spec.draft.id",
        Reason.INCOMPATIBLE,
        (
            "someone/gpt-oss-draft is a GptOssForCausalLM, and vLLM 0.32.0 knows no EAGLE 3 draft "
            "Eagle3GptOssForCausalLM: use a draft that was trained as EAGLE 3, or set "
            "spec.draft.method to what this one is."
        ),
    ),
    "kimi-eagle3.1-mla": (
        "spec.draft.id",
        Reason.ENGINE_TOO_OLD,
        (
            "someone/kimi-eagle3.1-mla is an EAGLE 3.1 draft with MLA (its config.json), which "
            "vLLM 0.22.1 loads without applying its fc_norm: use vLLM 0.23.0 or later."
        ),
    ),
    "llama-eagle3": (
        "spec.draft.id",
        Reason.INCOMPATIBLE,
        (
            "someone/llama-70b-eagle3 reads hidden states of size 4096, and meta-llama/llama-70b "
            "has hidden_size 8192: use a draft that was trained for this target."
        ),
    ),
    "qwen3-moe-eagle3": (
        "spec.draft.id",
        Reason.INCOMPATIBLE,
        (
            "someone/qwen3-moe-eagle3 has 2 attention heads, which the target's 4 GPUs cannot "
            "share evenly: use another draft, or a tensorParallelSize that divides both models' "
            "heads."
        ),
    ),
}


def test_every_pair_is_looked_at() -> None:
    assert NAMES == sorted(GOOD) == sorted(BROKEN)


@pytest.mark.parametrize("name", NAMES)
def test_a_good_pair_is_compatible(name: str) -> None:
    family, message = GOOD[name]

    verdict = Pair.read("good", name).verdict()

    assert (verdict.status, verdict.reason) == (ConditionStatus.TRUE, Reason.COMPATIBLE)
    assert (verdict.family, verdict.message) == (family, message)


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_pair_is_refused_with_its_sentence(name: str) -> None:
    field, reason, message = BROKEN[name]

    verdict = Pair.read("broken", name).verdict()

    assert verdict.refused
    assert (verdict.field, verdict.reason, verdict.message) == (field, reason, message)


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_pair_differs_from_the_good_one_in_one_value(name: str) -> None:
    good, broken = (
        leaves({"spec": pair.spec, "target": pair.target, "draft": pair.draft})
        for pair in (Pair.read("good", name), Pair.read("broken", name))
    )

    different = {path for path in good | broken if good.get(path) != broken.get(path)}

    assert len(different) == 1
