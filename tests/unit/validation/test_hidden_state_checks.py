"""Drafts that read hidden states: whether they are drafts, and of this target."""

from typing import Any

import pytest

from fathom.api.conditions import ConditionStatus, Reason
from fathom.model_facts import NO_MODEL, ModelConfig, ModelFacts
from fathom.validation.model_input import preflight_input
from fathom.validation.model_verdict import DraftVerdict, check_draft
from manifest_samples import resource

TARGET: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}
DRAFT = TARGET | {
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": 32000,
}
PAIR = {"model.id": "some/target", "draft.id": "some/draft"}
V1 = {"engine.env": [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"}]}


def judged(
    changes: dict[str, Any] | None = None,
    *,
    draft: dict[str, Any] | None = None,
    target: dict[str, Any] | None = None,
) -> DraftVerdict:
    """The verdict on the pair, with these values changed in spec and config.json files."""
    spec = resource(PAIR | (changes or {}))
    facts = [
        ModelFacts(config=ModelConfig.from_json(each))
        for each in (TARGET | (target or {}), DRAFT | (draft or {}))
    ]
    if not spec.spec.draft.id:
        facts[1] = NO_MODEL
    return check_draft(preflight_input(spec.engine, *facts))


def speculators(layers: list[int], **inner: Any) -> dict[str, Any]:
    """A draft in the speculators format that names these layers."""
    within = {key: DRAFT[key] for key in ("model_type", "hidden_size", "vocab_size")} | inner
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "eagle_aux_hidden_state_layer_ids": layers,
        "num_hidden_layers": None,
        "transformer_layer_config": within | {"num_hidden_layers": 1},
    }


def plain(layers: int) -> dict[str, Any]:
    """A model's own config.json."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": layers,
        "draft_vocab_size": None,
    }


def without_nothing(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if value is not None}


def test_the_target_itself_is_no_draft() -> None:
    verdict = judged({"draft.id": "some/target"})

    assert verdict.refused
    assert verdict.message.startswith("some/target is the target itself, and no draft of it: ")


def test_the_target_itself_as_a_draft_model_is_doubted() -> None:
    itself = {"draft.id": "some/target", "draft.method": "draft_model"}
    assert judged(itself, draft=TARGET).reason is Reason.DOUBTFUL


def test_another_revision_of_the_target_is_judged_by_its_config() -> None:
    assert judged({"draft.id": "some/target", "draft.revision": "draft"}).reason is (
        Reason.COMPATIBLE
    )


def test_a_plain_model_is_no_eagle_3() -> None:
    verdict = check_draft(
        preflight_input(
            resource(PAIR).engine,
            ModelFacts(config=ModelConfig.from_json(TARGET)),
            ModelFacts(config=ModelConfig.from_json(without_nothing(DRAFT | plain(32)))),
        )
    )

    assert (verdict.status, verdict.family) == (ConditionStatus.FALSE, "")
    assert verdict.message == (
        "some/draft is a plain LlamaForCausalLM of 32 layers: nothing in its config.json is of an "
        "EAGLE 3 draft, and its weights have no part that reads hidden states. Use a draft that "
        "was trained for this target, or another spec.draft.method."
    )


@pytest.mark.parametrize(
    "sign",
    [{"draft_vocab_size": 32000}, {"eagle_config": {}}, {"norm_before_residual": True}],
    ids=str,
)
def test_any_sign_of_eagle_3_is_enough(sign: dict[str, Any]) -> None:
    draft = plain(1) | {"draft_vocab_size": None} | sign
    config = ModelConfig.from_json(without_nothing(DRAFT | draft))
    assert config.like_eagle3
    assert not ModelConfig.from_json(without_nothing(DRAFT | plain(1))).like_eagle3


@pytest.mark.parametrize(
    ("draft", "changes"),
    [
        # Counted by the class of llama_eagle3.py: three, whatever is named at the top.
        (speculators([2, 10, 20, 29]), {}),
        ({"eagle_aux_hidden_state_layer_ids": [2, 29]}, {}),
        ({"num_aux_hidden_states": 4, "eagle_aux_hidden_state_layer_ids": [2, 16, 29]}, {}),
        # Model Runner V2 does not read what is in eagle_config, and the draft counts it.
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 10, 20, 29]}}, {}),
        # None named, and space for more than vLLM's three.
        ({"num_aux_hidden_states": 4}, {}),
        ({"eagle_aux_hidden_state_layer_ids": [2, 16, 33]}, {}),
        ({"eagle_aux_hidden_state_layer_ids": [-1, 16, 20]}, {}),
        (speculators([2, 16, 29], model_type="mistral"), {}),
    ],
    ids=str,
)
def test_layers_that_do_not_fit_are_refused(draft: dict[str, Any], changes: Any) -> None:
    assert judged(changes, draft=draft).reason is Reason.INCOMPATIBLE


@pytest.mark.parametrize(
    ("draft", "changes", "layers"),
    [
        ({}, {}, "3 layers (2, 16, 29: vLLM's choice, as the draft names none)"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 15, 32]}, {}, "3 layers (1, 15, 32)"),
        (
            {"eagle_aux_hidden_state_layer_ids": [2, 9, 20, 29], "num_aux_hidden_states": 4},
            {},
            "4 layers (2, 9, 20, 29)",
        ),
        (
            speculators([2, 9, 20, 29], num_aux_hidden_states=4),
            {},
            "4 layers (2, 9, 20, 29)",
        ),
        (speculators([2, 9, 20, 29], model_type="qwen3"), {}, "4 layers (2, 9, 20, 29)"),
        (
            {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 9, 20, 29]}},
            V1,
            "4 layers (2, 9, 20, 29)",
        ),
        (
            {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 16, 29]}},
            {},
            "3 layers (2, 16, 29)",
        ),
    ],
    ids=str,
)
def test_says_which_layers_it_gets(draft: dict[str, Any], changes: Any, layers: str) -> None:
    verdict = judged(changes, draft=draft)

    assert verdict.reason is Reason.COMPATIBLE
    assert f", {layers}, " in verdict.message


def test_says_what_to_write_for_four_layers() -> None:
    assert judged(draft=speculators([2, 10, 20, 29])).message == (
        "some/draft names 4 layers of the target (2, 10, 20, 29), and vLLM 0.32.0 has space for "
        "3: it does not load. Use another draft or, if this one was trained with 4, a copy with "
        '"num_aux_hidden_states": 4 in transformer_layer_config of its config.json.'
    )
    assert judged(draft={"num_aux_hidden_states": 4}).message == (
        "some/draft names no layers, so that vLLM 0.32.0 takes 3, and it has space for 4: it does "
        "not load. Use another draft or, if this one was trained with 4, a copy whose config.json "
        "names them at the top, as eagle_aux_hidden_state_layer_ids."
    )


@pytest.mark.parametrize("version", ["0.23.0", "0.34.0"])
def test_rules_of_other_releases_are_not_known(version: str) -> None:
    image = {"engine.image": f"vllm/vllm-openai:v{version}"}
    assert not judged(image, draft={"num_aux_hidden_states": 4}).refused


def test_signs_of_another_training_are_doubted() -> None:
    for draft in (
        {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 30]}},
        {"num_target_layers": 80},
        # One that was seen: 1.2 % accepted.
        {"hidden_size": 3072, "target_hidden_size": 4096},
        {"speculators_config": {"verifier": {"architectures": ["Qwen3ForCausalLM"]}}},
    ):
        assert judged(draft=draft).reason is Reason.DOUBTFUL, draft


def test_the_same_training_is_not_doubted() -> None:
    verifier = {"architectures": ["LlamaForCausalLM"], "name_or_path": "/model"}
    narrow = {"hidden_size": 3072, "target_hidden_size": 4096}
    for draft in (
        {"num_target_layers": 32},
        {"speculators_config": {"verifier": verifier}},
        narrow | {"eagle_aux_hidden_state_layer_ids": [1, 15, 30]},
        # Not read, and the same as those that vLLM chooses.
        narrow | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 16, 29]}},
    ):
        assert judged(draft=draft).reason is Reason.COMPATIBLE, draft


SHORT = {"max_position_embeddings": 2048}


@pytest.mark.parametrize(
    ("version", "reason", "said"),
    [
        ("0.26.0", Reason.INCOMPATIBLE, "in vLLM 0.26.0 the first one beyond 2048 ends the engine"),
        ("0.27.0", Reason.DOUBTFUL, "beyond 2048 few of its drafts may be accepted. Watch ACCEPT"),
    ],
)
def test_a_draft_of_fewer_positions(version: str, reason: Reason, said: str) -> None:
    image = {"engine.image": f"vllm/vllm-openai:v{version}"}
    verdict = judged(image, draft=SHORT)

    assert verdict.reason is reason
    assert "some/draft has 2048 positions, and requests may have 8192 (as --max-" in verdict.message
    assert said in verdict.message


@pytest.mark.parametrize(
    "changes", [{"engine.args": ["--max-model-len", "2048"]}, {"draft.method": "draft_model"}]
)
def test_as_many_positions_as_are_asked_for_are_enough(changes: dict[str, Any]) -> None:
    assert judged(changes, draft=SHORT).reason is Reason.COMPATIBLE


@pytest.mark.parametrize(
    ("target", "draft", "lacks"),
    [
        ({"architectures": []}, {}, "some/target does not say its architecture"),
        ({}, {"hidden_size": None}, "some/draft does not say its hidden_size"),
        (
            {"hidden_size": None, "vocab_size": "many"},
            {},
            "some/target does not say its hidden_size and vocab_size",
        ),
    ],
    ids=str,
)
def test_what_a_config_does_not_say_is_unknown(
    target: dict[str, Any], draft: dict[str, Any], lacks: str
) -> None:
    verdict = judged(target=target, draft=draft)

    assert (verdict.status, verdict.reason) == (ConditionStatus.UNKNOWN, Reason.NOT_CHECKED)
    assert lacks in verdict.message


def test_what_loads_no_draft_has_nothing_to_be_compared() -> None:
    verdict = judged({"draft.id": None, "draft.method": "ngram"})
    assert "it loads no draft, so that there is nothing to compare." in verdict.message


@pytest.mark.parametrize("model_type", ["someones", "deepseek_v3"])
def test_unknown_multi_token_prediction_is_not_compatible(model_type: str) -> None:
    mtp = {"draft.id": None, "draft.method": "mtp"}
    known = {"num_nextn_predict_layers": 1} if model_type == "someones" else {}
    assert judged(mtp, target={"model_type": model_type} | known).reason is Reason.NOT_CHECKED
