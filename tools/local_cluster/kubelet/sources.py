"""Where pods take values from: ConfigMaps, Secrets, their own fields."""

import base64
import re
from dataclasses import dataclass

from local_cluster.kube import Key, Object
from local_cluster.kubelet.models import Pod
from local_cluster.kubelet.problem import CREATE_CONTAINER_CONFIG_ERROR, PodProblem

SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


@dataclass(frozen=True, slots=True)
class Sources:
    """Live views of the objects that pods refer to."""

    config_maps: dict[Key, Object]
    secrets: dict[Key, Object]

    def config_map(self, namespace: str, name: str) -> dict[str, bytes] | None:
        """Keys and values, or None when there is no such ConfigMap."""
        item = self.config_maps.get((namespace, name))
        if item is None:
            return None
        text = {key: value.encode() for key, value in (item.get("data") or {}).items()}
        return text | _decoded(item.get("binaryData"))

    def secret(self, namespace: str, name: str) -> dict[str, bytes] | None:
        """Keys and values, or None when there is no such Secret."""
        item = self.secrets.get((namespace, name))
        return None if item is None else _decoded(item.get("data"))


def _decoded(values: dict[str, str] | None) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in (values or {}).items()}


@dataclass(frozen=True, slots=True)
class PodAddresses:
    """What a running pod knows of its place."""

    pod_ip: str
    host_ip: str


def field_value(pod: Pod, addresses: PodAddresses, path: str) -> str:
    """What the downward API gives for a field.

    Raises:
        PodProblem: this kubelet does not know the field.
    """
    metadata = pod.metadata
    simple = {
        "metadata.name": metadata.name,
        "metadata.namespace": metadata.namespace,
        "metadata.uid": metadata.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.podIP": addresses.pod_ip,
        "status.podIPs": addresses.pod_ip,
        "status.hostIP": addresses.host_ip,
    }
    if path in simple:
        return simple[path]
    if path in ("metadata.labels", "metadata.annotations"):
        values = metadata.labels if path.endswith("labels") else metadata.annotations
        return "".join(f'{key}="{value}"\n' for key, value in sorted(values.items()))
    if found := SUBSCRIPT.fullmatch(path):
        values = metadata.labels if found[1] == "labels" else metadata.annotations
        return values.get(found[2], "")
    raise PodProblem(
        CREATE_CONTAINER_CONFIG_ERROR, f"The local kubelet cannot provide the field {path}."
    )
