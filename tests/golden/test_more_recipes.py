"""More public recipes, whole: what their pods get from our resource, and nothing beyond it.

The recipes' facts are retyped from the files that docs/recipes.md names. Of every recipe, also the
other twin: the same pods with speculation and without it.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from fathom.api import names
from golden.rendering import (
    EXAMPLES,
    SERVING,
    command,
    container,
    documents,
    documents_of,
    engine,
    environment,
    multiset,
    pod_spec,
    pod_templates,
    read,
    workload_of,
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a recipe sets, of what is not the business of its own frontend."""

    command: str
    replicas: int
    nodes: Mapping[str, str] = field(default_factory=dict)
    tolerated: tuple[Mapping[str, str], ...] = ()
    """Beside any taint of the key nvidia.com/gpu."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    startup_seconds: int = 90 * 60
    """Ours where a recipe says nothing."""
    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    shared_memory: str = ""
    mounts: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[Mapping[str, Any], ...] = ()
    """Beside /dev/shm."""
    ports: tuple[int, ...] = ()
    """Beside the one that serves."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the container."""
    security: Mapping[str, Any] = field(default_factory=dict)
    added_capabilities: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


def config(**keys: object) -> str:
    """A value in JSON, as a shell would be given it."""
    return shlex.quote(json.dumps(keys))


def secret(name: str) -> dict[str, Any]:
    return {"secretKeyRef": {"name": name, "key": "HF_TOKEN"}}


def empty(name: str, **what: str) -> dict[str, Any]:
    return {"name": name, "emptyDir": what}


KSERVE = Recipe(
    command=f"""
    vllm serve RedHatAI/Qwen3-Next-80B-A3B-FP8 --tensor-parallel-size 4
      --speculative-config {config(method="mtp", num_speculative_tokens=1)}
    """,
    replicas=2,
    nodes={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
    environment={"HF_TOKEN": secret("hf-secret")},
    limits={"nvidia.com/gpu": "4"},
)
"""Its method is `qwen3_next_mtp`, of which vLLM makes `mtp`; `VLLM_USE_V1` is read no more."""
BUCKET = {
    "name": "huggingface-hub-model-bucket",
    "csi": {
        "driver": "gcsfuse.csi.storage.gke.io",
        "volumeAttributes": {
            "bucketName": "models",
            "mountOptions": (
                "metadata-cache:ttl-secs:-1,metadata-cache:stat-cache-max-size-mb:-1,"
                "metadata-cache:type-cache-max-size-mb:-1,metadata-cache:negative-ttl-secs:0,"
                "file-cache:max-size-mb:-1,file-cache:cache-file-for-range-read:true,"
                "file-cache:enable-parallel-downloads:true,implicit-dirs,"
                "file-system:kernel-list-cache-ttl-secs:-1"
            ),
            "skipCSIBucketAccessCheck": "true",
        },
    },
}
GKE = Recipe(
    command=f"""
    vllm serve /gcs/google/gemma-3-27b-it --trust-remote-code --tensor-parallel-size 1
      --gpu-memory-utilization 0.95 --max-model-len 101280 --speculative-config
      {config(method="ngram", num_speculative_tokens=5, prompt_lookup_max=4)}
    """,
    replicas=1,
    nodes={"cloud.google.com/compute-class": "gpu-rtx-pro-6000-96gb-x1"},
    environment={
        "LD_LIBRARY_PATH": "${LD_LIBRARY_PATH}:/usr/local/nvidia/lib64",
        "VLLM_XLA_CACHE_PATH": "/data",
    },
    startup_seconds=60 + 6000 * 10,
    limits={"nvidia.com/gpu": "1"},
    mounts={"/gcs": "huggingface-hub-model-bucket"},
    volumes=(
        BUCKET,
        empty("gke-gcsfuse-cache", medium="Memory"),
        empty("gke-gcsfuse-tmp", medium="Memory"),
        empty("gke-gcsfuse-buffer", medium="Memory"),
    ),
    more={"imagePullPolicy": "Always"},
    labels={"ai.gke.io/model": "gemma-3-27b-it"},
    annotations={
        "gke-gcsfuse/volumes": "true",
        "gke-gcsfuse/cpu-limit": "0",
        "gke-gcsfuse/memory-limit": "0",
        "gke-gcsfuse/ephemeral-storage-limit": "0",
    },
)
"""Its --disable-log-requests is the default, and gone as an option."""
DSPARK = config(
    method="dspark",
    num_speculative_tokens=3,
    draft_sample_method="probabilistic",
    rejection_sample_method="block",
)
KV_EVENTS = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": "tcp://*:5557"}
DYNAMO = Recipe(
    command=f"""
    vllm serve deepseek-ai/DeepSeek-V4.1-Flash
      --served-model-name deepseek-ai/DeepSeek-V4.1-Flash --tokenizer-mode deepseek_v41
      --tensor-parallel-size 4 --enable-expert-parallel --moe-backend deep_gemm_mega_moe
      --enable-ep-weight-filter --enable-eplb --eplb-config {config(communicator="torch_gloo")}
      --numa-bind --language-model-only --reasoning-parser deepseek_v41
      --kv-events-config {config(topic="kv-events", **KV_EVENTS)}
      --max-cudagraph-capture-size 512 --prefix-cache-retention-interval 1024
      --attention-config {config(indexer_kv_dtype="mxfp4")} --speculative-config {DSPARK}
    """,
    replicas=2,
    nodes={"nvidia.com/gpu.product": "NVIDIA-B200"},
    tolerated=({"key": "kubernetes.io/arch", "operator": "Exists", "effect": "NoSchedule"},),
    environment={
        "HF_HOME": "/shared-model-cache",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN": "65536",
    },
    startup_seconds=120 * 30,
    requests={"cpu": "8", "ephemeral-storage": "16Gi", "memory": "512Gi"},
    limits={"nvidia.com/gpu": "4"},
    shared_memory="200Gi",
    mounts={"/shared-model-cache": "shared-model-cache"},
    volumes=(
        {
            "name": "shared-model-cache",
            "persistentVolumeClaim": {"claimName": "shared-model-cache"},
        },
    ),
    ports=(5557,),
    security={"runAsUser": 0, "runAsGroup": 0},
    added_capabilities=("IPC_LOCK", "SYS_PTRACE", "SYS_RESOURCE"),
)
"""It turns adaptive verification off, which is the default."""
LLM_D = Recipe(
    command="""
    vllm serve nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8 --trust-remote-code
      --disable-access-log-for-endpoints /health,/metrics,/v1/models --tensor-parallel-size 4
      --max-model-len 262144 --max-num-seqs 128 --enable-chunked-prefill
      --enable-auto-tool-choice --tool-call-parser qwen3_coder --reasoning-parser nemotron_v3
      --kv-cache-dtype fp8 --seed 42
    """,
    replicas=4,
    environment={
        "HF_TOKEN": secret("llm-d-hf-token"),
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "120",
        "HF_HOME": "/tmp/hf-cache",
        "HOME": "/tmp",
    },
    startup_seconds=120 * 30,
    requests={"cpu": "32", "memory": "256Gi"},
    limits={"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "4"},
    shared_memory="64Gi",
    mounts={
        "/.cache": "torch-compile-cache",
        "/.config": "vllm-config",
        "/.triton": "triton-cache",
        "/tmp/hf-cache": "hf-cache",
    },
    volumes=(
        empty("torch-compile-cache"),
        empty("vllm-config"),
        empty("triton-cache"),
        empty("hf-cache", sizeLimit="300Gi"),
    ),
    labels={
        "llm-d.ai/role": "decode",
        "llm-d.ai/guide": "agentic-serving-gpu",
        "llm-d.ai/model": "NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
        "llm-d.ai/accelerator-variant": "gpu",
        "llm-d.ai/accelerator-vendor": "nvidia",
        "llm-d.ai/engine-type": "vllm",
    },
)
AIBRIX_LABELS = {
    "model.aibrix.ai/name": "qwen3-8b",
    "model.aibrix.ai/port": "8000",
    "model.aibrix.ai/kv-events-enabled": "true",
}
AIBRIX = Recipe(
    command=f"""
    vllm serve /models/Qwen3-8B/ --served-model-name qwen3-8b --trust-remote-code
      --tensor-parallel-size 1 --uvicorn-log-level warning --disable-fastapi-docs
      --kv-events-config {config(replay_endpoint="tcp://*:5559", **KV_EVENTS)}
    """,
    replicas=3,
    requests={"cpu": "12", "memory": "48G"},
    limits={"cpu": "12", "memory": "48G", "nvidia.com/gpu": "1"},
    mounts={"/models": "model-hostpath"},
    volumes=(
        {
            "name": "model-hostpath",
            "hostPath": {"path": "/data01/models", "type": "DirectoryOrCreate"},
        },
    ),
    ports=(5557, 5559),
    more={"imagePullPolicy": "Always"},
    labels=AIBRIX_LABELS,
    annotations={
        "prometheus.io/scrape": "true",
        "prometheus.io/path": "/metrics",
        "prometheus.io/port": "8000",
    },
)
"""One GPU, which it leaves to vLLM's default."""
KUBEAI = Recipe(
    command="""
    vllm serve neuralmagic/Meta-Llama-3.1-70B-Instruct-FP8
      --served-model-name llama-3.1-70b-instruct-fp8-h100 --tensor-parallel-size 2
      --max-model-len 65536 --max-num-batched-tokens 65536 --max-num-seqs 1024
      --gpu-memory-utilization 0.9 --enable-prefix-caching
    """,
    replicas=1,
    nodes={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
    startup_seconds=5400 * 2,
    limits={"nvidia.com/gpu": "2"},
)
"""It says --max-num-batched-token, which vLLM takes for the whole word, and
--disable-log-requests."""

RECIPES: Mapping[str, Recipe] = {
    "recipes/kserve-qwen3-next-80b-h100.yaml": KSERVE,
    "recipes/gke-gemma-3-27b-rtx-pro-6000.yaml": GKE,
    "recipes/dynamo-deepseek-v4.1-flash-b200.yaml": DYNAMO,
    "recipes/llm-d-nemotron-3-super.yaml": LLM_D,
    "recipes/aibrix-qwen3-8b.yaml": AIBRIX,
    "recipes/kubeai-llama-3.1-70b-h100.yaml": KUBEAI,
}
ALL = sorted(f"recipes/{path.name}" for path in (EXAMPLES / "recipes").glob("*.yaml"))
BESIDE = {"recipes/gke-gemma-3-27b-rtx-pro-6000.yaml": ["fetch-safetensors"]}
"""Containers that a recipe has beside the engine."""
OUR_LABELS = {names.LABEL_NAME, names.LABEL_REVISION, names.LABEL_ROLE}
OURS = {"name", "image", "command", "args", "env", "ports", "resources", "securityContext",
        "terminationMessagePolicy", "startupProbe", "readinessProbe", "livenessProbe",
        "lifecycle", "volumeMounts"}  # fmt: skip
"""What every engine's container has."""
OUR_PODS = {"serviceAccountName", "automountServiceAccountToken", "enableServiceLinks",
            "terminationGracePeriodSeconds", "securityContext", "containers",
            "volumes"}  # fmt: skip

of_each = pytest.mark.parametrize("example", RECIPES)


@of_each
def test_the_engine_gets_the_same_arguments(example: str) -> None:
    theirs = multiset(shlex.split(RECIPES[example].command))

    assert multiset(command(example)) == theirs + multiset(SERVING.split())


@of_each
def test_the_engine_gets_the_same_environment(example: str) -> None:
    recipe = RECIPES[example]
    given = {each["name"]: each.get("value") for each in container(example)["env"]}

    assert environment(example) == recipe.environment
    assert given["VLLM_ENGINE_READY_TIMEOUT_S"] == str(recipe.startup_seconds)
    assert "envFrom" not in container(example)


@of_each
def test_the_engine_gets_the_same_resources(example: str) -> None:
    recipe, found = RECIPES[example], container(example)
    shared = {"medium": "Memory"}
    if recipe.shared_memory:
        shared["sizeLimit"] = recipe.shared_memory

    asked = {"requests": recipe.requests} if recipe.requests else {}
    assert found["resources"] == {"limits": recipe.limits, **asked}
    assert {"name": "shm", "emptyDir": shared} in pod_spec(example)["volumes"]


@of_each
def test_the_engine_may_take_as_long_to_start(example: str) -> None:
    probe = container(example)["startupProbe"]

    assert probe["periodSeconds"] * probe["failureThreshold"] == RECIPES[example].startup_seconds


@of_each
def test_the_pod_has_the_same_volumes(example: str) -> None:
    recipe, pod = RECIPES[example], pod_spec(example)
    mounts = {each["mountPath"]: each["name"] for each in container(example)["volumeMounts"]}

    assert mounts == {"/dev/shm": "shm", **recipe.mounts}
    assert [each for each in pod["volumes"] if each["name"] != "shm"] == [*recipe.volumes]


@of_each
def test_the_pod_goes_to_the_same_nodes(example: str) -> None:
    recipe, pod = RECIPES[example], pod_spec(example)
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}

    assert pod.get("nodeSelector", {}) == recipe.nodes
    assert pod.get("tolerations", []) == [gpu, *recipe.tolerated]
    placed = {"nodeSelector", "tolerations"}
    assert pod.keys() - placed == OUR_PODS


@of_each
def test_the_rest_of_the_pod(example: str) -> None:
    recipe, found = RECIPES[example], container(example)
    workload = workload_of(documents(example))
    metadata = pod_templates(workload)[0]["metadata"]
    security = found["securityContext"]

    assert workload["spec"]["replicas"] == recipe.replicas
    assert {each["containerPort"] for each in found["ports"]} == {8000, *recipe.ports}
    assert {name: found[name] for name in found.keys() - OURS} == recipe.more
    assert security["capabilities"].get("add", []) == [*recipe.added_capabilities]
    rest = security.keys() - {"capabilities", "allowPrivilegeEscalation"}
    assert {name: security[name] for name in rest} == recipe.security
    labels = metadata["labels"].keys() - OUR_LABELS
    assert {name: metadata["labels"][name] for name in labels} == recipe.labels
    assert metadata.get("annotations", {}) == recipe.annotations


def test_the_weights_are_read_from_the_bucket_beside_the_engine_that_loads_them() -> None:
    example = "recipes/gke-gemma-3-27b-rtx-pro-6000.yaml"
    pod = pod_spec(example)
    (beside,) = (each for each in pod["containers"] if each["name"] == "fetch-safetensors")
    mount = {"name": "huggingface-hub-model-bucket", "mountPath": "/gcs", "readOnly": True}

    assert mount in container(example)["volumeMounts"]
    assert beside["volumeMounts"] == [mount]
    assert beside["image"] == "busybox"
    (script,) = beside["args"]
    assert "/gcs/google/gemma-3-27b-it/*safetensors" in script
    assert script.endswith("sleep infinity\n")
    assert pod["serviceAccountName"] == "inference"


def test_aibrix_adds_a_pod_before_it_takes_one_away() -> None:
    rollout = read(EXAMPLES / "recipes/aibrix-qwen3-8b.yaml").spec.rollout

    assert (rollout.max_surge, rollout.max_unavailable) == (1, 1)


@pytest.mark.parametrize("example", ALL)
def test_no_recipe_has_another_container(example: str) -> None:
    found = [each["name"] for each in pod_spec(example)["containers"]]

    assert found == [names.ENGINE_CONTAINER, *BESIDE.get(example, [])]


@pytest.mark.parametrize("example", ALL)
def test_its_twin_is_the_same_pod_but_for_the_speculative_argument(example: str) -> None:
    manifest = yaml.safe_load((EXAMPLES / example).read_text(encoding="utf-8"))
    on, off = twins(manifest)

    speculating, plain = templates(on), templates(off)
    assert [each for each in plain if "--speculative" in json.dumps(each)] == []
    assert [without_speculation(each) for each in speculating] == plain


def twins(manifest: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A recipe that speculates, and its twin that does not; one of them is the example's own."""
    spec = manifest["spec"]
    tuning = {key: each for key, each in spec["speculation"].items() if key == "tuning"}
    off = {**manifest, "spec": {**spec, "speculation": {"drafting": "Disabled", **tuning}}}
    if spec["speculation"].get("drafting") != "Disabled":
        return manifest, off
    assert off == manifest
    static = {"draft": {"method": "ngram"}, "speculation": {"tuning": {"mode": "Static"}}}
    return {**manifest, "spec": {**spec, **static}}, off


def templates(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Without the label that tells one spec from another."""
    found = pod_templates(workload_of(documents_of(yaml.safe_dump(manifest))))
    for template in found:
        del template["metadata"]["labels"][names.LABEL_REVISION]
    return found


def without_speculation(template: dict[str, Any]) -> dict[str, Any]:
    args = engine(template["spec"])["args"]
    at = args.index("--speculative-config")
    assert "method" in json.loads(args[at + 1])
    for each in template["spec"]["containers"]:
        if each["name"] == names.ENGINE_CONTAINER:
            each["args"] = [*args[:at], *args[at + 2 :]]
    return template
