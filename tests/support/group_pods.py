"""The pods of a LeaderWorkerSet, as its controller makes them."""

import copy
import hashlib
import json

from local_cluster.kube import Object

PREFIX = "leaderworkerset.sigs.k8s.io"


def group_pod(given: Object, index: int, number: int, owner: Object) -> Object:
    """The leader of a group (number 0) or one of its workers."""
    namespace, name = given["metadata"]["namespace"], given["metadata"]["name"]
    leader = f"{name}-{index}"
    own = leader + (f"-{number}" if number else "")
    group = given["spec"]["leaderWorkerTemplate"]
    template = copy.deepcopy(group["workerTemplate" if number else "leaderTemplate"])
    metadata = template.get("metadata", {})
    labels = {
        "name": name,
        "group-index": str(index),
        "worker-index": str(number),
        "group-key": _hash(f"{namespace}/{leader}"),
        "template-revision-hash": template_hash(given),
    }
    annotations = {"size": str(group["size"])} | ({"leader-name": leader} if number else {})
    variables = [
        {"name": "LWS_LEADER_ADDRESS", "value": f"{leader}.{name}.{namespace}"},
        {"name": "LWS_GROUP_SIZE", "value": str(group["size"])},
        {"name": "LWS_WORKER_INDEX", "value": str(number)},
    ]
    spec = template["spec"] | {"hostname": own, "subdomain": name}
    names = {each["name"] for each in variables}
    for container in (*spec["containers"], *spec.get("initContainers", [])):
        kept = [each for each in container.get("env", []) if each["name"] not in names]
        container["env"] = variables + kept
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": own,
            "labels": metadata.get("labels", {}) | _prefixed(labels),
            "annotations": metadata.get("annotations", {}) | _prefixed(annotations),
            "ownerReferences": [owned_by(owner)],
        },
        "spec": spec,
    }


def template_hash(given: Object) -> str:
    """What tells the pods of one template of a set from those of another."""
    return _hash(json.dumps(given["spec"]["leaderWorkerTemplate"], sort_keys=True))[:10]


def hash_of(pod: Object) -> str:
    """The same, of the template that a pod was made of."""
    found: str = pod["metadata"]["labels"][f"{PREFIX}/template-revision-hash"]
    return found


def owned_by(owner: Object) -> Object:
    """The reference of what a controller makes for an object."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner.get("apiVersion", "v1"),
        "kind": owner.get("kind", "Pod"),
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def set_of(pod: Object) -> str:
    """The LeaderWorkerSet of a pod; empty: it has none."""
    name: str = pod["metadata"].get("labels", {}).get(f"{PREFIX}/name", "")
    return name


def index_of(pod: Object, which: str) -> int:
    """Its `group-index` or `worker-index`."""
    return int(pod["metadata"]["labels"][f"{PREFIX}/{which}"])


def _prefixed(values: dict[str, str]) -> dict[str, str]:
    return {f"{PREFIX}/{key}": value for key, value in values.items()}


def _hash(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
