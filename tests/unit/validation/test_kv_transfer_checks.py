"""What `check` sees to where engines hand their KV cache to one another."""

import json
from typing import Any

import pytest

from fathom.api.problem import Problem, Severity
from fathom.model_facts import ModelConfig, ModelFacts
from fathom.model_refs import target_ref
from fathom.validation.candidate import candidate_of
from fathom.validation.chain import problems_of
from fathom.validation.kv_transfer_checks import kv_transfer_warnings
from manifest_samples import resource
from support.validated import candidate, errors, warnings

HOST = {
    "name": "VLLM_NIXL_SIDE_CHANNEL_HOST",
    "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
}
NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_producer"}
AT = (
    "spec.engine.env: every pod gives {} as its address, and no other engine finds it there: set "
    "VLLM_NIXL_SIDE_CHANNEL_HOST with valueFrom.fieldRef.fieldPath: status.podIP."
)
PREFILL = {"engine.env": [HOST], "speculation.drafting": "Disabled"}


def found(config: object, spelling: str = "--kv-transfer-config", **changes: Any) -> list[str]:
    sd = resource({"engine.args": [spelling, json.dumps(config)], **changes})
    assert errors(sd) == ()
    return [str(each) for each in warnings(sd)]


@pytest.mark.parametrize("method", ["eagle3", "eagle", "mtp", "dflash", "dspark", "draft_model"])
def test_a_half_that_leaves_out_the_draft_of_the_other_is_told(method: str) -> None:
    draft = {"draft.method": method, "draft.id": None if method == "mtp" else "org/draft"}

    (doubt,) = found(NIXL, **PREFILL, **draft)

    assert doubt.startswith("spec.speculation.drafting: ")
    assert f"if the other half drafts by {method}, neither can use the KV cache of the o" in doubt
    assert "leave drafting Enabled" in doubt


@pytest.mark.parametrize(
    "changes",
    [
        {"speculation.drafting": "Enabled"},
        {"draft.method": "ngram", "draft.id": None},
        {"draft.method": "suffix", "draft.id": None},
        {"draft.id": None},
    ],
    ids=["drafts", "ngram", "suffix", "no draft is known"],
)
def test_a_half_is_fine_where_no_layer_of_the_draft_is_missed(changes: dict[str, Any]) -> None:
    assert found(NIXL, **PREFILL | changes) == []


@pytest.mark.parametrize(
    "config",
    [
        {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"},
        {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"},
        {},
    ],
)
def test_another_connector_is_not_judged(config: object) -> None:
    assert found(config, **{"speculation.drafting": "Disabled"}) == []


@pytest.mark.parametrize(
    "config",
    [
        {"kv_connector": 5, "kv_connector_extra_config": {"connectors": "NixlConnector"}},
        ["NixlConnector"],
    ],
)
def test_what_is_no_connector_is_left_to_other_checks(config: object) -> None:
    sd = resource({"engine.args": ["--kv-transfer-config", json.dumps(config)]})
    assert list(kv_transfer_warnings(candidate(sd))) == []


@pytest.mark.parametrize("spelling", ["--kv-transfer-config", "--kv_transfer_config", "--kv-t"])
@pytest.mark.parametrize(
    "config",
    [
        NIXL,
        {"kv_connector": "NixlPushConnector", "kv_role": "kv_producer"},
        {
            "kv_connector": "MultiConnector",
            "kv_role": "kv_producer",
            "kv_connector_extra_config": {"connectors": [{"kv_connector": "LMCache"}, NIXL]},
        },
    ],
    ids=["pull", "push", "within another"],
)
def test_without_an_address_the_others_ask_themselves(spelling: str, config: object) -> None:
    doubt = found(config, spelling)[0]

    assert doubt == AT.format("localhost, vLLM's default,")


@pytest.mark.parametrize("value", ["localhost", "127.0.0.1", "", "0.0.0.0", "prefill.llm.svc"])
def test_an_address_that_is_each_pod_s_is_none(value: str) -> None:
    stated = {"name": HOST["name"], "value": value}

    assert found(NIXL, **{"engine.env": [stated]}) == [AT.format(repr(value))]


def test_what_an_object_says_is_no_address_of_a_pod_either() -> None:
    every = {"name": "vllm", "envFrom": [{"configMapRef": {"name": "settings"}}]}
    one = {"configMapKeyRef": {"name": "settings", "key": "host"}}

    assert found(NIXL, podTemplate={"spec": {"containers": [every]}}) == [
        AT.format("localhost, or what envFrom says,")
    ]
    assert found(NIXL, **{"engine.env": [{"name": HOST["name"], "valueFrom": one}]}) == [
        AT.format("what configMapKeyRef says")
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"engine.env": [HOST]},
        {"engine.env": [HOST | {"name": "IP"}, {"name": HOST["name"], "value": "$(IP)"}]},
        {"podTemplate": {"spec": {"containers": [{"name": "vllm", "env": [HOST]}]}}},
    ],
    ids=["engine.env", "from another variable", "podTemplate"],
)
def test_an_address_that_is_given_is_seen(changes: dict[str, Any]) -> None:
    assert found(NIXL, **changes) == []


def test_what_is_written_key_by_key_is_read() -> None:
    args = [
        "--kv-transfer-config.kv_connector=NixlConnector",
        "--kv-transfer-config.kv_role",
        "kv_consumer",
    ]

    told = warnings(resource({"engine.args": args, "speculation.drafting": "Disabled"}))

    assert [each.field for each in told] == [
        "spec.speculation.drafting",
        "spec.engine.env",
        "spec.engine.args",
    ]


@pytest.mark.parametrize(
    "config",
    [
        {"kv_connector": "NixlConnector", "kv_role": "kv_consumer"},
        {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_load_failure_policy": "fail"},
        {
            "kv_connector": "MultiConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "connectors": [
                    {"kv_connector": "NixlConnector", "kv_load_failure_policy": "recompute"}
                ]
            },
        },
    ],
    ids=["by default", "as stated", "within another, whose policy holds"],
)
def test_a_request_that_would_fail_with_another_pod_is_told(config: dict[str, Any]) -> None:
    static: dict[str, Any] = {"engine.env": [HOST], "speculation.tuning.mode": "Static"}

    (doubt,) = found(config, **static)

    assert doubt.startswith("spec.engine.args: a request whose KV cache cannot be fetched")
    assert found(config | {"kv_load_failure_policy": "recompute"}, **static) == []


NO_GRAPH = (
    "spec.speculation.tuning.mode: a request whose KV cache comes from another engine begins with "
    "one token, which vLLM does not pad to a full CUDA graph where depth is live: the steps that "
    "such requests join run without one, a third of all steps at 64 requests (measured). With "
    "mode Static they have it: compare tokens per second."
)
CONSUMER = {
    "kv_connector": "NixlConnector",
    "kv_role": "kv_consumer",
    "kv_load_failure_policy": "recompute",
}
BOTH = CONSUMER | {"kv_role": "kv_both"}
LMCACHE = {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}


def labelled(role: str) -> dict[str, Any]:
    return {"podTemplate": {"metadata": {"labels": {"llm-d.ai/role": role}}}}


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (CONSUMER, {}),
        (BOTH, {}),
        ({"kv_connector": "MooncakeConnector", "kv_role": "kv_consumer"}, {}),
        (LMCACHE, labelled("decode")),
        (
            {
                "kv_connector": "MultiConnector",
                "kv_role": "kv_both",
                "kv_load_failure_policy": "recompute",
                "kv_connector_extra_config": {"connectors": [LMCACHE, CONSUMER]},
            },
            {},
        ),
        (CONSUMER, {"engine.args+": ["-cc.cudagraph_mode=FULL_DECODE_ONLY"]}),
    ],
    ids=["consumer", "both", "another connector", "labelled", "within another", "decode only"],
)
def test_graphs_that_a_decode_side_misses_with_live_depth_are_told(
    config: dict[str, Any], changes: dict[str, Any]
) -> None:
    assert graphs_missed(config, changes) == [NO_GRAPH]


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (CONSUMER, {"speculation.tuning.mode": "Static"}),
        (CONSUMER, {"engine.dataParallelSize": 2}),
        (CONSUMER, {"engine.args+": ["--enforce-eager"]}),
        (CONSUMER, {"engine.args+": ["-cc.cudagraph_mode=PIECEWISE"]}),
        (CONSUMER, {"engine.args+": ["-cc.cudagraph_mode=FULL"]}),
        (
            CONSUMER,
            {
                "speculation.adaptiveVerification": "Enabled",
                "engine.attentionBackend": "flashinfer_mla",
            },
        ),
        (NIXL, {}),
        (BOTH, labelled("prefill")),
        (LMCACHE, {}),
        ({"kv_connector": 5, "kv_role": ["kv_consumer"]}, {}),
    ],
    ids=[
        *("static", "not live", "eager", "piecewise", "full of any length", "adaptive"),
        *("producer", "labelled", "no other engine", "strange"),
    ],
)
def test_a_side_that_misses_none_is_not_told(
    config: dict[str, Any], changes: dict[str, Any]
) -> None:
    assert graphs_missed(config, changes) == []


def graphs_missed(config: dict[str, Any], changes: dict[str, Any]) -> list[str]:
    """What is said of a full CUDA graph; `engine.args+` are more arguments."""
    more = {key: value for key, value in changes.items() if key != "engine.args+"}
    args = ["--kv-transfer-config", json.dumps(config), *changes.get("engine.args+", ())]
    sd = resource({"engine.env": [HOST], "engine.args": args, **more})
    assert errors(sd) == ()
    return [said for said in map(str, warnings(sd)) if "CUDA graph" in said]


@pytest.mark.parametrize("text", ["{", "[" * 30_000], ids=["cut off", "deep"])
def test_what_is_no_json_is_left_to_vllm(text: str) -> None:
    sd = resource({"engine.args": ["--kv-transfer-config", text]})

    assert warnings(sd) == ()


STATES = {
    "engine.env": [HOST, {"name": "VLLM_SSM_CONV_STATE_LAYOUT", "value": "DS"}],
    "speculation.maxTokens": 3,
}


def test_both_halves_of_a_hybrid_target_need_one_depth() -> None:
    (said,) = found(NIXL, **STATES)
    assert said.startswith("spec.speculation.maxTokens: the target has Mamba or linear-attention l")
    assert "this half's is 3. vLLM does not compare them" in said


def test_other_targets_and_connectors_are_not_concerned() -> None:
    assert found(NIXL, **{"engine.env": [HOST]}) == []
    assert found({"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}, **STATES) == []


ALLOCATOR = {"name": "PYTORCH_CUDA_ALLOC_CONF", "value": "expandable_segments:True"}
HANDED_ON = (f"--kv-transfer-config={json.dumps(NIXL)}", "--kv-offloading-size=100")


def refused(args: tuple[str, ...], value: str = ALLOCATOR["value"]) -> list[str]:
    changes = {
        "engine.image": "vllm/vllm-openai:v0.32.0",
        "engine.args": list(args),
        "engine.env": [HOST, {**ALLOCATOR, "value": value}],
    }
    return [str(each) for each in errors(resource(changes))]


@pytest.mark.parametrize("option", HANDED_ON)
def test_memory_that_is_handed_on_must_not_move(option: str) -> None:
    (refusal,) = refused((option,))
    assert refusal == (
        "spec.engine.env[1]: vLLM stops at start where its KV cache is handed on and "
        "PYTORCH_CUDA_ALLOC_CONF has expandable_segments:True, for that moves memory which the "
        "connector has registered: remove it."
    )
    assert refused((option, "--enable-sleep-mode")) == []
    assert refused((option,), "max_split_size_mb:64") == []


def test_memory_that_nobody_else_reads_may_move() -> None:
    assert refused(()) == []


HYBRID = {"num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2}
STATES_ALONE = {"num_hidden_layers": 4, "layer_types": ["linear_attention"] * 4}
DENSE = {"num_hidden_layers": 4}
ON, OFF = "--no-disable-hybrid-kv-cache-manager", "--disable-hybrid-kv-cache-manager"


def through(connector: str, **more: Any) -> tuple[str, str]:
    config = {"kv_connector": connector, "kv_role": "kv_both", **more}
    return ("--kv-transfer-config", json.dumps(config))


def among(*connectors: str) -> tuple[str, str]:
    children = [{"kv_connector": each, "kv_role": "kv_both"} for each in connectors]
    return through("MultiConnector", kv_connector_extra_config={"connectors": children})


def of_caches(config: dict[str, Any], *args: str, version: str = "0.32.0") -> list[Problem]:
    image = {"engine.image": f"vllm/vllm-openai:v{version}"}
    sd = resource({"engine.args": [*args], **image, "draft.method": "mtp", "draft.id": None})
    known = {target_ref(sd.spec): ModelFacts(config=ModelConfig.from_json(config))}
    found = problems_of(candidate_of(sd, known))
    return [each for each in found if each.rule == "hybrid-cache"]


@pytest.mark.parametrize(
    ("config", "args", "words"),
    [
        (HYBRID, through("LMCacheConnectorV1"), "connector LMCacheConnectorV1 takes one of them"),
        (HYBRID, through("FlexKVConnectorV1"), "connector FlexKVConnectorV1 takes one of them"),
        (HYBRID, among("NixlConnector", "HF3FSKVConnector"), "connector HF3FSKVConnector takes"),
        (HYBRID, (OFF,), f"{OFF} has space for one of them: remove it."),
        (HYBRID, (*through("NixlConnector"), OFF), f"{OFF} has space for one of them"),
        (
            DENSE,
            (*through("LMCacheConnectorV1"), ON),
            f"{ON} excludes connector LMCacheConnectorV1",
        ),
    ],
    ids=str,
)
def test_two_kinds_of_cache_where_one_is_taken_are_refused(
    config: dict[str, Any], args: tuple[str, ...], words: str
) -> None:
    (found,) = of_caches(config, *args)

    assert found.severity is Severity.ERROR
    assert found.message.startswith("vLLM stops at start: ")
    assert words in found.message


@pytest.mark.parametrize(
    ("config", "args"),
    [
        (HYBRID, through("NixlConnector")),
        (HYBRID, through("LMCacheMPConnector")),
        (HYBRID, among("NixlConnector", "OffloadingConnector")),
        (HYBRID, through("LMCacheConnectorV1", kv_connector_module_path="ours.lmcache")),
        (HYBRID, (ON,)),
        (STATES_ALONE, through("LMCacheConnectorV1")),
        (DENSE, through("LMCacheConnectorV1")),
        (DENSE, (OFF,)),
    ],
    ids=str,
)
def test_where_both_are_taken_or_one_is_there_nothing_is_said(
    config: dict[str, Any], args: tuple[str, ...]
) -> None:
    assert of_caches(config, *args) == []
    assert of_caches(HYBRID, OFF, version="0.34.0") == []
