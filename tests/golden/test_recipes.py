"""What public recipes set comes out of our resource, and nothing that they do not set.

The recipes' facts are retyped from the files that docs/recipes.md names.
"""

import json
import shlex
from pathlib import Path

import pytest

from golden.rendering import (
    EXAMPLES,
    SERVING,
    command,
    container,
    documents,
    environment,
    multiset,
    pod_spec,
    pod_templates,
)

SPECULATIVE = json.dumps(
    {"method": "eagle3", "model": "lightseekorg/kimi-k2.6-eagle3-mla", "num_speculative_tokens": 3}
)
VLLM_RECIPES = f"""
vllm serve nvidia/Kimi-K2.6-NVFP4 --trust-remote-code --kv-cache-dtype fp8 --tensor-parallel-size 4
  --attention-config '{{"use_prefill_query_quantization":true}}'
  --tool-call-parser kimi_k2 --enable-auto-tool-choice --reasoning-parser kimi_k2
  --speculative-config '{SPECULATIVE}'
"""
DYNAMO = f"""
vllm serve nvidia/Kimi-K2.6-NVFP4 --served-model-name=moonshotai/Kimi-K2.6 --trust-remote-code
  --max-model-len=262144 --kv-cache-dtype=fp8 --gpu-memory-utilization=0.95
  --enable-flashinfer-autotune --moe-backend=flashinfer_trtllm --mm-encoder-tp-mode=data
  --tensor-parallel-size=4 --attention-backend TOKENSPEED_MLA
  --attention-config '{{"mla_prefill_backend":"TOKENSPEED_MLA",
                       "use_prefill_query_quantization":true}}'
  --compilation-config '{{"pass_config":{{"fuse_allreduce_rms":true,"fuse_attn_quant":true}},
                         "max_cudagraph_capture_size":512}}'
  --kv-transfer-config '{{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both",
     "kv_connector_extra_config":{{"lmcache.local_cpu":true,"lmcache.max_local_cpu_size":500,
     "lmcache.pre_caching_hash_algorithm":"sha256_cbor","lmcache.enable_kv_events":false,
     "lmcache.extra_config":{{"save_only_first_rank":true}}}}}}'
  --enable-auto-tool-choice --tool-call-parser kimi_k2 --reasoning-parser kimi_k2
  --speculative-config '{SPECULATIVE}'
"""
"""Its backend stands in --attention-config there, which vLLM reads as the same."""
DSPARK = json.dumps(
    {"method": "dspark", "num_speculative_tokens": 5, "draft_sample_method": "probabilistic"}
)
DYNAMO_TWO_TRAYS = f"""
vllm serve deepseek-ai/DeepSeek-V4-Pro-0813 --trust-remote-code --tokenizer-mode deepseek_v4
  --tensor-parallel-size 8 --enable-expert-parallel
  --kv-cache-dtype fp8 --block-size 256 --max-num-seqs 256 --max-num-batched-tokens 16384
  --max-model-len 1048576 --gpu-memory-utilization 0.9 --moe-backend deep_gemm_mega_moe
  --attention-config '{{"indexer_kv_dtype":"mxfp4"}}'
  --compilation-config '{{"mode":3,"cudagraph_mode":"FULL_AND_PIECEWISE","custom_ops":["all"]}}'
  --enable-prefix-caching --enable-chunked-prefill --no-enable-flashinfer-autotune
  --enable-auto-tool-choice --tool-call-parser deepseek_v4 --reasoning-parser deepseek_v4
  --speculative-config '{DSPARK}'
  --nnodes 2 --node-rank 0 --master-addr $(LWS_LEADER_ADDRESS) --master-port 29501
"""
"""A pipeline of 1 is the default, and ranks meet at vLLM's port: Dynamo's operator takes 29500.
`use_fp4_indexer_cache` is spelled as its successor: vLLM 0.28 takes both, 0.30 only this one."""


@pytest.mark.parametrize(
    ("example", "theirs"),
    [
        ("recipes/vllm-kimi-k2.6-gb200.yaml", VLLM_RECIPES),
        ("recipes/dynamo-kimi-k2.6-b200.yaml", DYNAMO),
        ("recipes/dynamo-deepseek-v4-pro-gb200.yaml", DYNAMO_TWO_TRAYS),
    ],
)
def test_the_engine_gets_the_same_arguments(example: str, theirs: str) -> None:
    assert multiset(command(example)) == (multiset(shlex.split(theirs)) + multiset(SERVING.split()))


def test_the_recipes_of_vllm_set_no_variable_that_is_read() -> None:
    assert environment("recipes/vllm-kimi-k2.6-gb200.yaml") == {}


def test_the_environment_of_dynamos_recipe() -> None:
    found = container("recipes/dynamo-kimi-k2.6-b200.yaml")

    assert environment("recipes/dynamo-kimi-k2.6-b200.yaml") == {
        "HF_HOME": "/model-cache",
        "TRITON_CACHE_DIR": "/tmp/.triton-cache",
        "VLLM_CONFIG_ROOT": "/tmp/vllm-config",
        "VLLM_CACHE_ROOT": "/tmp/vllm-cache",
        "HF_MODULES_CACHE": "/tmp/hf_modules",
        "NCCL_IB_DISABLE": "1",
        "PYTHONHASHSEED": "42",
        "VLLM_USE_NCCL_SYMM_MEM": "1",
        "NCCL_CUMEM_ENABLE": "1",
        "NCCL_NVLS_ENABLE": "1",
    }
    assert found["envFrom"] == [{"secretRef": {"name": "hf-token-secret"}}]


def test_the_pod_of_dynamos_recipe() -> None:
    pod = pod_spec("recipes/dynamo-kimi-k2.6-b200.yaml")
    found = container("recipes/dynamo-kimi-k2.6-b200.yaml")

    assert found["resources"] == {
        "requests": {"memory": "750Gi"},
        "limits": {"nvidia.com/gpu": "4"},
    }
    assert found["securityContext"]["runAsUser"] == 0
    assert {"name": "model-cache", "mountPath": "/model-cache"} in found["volumeMounts"]
    claim = {"name": "model-cache", "persistentVolumeClaim": {"claimName": "model-cache"}}
    assert claim in pod["volumes"]
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-B200"}
    tolerated = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert tolerated in pod["tolerations"]
    probe = found["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 60 * 60


def test_the_table_counts_the_lines_that_there_are() -> None:
    table = (EXAMPLES.parent / "docs" / "recipes.md").read_text(encoding="utf-8")

    for path in sorted((EXAMPLES / "recipes").glob("*.yaml")):
        assert f"[{lines_of(path)}](../examples/recipes/{path.name})" in table


def lines_of(path: Path) -> int:
    """Lines that say something: neither comments nor blanks."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in lines)


def test_the_group_of_dynamos_recipe_for_two_trays() -> None:
    example = "recipes/dynamo-deepseek-v4-pro-gb200.yaml"
    by_kind = {each["kind"]: each for each in documents(example)}
    group = by_kind["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
    (claim_template,) = {
        claim["resourceClaimTemplateName"]
        for template in pod_templates(by_kind["LeaderWorkerSet"])
        for claim in template["spec"]["resourceClaims"]
    }

    assert group["size"] == 2
    domain = by_kind["ComputeDomain"]["spec"]
    assert domain["numNodes"] == 0
    assert domain["channel"]["resourceClaimTemplate"]["name"] == claim_template
    for template in pod_templates(by_kind["LeaderWorkerSet"]):
        pod = template["spec"]
        (vllm,) = pod["containers"]
        assert vllm["resources"]["limits"] == {"nvidia.com/gpu": "4"}
        assert vllm["resources"]["claims"] == [{"name": pod["resourceClaims"][0]["name"]}]
        assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-GB200"}
        assert {"key": "kubernetes.io/arch", "operator": "Equal", "value": "arm64",
                "effect": "NoSchedule"} in pod["tolerations"]  # fmt: skip
        assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "200Gi"}} in (
            pod["volumes"]
        )
        mounts = {each["name"]: each["mountPath"] for each in vllm["volumeMounts"]}
        assert mounts == {"shm": "/dev/shm", "model-cache": "/opt/models"}
    (leader, worker) = pod_templates(by_kind["LeaderWorkerSet"])
    startup = leader["spec"]["containers"][0]["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 6 * 3600
    (headless,) = worker["spec"]["containers"]
    assert headless["args"][-1] == "--headless"
    assert "httpGet" not in json.dumps(headless)
