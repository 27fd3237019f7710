"""What an API server refuses for certain in a pod, each with one like it that it takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Edits = Mapping[str, Any]


@dataclass(frozen=True)
class Refused:
    edits: Edits
    """In a good spec."""
    says: str
    """How what Fathom says of it begins."""
    like_it: Edits
    """It says nothing of this."""


def resources(requests: Edits, limits: Edits) -> Edits:
    return {"engine.resources": {"requests": requests, "limits": limits}}


def tolerating(**toleration: Any) -> Edits:
    return {"nodePool.tolerations": [toleration]}


def variable(**fields: Any) -> Edits:
    return {"engine.env": [{"name": "A", **fields}]}


def pod(**fields: Any) -> Edits:
    return {"podTemplate": {"spec": fields}}


def engine(**fields: Any) -> Edits:
    return pod(containers=[{"name": "vllm", **fields}])


def sidecar(**fields: Any) -> Edits:
    return pod(containers=[{"name": "side", "image": "side", **fields}])


ASKED: Final = "spec.engine.resources"
TAINT: Final = "spec.nodePool.tolerations[0]"
SOURCE: Final = {"secretKeyRef": {"name": "s", "key": "k"}}

REFUSED: Final[Mapping[str, Refused]] = {
    "a request above its limit": Refused(
        resources({"memory": "32Gi"}, {"memory": "16Gi"}),
        f"{ASKED}.requests.memory: the request, 32Gi, is above the limit, 16Gi",
        resources({"memory": "16Gi", "cpu": 8}, {"memory": "16384Mi", "cpu": "8000m"}),
    ),
    "a request for storage above its limit": Refused(
        resources({"ephemeral-storage": "64Gi"}, {"ephemeral-storage": "32Gi"}),
        f"{ASKED}.requests.ephemeral-storage: the request, 64Gi, is above the limit",
        resources({"ephemeral-storage": "64Gi"}, {"memory": "1G"}),
    ),
    "network cards in requests alone": Refused(
        resources({"rdma/ib": "1"}, {}),
        f"{ASKED}.requests.rdma/ib: Kubernetes refuses a request for rdma/ib without a limit",
        resources({"rdma/ib": "1"}, {"rdma/ib": 1}),
    ),
    "fewer network cards asked for than allowed": Refused(
        resources({"rdma/ib": "1"}, {"rdma/ib": "2"}),
        f"{ASKED}.requests.rdma/ib: for rdma/ib the request, 1, must be the limit, 2",
        resources({}, {"rdma/ib": "2"}),
    ),
    "half a network card": Refused(
        resources({}, {"rdma/ib": "0.5"}),
        f"{ASKED}.limits.rdma/ib: rdma/ib comes in whole ones (found 0.5)",
        resources({}, {"rdma/ib": "1000m"}),
    ),
    "hugepages alone": Refused(
        resources({}, {"hugepages-2Mi": "1Gi"}),
        f"{ASKED}: Kubernetes refuses hugepages for a container that asks for neither",
        resources({"cpu": "4"}, {"hugepages-2Mi": "1Gi"}),
    ),
    "a resource that there is not": Refused(
        resources({"memry": "1Gi"}, {}),
        f"{ASKED}.requests.memry: Kubernetes knows no resource memry: did you mean memory?",
        resources({"memory": "1Gi"}, {}),
    ),
    "a GPU by its bare name": Refused(
        resources({}, {"gpu": "1"}),
        f"{ASKED}.limits.gpu: Kubernetes knows no resource gpu: write cpu",
        resources({}, {"example.com/gpu": "1"}),
    ),
    "a name with a domain that is none": Refused(
        resources({}, {"RDMA/ib": "1"}),
        f"{ASKED}.limits.RDMA/ib: RDMA/ib is no name of a resource",
        resources({}, {"rdma/IB_shared.1": "1"}),
    ),
    "no quantity": Refused(
        resources({"memory": "16GB"}, {}),
        f"{ASKED}.requests.memory: '16GB' is no quantity: write a number and a unit",
        resources({"memory": "16e9"}, {}),
    ),
    "a quantity below 0": Refused(
        resources({"cpu": "-1"}, {}),
        f"{ASKED}.requests.cpu: a quantity is not below 0",
        resources({"cpu": "0"}, {}),
    ),
    "any value and one value": Refused(
        tolerating(key="nvidia.com/gpu", operator="Exists", value="present"),
        f"{TAINT}.value: operator Exists takes any value",
        tolerating(key="nvidia.com/gpu", operator="Equal", value="present"),
    ),
    "no key with a value": Refused(
        tolerating(value="present"),
        f"{TAINT}.key: without a key the operator must be Exists",
        tolerating(operator="Exists"),
    ),
    "a key that is none": Refused(
        tolerating(key="dedicated=llm", operator="Exists"),
        f"{TAINT}.key: 'dedicated=llm' is no key of a taint",
        tolerating(key="dedicated", value="llm"),
    ),
    "a value that is none": Refused(
        tolerating(key="dedicated", value="a b"),
        f"{TAINT}.value: 'a b' is no value of a taint",
        tolerating(key="dedicated", value="a_b"),
    ),
    "seconds of another effect": Refused(
        tolerating(key="a", operator="Exists", effect="NoSchedule", tolerationSeconds=9),
        f"{TAINT}.tolerationSeconds: Kubernetes takes it with effect NoExecute alone",
        tolerating(key="a", operator="Exists", effect="NoExecute", tolerationSeconds=9),
    ),
    "a value beside its source": Refused(
        variable(value="x", valueFrom=SOURCE),
        "spec.engine.env[0]: Kubernetes refuses value next to valueFrom",
        variable(valueFrom=SOURCE),
    ),
    "two sources": Refused(
        variable(valueFrom={**SOURCE, "fieldRef": {"fieldPath": "metadata.name"}}),
        "spec.engine.env[0]: valueFrom takes one source (found secretKeyRef, fieldRef)",
        variable(valueFrom={"fieldRef": {"fieldPath": "metadata.name"}}),
    ),
    "no source": Refused(
        variable(valueFrom={}),
        "spec.engine.env[0]: valueFrom names no source",
        variable(value=""),
    ),
    "podTemplate: a request above the limit of the spec": Refused(
        {
            **resources({}, {"memory": "16Gi"}),
            **pod(containers=[{"name": "vllm", "resources": {"requests": {"memory": "1Ti"}}}]),
        },
        "spec.podTemplate.spec.containers[0].resources.requests.memory: the request, 1Ti, is above",
        {
            **resources({"memory": "32Gi"}, {"memory": "16Gi"}),
            **pod(containers=[{"name": "vllm", "resources": {"limits": {"memory": "32Gi"}}}]),
        },
    ),
    "podTemplate: a sidecar's request above its limit": Refused(
        sidecar(resources={"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}),
        "spec.podTemplate.spec.containers: resources.requests.cpu of the container side: the "
        "request, 2, is above the limit, 1500m",
        sidecar(resources={"requests": {"cpu": 1}, "limits": {"cpu": "1500m"}}),
    ),
    "podTemplate: any value and one value": Refused(
        pod(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
        "spec.podTemplate.spec.tolerations[0].value: operator Exists takes any value",
        pod(tolerations=[{"key": "a", "value": "b"}]),
    ),
    "podTemplate: a value beside its source": Refused(
        sidecar(env=[{"name": "A", "value": "x", "valueFrom": SOURCE}]),
        "spec.podTemplate.spec.containers[0].env[0]: Kubernetes refuses value next to valueFrom",
        sidecar(env=[{"name": "A", "valueFrom": SOURCE}]),
    ),
    "podTemplate: a liveness probe that has to succeed twice": Refused(
        engine(livenessProbe={"successThreshold": 2}),
        "spec.podTemplate.spec.containers: Kubernetes takes successThreshold 1 alone in the "
        "livenessProbe of the container vllm: remove it.",
        engine(livenessProbe={"successThreshold": 1}, readinessProbe={"successThreshold": 2}),
    ),
    "podTemplate: a sidecar's startup probe that has to succeed twice": Refused(
        sidecar(startupProbe={"tcpSocket": {"port": 9}, "successThreshold": 2}),
        "spec.podTemplate.spec.containers: Kubernetes takes successThreshold 1 alone in the "
        "startupProbe of the container side",
        sidecar(readinessProbe={"tcpSocket": {"port": 9}, "successThreshold": 2}),
    ),
    "podTemplate: an init container called like the engine's": Refused(
        pod(initContainers=[{"name": "vllm", "image": "a"}]),
        "spec.podTemplate.spec.initContainers[0].name: another container of the pod is called vllm",
        pod(initContainers=[{"name": "warm", "image": "a"}]),
    ),
}
