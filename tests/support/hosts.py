"""Workloads as other platforms have them, cut to what says how vLLM starts."""

import copy
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DRAFT = {"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}
CONFIG = json.dumps(DRAFT)
IMAGE = "vllm/vllm-openai:v0.32.0"


def deployment(*, name: str = "vllm-openai", **container: Any) -> dict[str, Any]:
    """One container; its fields are given."""
    return workload("apps/v1", "Deployment", pod_of({"name": name, "image": IMAGE, **container}))


def workload(api_version: str, kind: str, template: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "qwen", "namespace": "llm"},
        "spec": {"selector": {"matchLabels": {"app": "qwen"}}, "template": template},
    }


def pod_of(*containers: Mapping[str, Any]) -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "qwen"}}, "spec": {"containers": [*containers]}}


ARGS = deployment(
    args=["--model", "m", "--speculative-config", CONFIG, "--max-num-seqs", "1024"],
    env=[{"name": "HF_HOME", "value": "/cache"}],
    volumeMounts=[{"name": "cache", "mountPath": "/cache"}],
)
# AIBrix's quickstart names all of it in `command`.
COMMAND = deployment(
    command=[
        *("python3", "-m", "vllm.entrypoints.openai.api_server", "--host", "0.0.0.0"),
        *("--max_num_seqs=256", f"--speculative_config={CONFIG}", "--port", "8200"),
    ],
    env=[{"name": "PYTHONPATH", "value": "/app"}, {"name": "VLLM_PLUGINS", "value": "theirs"}],
)
BASH = f"""\
ulimit -n 65536
exec vllm serve m \\
  --speculative-config '{CONFIG}' \\
  --max-num-seqs "$SEQS"
"""
SCRIPT = deployment(
    command=["bash", "-c"],
    args=[BASH],
    env=[{"name": "SEQS", "value": "256"}],
)
VARIABLE = deployment(
    args=["m", "--speculative-config=$(SPEC)", "--max-num-seqs=256"],
    env=[{"name": "SPEC", "value": CONFIG}],
)
KEYS = deployment(
    args=[
        *("m", "-sc.method", "eagle3", "-sc.model", "draft", "-sc.num_speculative_tokens", "3"),
        "--max-num-seqs=256",
    ]
)
STATEFUL_SET = {**copy.deepcopy(ARGS), "kind": "StatefulSet"}
# production-stack renders each modelSpec so, and its arguments into `command`.
PRODUCTION_STACK = {
    **workload(
        "apps/v1",
        "Deployment",
        pod_of(
            {
                "name": "vllm",
                "image": IMAGE,
                "command": [
                    *("vllm", "serve", "m", "--host", "0.0.0.0", "--port", "8000"),
                    *("--max-num-seqs", "256", "--speculative-config", CONFIG),
                ],
                "env": [{"name": "PROMETHEUS_MULTIPROC_DIR", "value": "/tmp"}],
            },
            {"name": "sidecar", "image": "lmcache/sidecar"},
        ),
    ),
    "metadata": {
        "name": "rel-qwen-deployment-vllm",
        "namespace": "llm",
        "labels": {"app.kubernetes.io/managed-by": "helm"},
    },
}
PRODUCTION_STACK["spec"]["selector"] = {"matchLabels": {"model": "qwen"}}
LWS: dict[str, Any] = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "metadata": {"name": "qwen", "namespace": "llm"},
    "spec": {
        "leaderWorkerTemplate": {
            "size": 2,
            "leaderTemplate": pod_of(
                {
                    "name": "vllm",
                    "image": IMAGE,
                    "command": ["vllm", "serve", "m"],
                    "args": ["--speculative-config", CONFIG, "--max-num-seqs=256"],
                }
            ),
            "workerTemplate": pod_of(
                {
                    "name": "vllm",
                    "image": IMAGE,
                    "command": ["vllm", "serve", "m", "--headless"],
                    "args": ["--speculative-config", CONFIG, "--max-num-seqs=256"],
                    "env": [{"name": "NCCL_DEBUG", "value": "INFO"}],
                }
            ),
        }
    },
}
# How KServe's scripts end: the shell reads its own once more, and those of its samples just once.
KSERVE_SCRIPT = """\
LOG="--disable-uvicorn-access-log"
if [ "${#LOG}" -gt 0 ] && [[ "$*" != *"--kv-transfer-config"* ]]; then
  echo "it's '${LOG}'"  # and it's a comment
fi
eval "exec vllm serve /mnt/models \\
  --served-model-name "qwen" "llm/qwen" \\
  --port 8001 \\
  ${LOG} \\
  ${VLLM_ADDITIONAL_ARGS} \\
  $@"
"""
PLAIN_SCRIPT = "vllm serve /mnt/models --port 8000 --max-num-seqs 256 $VLLM_ADDITIONAL_ARGS"
OTHER_SCRIPT = f"vllm serve /mnt/models --max-num-seqs 256 --speculative-config '{CONFIG}'"
KSERVE: dict[str, Any] = {
    "apiVersion": "serving.kserve.io/v1alpha1",
    "kind": "LLMInferenceService",
    "metadata": {"name": "qwen", "namespace": "llm"},
    "spec": {
        "model": {"uri": "hf://m"},
        "template": {
            "containers": [
                {
                    "name": "main",
                    "image": IMAGE,
                    "env": [
                        {
                            "name": "VLLM_ADDITIONAL_ARGS",
                            "value": f"--max-num-seqs 256 --speculative-config '{CONFIG}'",
                        }
                    ],
                }
            ]
        },
    },
}
# Arguments of its container come behind that variable.
KSERVE_ARGS = copy.deepcopy(KSERVE)
KSERVE_ARGS["spec"]["template"]["containers"][0] |= {
    "env": [{"name": "PYTHONPATH", "value": "/app"}],
    "args": ["--max-num-seqs=256", f"--speculative_config='{CONFIG}'"],
}
# A script of its own that the shell reads just once: quotes in the variable would stay.
KSERVE_PLAIN = copy.deepcopy(KSERVE)
KSERVE_PLAIN["spec"]["template"]["containers"][0] |= {
    "command": ["sh", "-c"],
    "args": [PLAIN_SCRIPT],
    "env": [
        {
            "name": "VLLM_ADDITIONAL_ARGS",
            "value": f"--speculative-config={CONFIG.replace(' ', '')}",
        }
    ],
}


def kserve_pod(script: str, service: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a pod of KServe's, whose script is in an LLMInferenceServiceConfig."""
    own = service["spec"]["template"]["containers"][0]
    named = {"name": "main", "command": ["/bin/bash", "-c", script, "--"]}
    merged: dict[str, Any] = pod_of({**named, **own})["spec"]
    return merged


PRINTER = """\
#!/bin/sh
if [ "$1" = --version ]; then echo 0.32.0; else printf '%s\\0' "$@"; fi
"""
"""In the place of vLLM: it prints what it gets."""


def argv(engine: Mapping[str, Any], script: str = "") -> tuple[str, ...]:
    """What vLLM gets: a kubelet and, where it is one, a real shell go before it.

    Args:
        engine: the container.
        script: that a controller puts before its arguments; empty: none does.
    """
    env = {each["name"]: each.get("value", "qwen-0") for each in engine.get("env", [])}
    words = [*engine.get("command", []), *engine.get("args", [])]
    for name, value in env.items():
        words = [word.replace(f"$({name})", value) for word in words]
    if words[:1] and words[0].rpartition("/")[2] in {"bash", "sh"}:
        command = words
    elif script:
        command = ["bash", "-c", script, "--", *words]
    else:
        return tuple(words)
    with tempfile.TemporaryDirectory() as folder:
        printer = Path(folder, "vllm")
        printer.write_text(PRINTER)
        printer.chmod(0o755)
        path = os.pathsep.join([folder, os.environ["PATH"]])
        ran = subprocess.run(
            command, env={**env, "PATH": path}, capture_output=True, text=True, check=True
        )
    # A script may say something before.
    return tuple(ran.stdout.rpartition("\n")[2].split("\0")[:-1])
