"""Claims that not all pods can mount, or nobody can fill; and limits below what is kept there."""

from typing import Any

import pytest

from fathom.model_facts import ModelConfig, ModelFacts
from fathom.model_refs import ModelRef, draft_ref, target_ref
from fathom.validation.candidate import candidate_of
from fathom.validation.chain import problems_of
from fathom_intake.model_weights import Weights
from manifest_samples import resource
from support.validated import errors, warnings

MODES = "spec.cache.accessModes"
ONE_GPU = {"engine.tensorParallelSize": 1, "nodePool.accelerator": "H100"}
GIB = 1 << 30


def claim(*modes: str, **changes: Any) -> dict[str, Any]:
    stated = {"cache.accessModes": list(modes)} if modes else {}
    return {**ONE_GPU, "cache.size": "800Gi", **stated, **changes}


def test_a_claim_of_nothing_is_refused() -> None:
    (problem,) = errors(resource(claim(**{"cache.size": "0"})))

    assert problem.field == "spec.cache.size"
    assert problem.message.startswith("Kubernetes makes no claim of 0: write the size")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            claim("ReadWriteOncePod", replicas=2),
            "one pod in the whole cluster may use a ReadWriteOncePod claim, and this spec has 2",
        ),
        (claim("ReadWriteOncePod", **{"engine.tensorParallelSize": 16}), "one pod in the whole"),
        (
            claim("ReadWriteOncePod", **{"speculation.drafting": "Canary"}),
            "one pod in the whole cluster may use a ReadWriteOncePod claim, and this spec has 2",
        ),
        (
            claim("ReadWriteOncePod", "ReadWriteMany"),
            "Kubernetes refuses ReadWriteOncePod with another mode",
        ),
        (claim("ReadOnlyMany"), "a new claim is empty, and the fetch cannot write the weights"),
    ],
    ids=str,
)
def test_a_claim_that_cannot_serve_is_refused(changes: dict[str, Any], says: str) -> None:
    (problem,) = errors(resource(changes))

    assert (problem.field, problem.message[: len(says)]) == (MODES, says)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            claim("ReadWriteOnce", replicas=2),
            "most storage attaches a ReadWriteOnce claim to one node, and 2 replicas may be on",
        ),
        (
            claim("ReadWriteOnce", **{"engine.tensorParallelSize": 16}),
            "most storage attaches a ReadWriteOnce claim to one node, and the 2 pods of a replica",
        ),
        (
            claim("ReadWriteOncePod"),
            "one pod may use a ReadWriteOncePod claim, so that a canary cannot start next to the",
        ),
    ],
    ids=str,
)
def test_a_claim_that_may_not_serve_is_told(changes: dict[str, Any], says: str) -> None:
    sd = resource(changes)

    assert errors(sd) == ()
    assert [(each.field, each.message[: len(says)]) for each in warnings(sd)] == [(MODES, says)]


@pytest.mark.parametrize(
    "changes",
    [
        claim("ReadWriteOnce"),
        claim(replicas=4),
        claim("ReadWriteMany", "ReadOnlyMany", replicas=4),
        claim("ReadWriteOncePod", **{"rollout.maxSurge": 0}),
        # What a claim is that exists is not known.
        {**ONE_GPU, "replicas": 4, "cache.claimName": "weights"},
        claim("ReadOnlyMany", **{"cache.prefetch": False}),
    ],
    ids=str,
)
def test_nothing_is_told_of_claims_that_serve(changes: dict[str, Any]) -> None:
    sd = resource(changes)

    assert (errors(sd), warnings(sd)) == ((), ())


def memory(*args: str, **engine: Any) -> dict[str, Any]:
    stated = {f"engine.{key}": value for key, value in engine.items()}
    return {"engine.args": list(args), **stated}


LIMIT = {"limits": {"memory": "64Gi"}}


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        (
            memory(sharedMemory="100Gi", resources=LIMIT),
            "spec.engine.sharedMemory",
            "what is in /dev/shm counts as the container's memory",
        ),
        (
            memory("--cpu-offload-gb", "20", resources=LIMIT),
            "spec.engine.resources.limits.memory",
            "spec.engine.args keep more there than this, 80 GiB of a pod",
        ),
        (
            memory("--kv-offloading-size=40", "--cpu-offload-gb=10.5", resources=LIMIT),
            "spec.engine.resources.limits.memory",
            "spec.engine.args keep more there than this, 82 GiB of a pod",
        ),
        (
            memory("--kv-offloading-size=40", sharedMemory="16Gi"),
            "spec.engine.sharedMemory",
            "spec.engine.args keep more there than this, 40 GiB of a pod",
        ),
    ],
    ids=str,
)
def test_limits_without_room_are_told(changes: dict[str, Any], field: str, says: str) -> None:
    (doubt,) = warnings(resource(changes))

    assert (doubt.field, doubt.message[: len(says)]) == (field, says)


@pytest.mark.parametrize(
    "changes",
    [
        memory(sharedMemory="64Gi", resources=LIMIT),
        memory(sharedMemory="100Gi"),
        memory("--cpu-offload-gb", "16", resources=LIMIT),
        memory("--kv-offloading-size", "40", "--kv-offloading-backend=lmcache", sharedMemory="1Gi"),
        memory("--cpu-offload-gb", "$(GIB)", resources=LIMIT),
        # All of a node's GPUs, of which there are two nodes: half of the engine's cache each.
        {**memory("--kv-offloading-size", "128", resources=LIMIT), "engine.tensorParallelSize": 8},
    ],
    ids=str,
)
def test_nothing_is_told_of_limits_with_room(changes: dict[str, Any]) -> None:
    assert warnings(resource(changes)) == ()


PLACES = ("spec.cache.size", "spec.engine.resources.limits.ephemeral-storage")


def of_weights(target: int, draft: int | None, changes: dict[str, Any]) -> list[str]:
    """What is told of a place for them."""
    sd = resource(changes)
    models = {
        target_ref(sd.spec): ModelFacts(weights=Weights(total_bytes=target * GIB)),
        draft_ref(sd.spec): ModelFacts(weights=Weights(total_bytes=draft and draft * GIB)),
    }
    found = problems_of(candidate_of(sd, models))
    return [str(each) for each in found if each.field in PLACES]


def test_a_claim_below_the_weights_is_told() -> None:
    small = claim(**{"cache.size": "20Gi"})
    (told,) = of_weights(16, 8, small)
    assert told.startswith(
        "spec.cache.size: the weights that are fetched have 24 GiB, which is more"
    )
    assert of_weights(16, 4, small) == []
    assert of_weights(16, None, small) == []
    assert of_weights(16, 8, {**small, "cache.prefetch": False}) == []


def with_target(config: ModelConfig | None, changes: dict[str, Any]) -> list[str]:
    sd = resource(changes)
    models = {ModelRef(sd.spec.model.id): ModelFacts(config=config)}
    found = problems_of(candidate_of(sd, models))
    return [
        f"{each.severity.name}: {each.message}"
        for each in found
        if each.rule == "dense-data-parallelism"
    ]


def test_a_limit_of_storage_below_the_weights_is_told() -> None:
    limited = {**ONE_GPU, "engine.resources": {"limits": {"ephemeral-storage": "10Gi"}}}

    (told,) = of_weights(16, 1, limited)
    assert told.startswith("spec.engine.resources.limits.ephemeral-storage: without a cache each")
    assert of_weights(8, 1, limited) == []
    assert of_weights(16, 1, {**limited, "cache.claimName": "weights"}) == []
    assert of_weights(16, 1, {**limited, "model.id": "/models/kimi"}) == []


DENSE = ModelConfig(architectures=("LlamaForCausalLM",), layers=2, has_experts=False)
SPARSE = ModelConfig(architectures=("DeepseekV3ForCausalLM",), layers=2, has_experts=True)
OVER_NODES = {"engine.dataParallelSize": 2}
CURE = "set dataParallelSize to 1 and spec.replicas to 6"


def test_data_parallelism_over_nodes_is_for_experts() -> None:
    three = {**OVER_NODES, "replicas": 3}
    (refused,) = with_target(DENSE, three)
    assert refused.startswith("ERROR: the target has no experts")
    assert refused.endswith(f"never become ready: {CURE}.")
    (doubt,) = with_target(None, three)
    assert doubt.startswith("WARNING: over several nodes this works for mixture-of-experts")
    assert doubt.endswith(f"{CURE}.")
    assert with_target(ModelConfig(), three) == [doubt]
    # As vLLM is told to read it otherwise.
    overrides = {"engine.args": ["--hf-overrides", '{"num_experts": 8}']}
    assert with_target(DENSE, {**three, **overrides}) == [doubt]


def test_data_parallelism_that_works_is_not_told_of() -> None:
    assert with_target(SPARSE, OVER_NODES) == []
    # vLLM itself refuses it for a model without experts.
    assert with_target(None, {**OVER_NODES, "engine.args": ["--enable-expert-parallel"]}) == []
    assert with_target(DENSE, {**OVER_NODES, "engine.tensorParallelSize": 2}) == []
    assert with_target(DENSE, {"engine.tensorParallelSize": 8}) == []


@pytest.mark.parametrize("spelling", ["--enable-expert-parallel", "-ep"])
def test_experts_are_spread_where_there_are_some(spelling: str) -> None:
    asked = {"engine.args": [spelling]}
    (refused,) = with_target(DENSE, asked)
    assert refused == f"ERROR: the target has no experts, and vLLM stops at {spelling}: remove it."
    assert with_target(SPARSE, asked) == []
    assert with_target(ModelConfig(), asked) == []
    assert with_target(DENSE, {"engine.args": [spelling, "--no-enable-expert-parallel"]}) == []


LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (LLAMA, False),
        ({**LLAMA, "num_experts": 0}, False),
        ({**LLAMA, "num_experts": None, "enable_moe_block": False}, False),
        ({"text_config": LLAMA}, False),
        ({**LLAMA, "num_experts": 128}, True),
        ({**LLAMA, "n_routed_experts": 256}, True),
        ({**LLAMA, "moe_num_experts": [64, 64]}, True),
        ({"text_config": {**LLAMA, "num_local_experts": 8}}, True),
        ({**LLAMA, "block_configs": [{"block_type": "moe", "n_routed_experts": 8}]}, True),
        ({**LLAMA, "block_configs": [{"block_type": "mlp"}]}, False),
        # Its configuration's class may have a default, or call it by another name.
        ({**LLAMA, "architectures": ["Qwen3MoeForCausalLM"]}, None),
        ({**LLAMA, "model_type": "deepseek_v3"}, None),
        ({**LLAMA, "num_experts_per_tok": 8}, None),
        ({}, None),
    ],
    ids=str,
)
def test_experts_are_known_from_a_config(document: dict[str, Any], expected: object) -> None:
    assert ModelConfig.from_json(document).has_experts is expected
