"""What the header of a draft's weights says against its config.json, the target, and vLLM."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fathom.api.conditions import ConditionStatus, Reason
from fathom.validation.model_verdict import DraftVerdict
from fathom_intake.model_weights import (
    FaultKind,
    Tensor,
    WantedWeights,
    Weights,
    faults_of,
    tensors_of,
)
from support.draft_weights import Shapes, changed, header_of, shapes_of, tensors_from
from support.model_pairs import Pair

LLAMA = Pair.read("good", "llama-eagle3")
KIMI = Pair.read("good", "kimi-eagle3.1-mla")
GPT_OSS = Pair.read("good", "gpt-oss-eagle3")
QWEN = Pair.read("good", "qwen3-moe-eagle3")
DRAFTS = {"llama": LLAMA, "kimi": KIMI, "gpt-oss": GPT_OSS, "qwen": QWEN}

NORMS = {f"fc_norm.{index}.weight": (8192,) for index in range(3)}
NO_EMBEDDING = {"embed_tokens.weight": None}
STOPS = "vLLM stops at start"


def speculators(pair: Pair, **at_the_top: Any) -> dict[str, Any]:
    """The same draft in the speculators format."""
    assert pair.draft is not None
    inner = {**pair.draft, "model_type": "llama"}
    return {
        # The pair's own keys stand at the top; of this format vLLM reads them within.
        "architectures": ["Eagle3DraftModel"],
        "auto_map": {"": "config.Eagle3SpeculatorConfig"},
        "speculators_model_type": "eagle3",
        "speculators_config": {"verifier": {"architectures": pair.target["architectures"]}},
        "transformer_layer_config": inner,
        **at_the_top,
    }


def shapes(pair: Pair, **config: Any) -> Shapes:
    return shapes_of({**(pair.draft or {}), **config})


def judged(
    pair: Pair,
    held: Shapes,
    *,
    dtypes: Mapping[str, str] | None = None,
    draft: dict[str, Any] | None = None,
    target: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
) -> DraftVerdict:
    """What is said of a pair whose draft's file has these tensors."""
    return pair.verdict(
        draft=draft,
        target=target,
        spec=spec,
        draft_weights=Weights(tensors=tensors_from(held, dtypes)),
    )


@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.parametrize("version", ["0.28.0", "0.32.0", "0.33.0"])
def test_a_draft_as_its_trainer_wrote_it_is_compatible(name: str, version: str) -> None:
    pair = DRAFTS[name]
    verdict = judged(pair, shapes(pair), spec={"engine.image": f"vllm/vllm-openai:v{version}"})
    assert verdict.reason is Reason.COMPATIBLE, verdict.message


@pytest.mark.parametrize(
    ("pair", "changes", "dtypes", "draft"),
    [
        # yuhuili's and many others: the target lends its embeddings.
        (KIMI, NO_EMBEDDING, {}, {}),
        (
            QWEN,
            {**NO_EMBEDDING, "lm_head.weight": None, "d2t": None},
            {},
            {"draft_vocab_size": 151936},
        ),
        (LLAMA, {"t2d": None}, {}, {}),
        # What is quantised has shapes of its own.
        (LLAMA, {"lm_head.weight": (32000, 3072)}, {"lm_head.weight": "U8"}, {}),
        (LLAMA, {"fc.weight": None, "fc.weight_packed": (6144, 3072)}, {}, {}),
        (LLAMA, {"lm_head.weight": (32000, 6144)}, {"lm_head.weight": "F8_E4M3"}, {}),
        # Four layers.
        (
            LLAMA,
            {"fc.weight": (6144, 4 * 8192)},
            {},
            {"num_aux_hidden_states": 4, "eagle_aux_hidden_state_layer_ids": [2, 20, 40, 77]},
        ),
        (
            QWEN,
            {"fc.weight": (4096, 4 * 4096)},
            {},
            {
                "architectures": ["Eagle3Qwen3ForCausalLM"],
                "num_aux_layers": 4,
                "num_aux_hidden_states": 3,
                "eagle_aux_hidden_state_layer_ids": [2, 20, 40, 77],
            },
        ),
        # No state of the target's goes through an fc.
        (QWEN, {"fc.weight": None}, {}, {"eagle_config": {"use_aux_hidden_state": False}}),
        (QWEN, {"fc.weight": (5, 5)}, {}, {"eagle_config": {"use_aux_hidden_state": False}}),
        # As vLLM takes it: whatever counts as true.
        (LLAMA, NORMS, {}, {"fc_norm": 1}),
        (LLAMA, {"input_norm.weight": (3 * 8192,)}, {}, {"norm_before_fc": True}),
        (
            LLAMA,
            {"input_norm.weight": (3 * 8192,)},
            {},
            {"eagle_config": {"norm_before_fc": True}},
        ),
    ],
)
def test_drafts_of_other_kinds_are_compatible(
    pair: Pair,
    changes: dict[str, tuple[int, ...] | None],
    dtypes: dict[str, str],
    draft: dict[str, Any],
) -> None:
    verdict = judged(pair, changed(shapes(pair), changes), dtypes=dtypes, draft=draft)
    assert verdict.reason is Reason.COMPATIBLE, verdict.message


def test_a_draft_in_the_speculators_format_is_compatible() -> None:
    held = shapes_of(QWEN.draft or {}, layer="layers.0")
    verdict = judged(QWEN, held, draft=speculators(QWEN, draft_vocab_size=32000))
    assert verdict.reason is Reason.COMPATIBLE, verdict.message


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"lm_head.weight": (1024, 6144)}, "lm_head.weight of 1024 by 6144"),
        ({"lm_head.weight": (32000, 4096)}, "lm_head.weight of 32000 by 4096"),
        ({"embed_tokens.weight": (128000, 6144)}, "embed_tokens.weight of 128000 by 6144"),
        ({"fc.weight": (6144, 4 * 8192)}, "fc.weight of 6144 by 32768"),
        ({"fc.weight": (4096, 3 * 8192)}, "fc.weight of 4096 by 24576"),
        ({"d2t": (128256,)}, "d2t of 128256"),
        ({"d2t": (32000, 1)}, "d2t of 32000 by 1"),
    ],
)
def test_another_shape_than_the_config_means_is_refused(
    changes: dict[str, tuple[int, ...] | None], what: str
) -> None:
    verdict = judged(LLAMA, changed(shapes(LLAMA), changes))

    assert (verdict.status, verdict.reason) == (ConditionStatus.FALSE, Reason.INCOMPATIBLE)
    assert f"the weights of someone/llama-70b-eagle3 hold {what}, and its config" in verdict.message
    assert STOPS in verdict.message


def test_the_sentence_says_both_shapes_and_what_to_do() -> None:
    held = changed(shapes(LLAMA), {"lm_head.weight": (1024, 6144)})
    assert judged(LLAMA, held).message == (
        "the weights of someone/llama-70b-eagle3 hold lm_head.weight of 1024 by 6144, and its "
        "config.json means 32000 by 6144: vLLM stops at start. Use another draft or revision."
    )


@pytest.mark.parametrize(
    ("held", "draft", "message"),
    [
        (
            changed(shapes(LLAMA), NORMS),
            {},
            (
                "hold fc_norm, and its config.json does not say fc_norm at its top: vLLM stops at "
                "start. Use a copy whose config.json has what it was trained with"
            ),
        ),
        (
            # Where vLLM does not look.
            changed(shapes(LLAMA), NORMS),
            {"eagle_config": {"fc_norm": True}},
            "does not say fc_norm at its top",
        ),
        (
            changed(shapes(LLAMA), {"fc.weight": None}),
            {},
            (
                "hold no fc, which joins the hidden states of the target: vLLM takes whatever its "
                "memory holds, without an error. Use another draft or revision."
            ),
        ),
        (
            # NeMo AutoModel's names.
            {f"model.{name}": shape for name, shape in shapes(LLAMA).items()},
            {},
            (
                "hold model.embed_tokens.weight, and vLLM puts model. before the names itself: it "
                "stops at start. Use a copy whose names do not begin so."
            ),
        ),
        (
            changed(shapes(LLAMA), NO_EMBEDDING),
            {},
            (
                "hold no embed_tokens, and those of the target are 8192 wide, the draft 6144: vLLM "
                "cannot lend them."
            ),
        ),
    ],
    ids=["norms", "norms elsewhere", "no fc", "prefix", "nothing to lend"],
)
def test_what_cannot_work_is_refused(held: Shapes, draft: dict[str, Any], message: str) -> None:
    verdict = judged(LLAMA, held, draft=draft)

    assert verdict.refused
    assert message in verdict.message


def test_a_table_of_all_tokens_is_refused_from_0_30_on() -> None:
    held = changed(shapes(GPT_OSS), {"d2t": (201088,)})

    def of(version: str) -> DraftVerdict:
        return judged(GPT_OSS, held, spec={"engine.image": f"vllm/vllm-openai:v{version}"})

    assert of("0.29.0").reason is Reason.COMPATIBLE
    assert of("0.30.0").refused
    assert of("0.32.0").message == (
        f"the weights of {GPT_OSS.spec['draft.id']} hold d2t, though it proposes all tokens of the "
        "target: vLLM stops at start, as it has no place for it. Use a copy without that tensor, "
        "or another draft."
    )


@pytest.mark.parametrize(
    ("changes", "draft", "message"),
    [
        # What `speculators convert` writes.
        ({}, {"fc_norm": True}, "hold no fc_norm, which its config.json asks for: vLLM takes ones"),
        ({"fc_norm.0.weight": (8192,)}, {"fc_norm": True}, "hold not all of fc_norm, which"),
        ({}, {"norm_before_fc": True}, "hold no input_norm, which its config.json asks for"),
        ({"d2t": None}, {}, "hold no d2t, which says which 32000 of 128256 tokens it proposes"),
    ],
)
def test_what_may_be_meant_so_is_doubtful(
    changes: dict[str, tuple[int, ...] | None], draft: dict[str, Any], message: str
) -> None:
    verdict = judged(LLAMA, changed(shapes(LLAMA), changes), draft=draft)

    assert (verdict.status, verdict.reason) == (ConditionStatus.UNKNOWN, Reason.DOUBTFUL)
    assert message in verdict.message
    assert "without an error. Watch ACCEPT, or use" in verdict.message


@pytest.mark.parametrize(
    ("spec", "draft"),
    [
        ({"engine.image": "vllm/vllm-openai:latest"}, {}),
        ({"engine.image": "vllm/vllm-openai:v0.27.0"}, {"max_position_embeddings": 1 << 20}),
        ({"engine.image": "vllm/vllm-openai:v0.34.0"}, {}),
        ({"engine.args": ["--load-format=dummy"]}, {}),
        ({"draft.options": {"quantization": '"fp8"'}}, {}),
        # A class that is not known here.
        ({}, {"architectures": ["Mine"], "auto_map": {"AutoModel": "m.Mine"}}),
        ({}, {"auto_map": {"AutoConfig": "m.Mine"}}),
        ({}, {"speculators_model_type": "hass"}),
        ({}, {"vocab_size": None, "draft_vocab_size": None}),
    ],
)
def test_what_is_not_certain_is_not_refused(spec: dict[str, Any], draft: dict[str, Any]) -> None:
    held = changed(shapes(LLAMA), {"lm_head.weight": (1024, 6144)})
    verdict = judged(LLAMA, held, spec=spec, draft=draft)
    assert not verdict.refused, verdict.message


def test_a_target_of_several_streams_says_no_width() -> None:
    held = changed(shapes(LLAMA), NO_EMBEDDING)
    assert judged(LLAMA, held, target={"hc_mult": 4}).reason is Reason.COMPATIBLE


def test_what_is_certain_comes_before_what_is_doubtful() -> None:
    held = changed(shapes(LLAMA), {"d2t": None, **NORMS, "fc_norm.0.weight": None})
    assert judged(LLAMA, held, draft={"norm_before_fc": True}).refused


def test_an_index_tells_names_and_no_shapes() -> None:
    names = tuple(Tensor(name) for name in sorted(shapes(LLAMA)) if name != "d2t")
    verdict = LLAMA.verdict(draft_weights=Weights(tensors=names))
    assert verdict.reason is Reason.DOUBTFUL
    assert "hold no d2t" in verdict.message


def test_an_index_that_names_what_is_not_there_is_refused() -> None:
    weights = Weights(index_lacks="../../etc/model.safetensors")

    assert LLAMA.verdict(draft_weights=weights).message == (
        "the index of someone/llama-70b-eagle3 names ../../etc/model.safetensors, which is not "
        "among its files: vLLM stops at start. Use a whole copy of the draft."
    )
    older = {"engine.image": "vllm/vllm-openai:v0.27.0"}
    assert not LLAMA.verdict(spec=older, draft_weights=weights).refused


def test_a_link_out_of_the_folder_is_doubtful() -> None:
    verdict = LLAMA.verdict(draft_weights=Weights(link="model.safetensors"))
    assert verdict.reason is Reason.DOUBTFUL
    assert verdict.message.startswith(
        "model.safetensors in someone/llama-70b-eagle3 is a link to somewhere else: a pod that"
    )


@pytest.mark.parametrize(
    ("keys", "version", "lowest"),
    [
        ({"fc_norm": True, "norm_output": True}, "0.22.1", "0.25.0"),
        ({"fc_norm": True, "norm_output": True}, "0.24.0", "0.25.0"),
        # What speculators trains by default: no weights of it tell.
        ({"norm_before_fc": True, "norm_output": True}, "0.24.0", "0.25.0"),
        ({"norm_before_fc": True}, "0.24.0", ""),
        ({"fc_norm": True, "norm_output": True}, "0.25.0", ""),
    ],
)
def test_the_norms_of_the_speculators_format_are_read_from_0_25_on(
    keys: dict[str, bool], version: str, lowest: str
) -> None:
    verdict = QWEN.verdict(
        spec={"engine.image": f"vllm/vllm-openai:v{version}"},
        draft=speculators(QWEN, draft_vocab_size=32000, **keys),
    )
    if not lowest:
        assert not verdict.refused, verdict.message
        return
    assert (verdict.status, verdict.reason) == (ConditionStatus.FALSE, Reason.ENGINE_TOO_OLD)
    assert verdict.message.endswith(f"use vLLM {lowest} or later.")


@pytest.mark.parametrize(
    ("version", "refused"), [("0.21.0", True), ("0.22.0", False), ("0.24.0", False)]
)
def test_the_norms_of_vllms_own_format_are_read_from_0_22_on(version: str, refused: bool) -> None:  # noqa: FBT001 - see the table above
    verdict = QWEN.verdict(
        spec={"engine.image": f"vllm/vllm-openai:v{version}"},
        draft={"fc_norm": True, "norm_output": True},
    )
    assert verdict.refused == refused, verdict.message
    if refused:
        assert verdict.reason is Reason.ENGINE_TOO_OLD
        assert "which vLLM 0.21.0 does not know: use vLLM 0.22.0 or later." in verdict.message


def test_on_a_target_with_mla_norms_of_the_output_alone_are_read_from_0_22_on() -> None:
    spec = {"engine.image": "vllm/vllm-openai:v0.22.1"}
    assert not KIMI.verdict(spec=spec, draft={"fc_norm": False}).refused
    assert KIMI.verdict(spec=spec).reason is Reason.ENGINE_TOO_OLD


@pytest.mark.parametrize(
    "header",
    [
        None,
        [],
        {"fc.weight": 5},
        {"fc.weight": {"dtype": "BF16", "shape": [-1]}},
        {"fc.weight": {"dtype": "BF16", "shape": [1.5]}},
        {"fc.weight": {"dtype": 5, "shape": [1]}},
        {"fc.weight": {"dtype": "BF16", "shape": [1] * 9}},
        {f"fc.{'x' * 200}": {"dtype": "BF16", "shape": [1]}},
        {f"fc.{index}": {"dtype": "BF16", "shape": [1]} for index in range(65)},
    ],
)
def test_a_header_that_is_none_makes_the_tensors_unknown(header: Any) -> None:
    assert tensors_of(header) is None


def test_what_matters_alone_is_kept_of_a_header() -> None:
    tensors = tensors_from(shapes(KIMI)) or ()
    assert {each.name for each in tensors} == {
        *("d2t", "embed_tokens.weight", "fc.weight", "lm_head.weight"),
        *(f"fc_norm.{index}.weight" for index in range(3)),
    }
    assert header_of({})["__metadata__"]


def test_what_was_known_of_a_header_stays_until_one_is_read_again() -> None:
    before = Weights(total_bytes=5, tensors=(Tensor("d2t"),), pickled=False, index_lacks="gone")

    assert Weights().or_before(before) == before
    now = Weights(tensors=(Tensor("fc.weight"),))
    assert now.or_before(before) == Weights(
        total_bytes=5, tensors=(Tensor("fc.weight"),), pickled=False
    )


def test_every_fault_has_a_kind_and_only_two_kinds_may_be_meant_so() -> None:
    sizes: dict[str, Any] = {"hidden_size": 4, "target_hidden_size": 8, "hidden_states": 3}
    whole = WantedWeights(**sizes, vocab_size=20, draft_vocab_size=10, embedding_width=8)
    held = (Tensor("fc.weight", "F32", (4, 8)), Tensor("fc_norm.0.weight", "F32", (8,)))

    found = [(each.kind, each.certain) for each in faults_of(held, whole)]

    assert found == [
        (FaultKind.SHAPE, True),
        (FaultKind.LACKS_LENT, True),
        (FaultKind.LACKS_TABLE, False),
        (FaultKind.NORMS_UNREAD, True),
    ]
    asked = replace(whole, fc_norm=True, table_unread=True, draft_vocab_size=20)
    table = (Tensor("d2t", "I64", (20,)), Tensor("lm_head.weight"), Tensor("embed_tokens.weight"))
    assert [each.kind for each in faults_of(table, asked)] == [
        FaultKind.LACKS_FC,
        FaultKind.LACKS_NORMS,
        FaultKind.TABLE_UNREAD,
    ]
    (prefixed,) = faults_of((Tensor("model.fc.weight"),), WantedWeights())
    assert prefixed.kind is FaultKind.PREFIXED
    assert [*faults_of((), WantedWeights())] == []
