"""The objects that the benchmark writes, in the place of users, controllers and kubelets. Pure."""

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.scale.plan import GPUS_PER_NODE, Lot, Planned
from benchmarks.scale.played.engine import MAX_BATCH, MAX_DEPTH, TOKENS
from fathom.api import names
from local_cluster.kube import Object

_PRODUCT: Final = "NVIDIA-H100-80GB-HBM3"
_SINCE: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
"""Since when pods are what they are: long enough for nobody to wait any more."""


def namespace(name: str) -> Object:
    """A namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def node_name(number: int) -> str:
    """Name of the node with this number, counted from 0."""
    return f"node-{number:04d}"


def node(number: int) -> Object:
    """A node with its GPUs, as a kubelet registers it."""
    capacity = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(GPUS_PER_NODE)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node_name(number),
            "labels": {
                "kubernetes.io/hostname": node_name(number),
                "kubernetes.io/arch": "amd64",
                "nvidia.com/gpu.product": _PRODUCT,
            },
        },
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def resource(planned: Planned, pods: int) -> Object:
    """A SpeculativeDeployment of this lot, with so many replicas.

    Its models are directories that are not there, so that no hub is asked.
    """
    args = ["--max-num-seqs", str(MAX_BATCH), "--enforce-eager"]
    if planned.lot is Lot.REFUSED:
        args += ["--port", "9000"]
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"namespace": planned.namespace, "name": planned.name},
        "spec": {
            "replicas": pods,
            "model": {"id": "/models/target"},
            "draft": {"id": "/models/draft"},
            "speculation": {"tokens": TOKENS, "maxTokens": MAX_DEPTH},
            "engine": {
                "image": "vllm/vllm-openai:v0.32.0",
                "tensorParallelSize": 1,
                "args": args,
            },
            "nodePool": {"accelerator": "H100"},
        },
    }


def rolled(spec: Mapping[str, Any]) -> Object:
    """A merge patch after which the resource needs new pods."""
    args = [*spec["engine"]["args"], "--max-num-batched-tokens", "8192"]
    return {"spec": {"engine": {"args": args}}}


def pod(deployment: Object, node_name: str | None) -> Object:
    """A pod of a Deployment, as its ReplicaSet's controller makes it; None: not scheduled."""
    template, metadata = deployment["spec"]["template"], deployment["metadata"]
    owner = f"{metadata['name']}-0"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{owner}-",
            "namespace": metadata["namespace"],
            "labels": template["metadata"]["labels"],
            "annotations": template["metadata"].get("annotations", {}),
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": owner,
                    # Nobody looks for the ReplicaSet, which is not there.
                    "uid": metadata["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": template["spec"] | ({} if node_name is None else {"nodeName": node_name}),
    }


def running(ip: str, *, ready: bool) -> Object:
    """The status of a pod on a node."""
    state = str(ready)
    return {
        "phase": "Running",
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "startTime": _SINCE,
        "conditions": [
            _condition("Initialized", "True"),
            _condition("Ready", state),
            _condition("ContainersReady", state),
            _condition("PodScheduled", "True"),
        ],
        "containerStatuses": [
            {
                "name": names.ENGINE_CONTAINER,
                "image": "vllm/vllm-openai:v0.32.0",
                "imageID": "docker.io/vllm/vllm-openai@sha256:" + "0" * 64,
                "containerID": "containerd://" + "0" * 64,
                "ready": ready,
                "started": ready,
                "restartCount": 0,
                "state": {"running": {"startedAt": _SINCE}},
            }
        ],
    }


def unschedulable() -> Object:
    """The status of a pod that no node has room for."""
    message = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    return {
        "phase": "Pending",
        "conditions": [
            _condition("PodScheduled", "False") | {"reason": "Unschedulable", "message": message}
        ],
    }


def _condition(kind: str, status: str) -> Object:
    return {"type": kind, "status": status, "lastTransitionTime": _SINCE}
