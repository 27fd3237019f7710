"""Every field of a pod template at its zero, each in a template that is else as small as can be.

Without what Fathom refuses in one: ephemeral containers.
"""

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.resources import files
from typing import Any, Final

_TYPES: Final[Mapping[str, Mapping[str, str]]] = json.loads(
    files("fathom.manifests").joinpath("pod_schema.json").read_text(encoding="utf-8")
)
_LEAVES: Final[Mapping[str, tuple[Any, ...]]] = {
    "str": ("",),
    "int": (0,),
    "bool": (False,),
    "object": (0, ""),
    "datetime": (),
}
_HANDLER: Final = {"exec": {"command": ["true"]}}
_SELECTOR: Final = {"matchLabels": {"a": "b"}}
_TERM: Final = {"labelSelector": _SELECTOR, "topologyKey": "zone"}
_NODES: Final = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
_ITEM: Final = {"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}
# What a server asks of each, beside the field that is looked at.
_REQUIRED: Final[Mapping[str, Any]] = {
    "V1Container": {"name": "vllm", "image": "a:1"},
    "V1ContainerPort": {"containerPort": 80},
    "V1ContainerResizePolicy": {"resourceName": "cpu", "restartPolicy": "NotRequired"},
    "V1CSIVolumeSource": {"driver": "a"},
    "V1ConfigMapKeySelector": {"name": "a", "key": "b"},
    "V1ConfigMapProjection": {"name": "a"},
    "V1ConfigMapVolumeSource": {"name": "a"},
    "V1DownwardAPIVolumeFile": _ITEM,
    "V1EnvFromSource": {"configMapRef": {"name": "a"}},
    "V1EnvVar": {"name": "A"},
    "V1EnvVarSource": {"fieldRef": {"fieldPath": "metadata.name"}},
    "V1ExecAction": {"command": ["true"]},
    "V1FCVolumeSource": {"targetWWNs": ["a"], "lun": 1},
    "V1FileKeySelector": {"key": "a", "path": "b", "volumeName": "v"},
    "V1FlexVolumeSource": {"driver": "a"},
    "V1FlockerVolumeSource": {"datasetName": "a"},
    "V1GCEPersistentDiskVolumeSource": {"pdName": "a"},
    "V1GRPCAction": {"port": 80},
    "V1GitRepoVolumeSource": {"repository": "a"},
    "V1GlusterfsVolumeSource": {"endpoints": "a", "path": "b"},
    "V1HTTPGetAction": {"port": 80},
    "V1HTTPHeader": {"name": "A", "value": "b"},
    "V1HostAlias": {"ip": "1.2.3.4", "hostnames": ["a"]},
    "V1HostPathVolumeSource": {"path": "/a"},
    "V1ISCSIVolumeSource": {"targetPortal": "a", "iqn": "iqn.2001-04.com.a:b", "lun": 1},
    "V1ImageVolumeSource": {"reference": "a:1"},
    "V1KeyToPath": {"key": "a", "path": "b"},
    "V1LabelSelector": _SELECTOR,
    "V1LabelSelectorRequirement": {"key": "a", "operator": "Exists"},
    "V1LifecycleHandler": _HANDLER,
    "V1LocalObjectReference": {"name": "a"},
    "V1NFSVolumeSource": {"server": "a", "path": "/b"},
    "V1NodeSelector": {"nodeSelectorTerms": [_NODES]},
    "V1NodeSelectorRequirement": {"key": "a", "operator": "Exists"},
    "V1NodeSelectorTerm": _NODES,
    "V1ObjectFieldSelector": {"fieldPath": "metadata.name"},
    "V1ObjectMeta": {"labels": {"app": "a"}},
    "V1PersistentVolumeClaimSpec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
    "V1PersistentVolumeClaimTemplate": {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
    },
    "V1EphemeralVolumeSource": {
        "volumeClaimTemplate": {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            }
        }
    },
    "V1PersistentVolumeClaimVolumeSource": {"claimName": "a"},
    "V1PhotonPersistentDiskVolumeSource": {"pdID": "a"},
    "V1PodAffinityTerm": _TERM,
    "V1PodDNSConfigOption": {"name": "a"},
    "V1PodOS": {"name": "linux"},
    "V1PodReadinessGate": {"conditionType": "a"},
    "V1PodResourceClaim": {"name": "a", "resourceClaimName": "b"},
    "V1PodSchedulingGate": {"name": "a"},
    "V1PodSpec": {"containers": [{"name": "vllm", "image": "a:1"}]},
    "V1PortworxVolumeSource": {"volumeID": "a"},
    "V1PreferredSchedulingTerm": {"weight": 1, "preference": _NODES},
    "V1Probe": _HANDLER,
    "V1QuobyteVolumeSource": {"registry": "a:1", "volume": "b"},
    "V1RBDVolumeSource": {"monitors": ["a"], "image": "b"},
    "V1ResourceFieldSelector": {"resource": "limits.cpu", "containerName": "vllm"},
    "V1ScaleIOVolumeSource": {
        "gateway": "a",
        "system": "b",
        "secretRef": {"name": "c"},
        "volumeName": "d",
    },
    "V1SeccompProfile": {"type": "RuntimeDefault"},
    "V1AppArmorProfile": {"type": "RuntimeDefault"},
    "V1SecretKeySelector": {"name": "a", "key": "b"},
    "V1SecretProjection": {"name": "a"},
    "V1SecretVolumeSource": {"secretName": "a"},
    "V1ServiceAccountTokenProjection": {"path": "a"},
    "V1SleepAction": {"seconds": 1},
    "V1StorageOSVolumeSource": {"volumeName": "a"},
    "V1Sysctl": {"name": "kernel.shm_rmid_forced", "value": "1"},
    "V1TCPSocketAction": {"port": 80},
    "V1Toleration": {"key": "a", "operator": "Exists", "effect": "NoExecute"},
    "V1TopologySpreadConstraint": {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": _SELECTOR,
    },
    "V1TypedLocalObjectReference": {
        "apiGroup": "snapshot.storage.k8s.io",
        "kind": "VolumeSnapshot",
        "name": "a",
    },
    "V1Volume": {"name": "v"},
    "V1VolumeDevice": {"name": "v", "devicePath": "/d"},
    "V1VolumeMount": {"name": "v", "mountPath": "/v"},
    "V1VsphereVirtualDiskVolumeSource": {"volumePath": "a"},
    "V1WeightedPodAffinityTerm": {"weight": 1, "podAffinityTerm": _TERM},
    "V1AWSElasticBlockStoreVolumeSource": {"volumeID": "a"},
    "V1AzureDiskVolumeSource": {"diskName": "a", "diskURI": "https://b"},
    "V1AzureFileVolumeSource": {"secretName": "a", "shareName": "b"},
    "V1CephFSVolumeSource": {"monitors": ["a"]},
    "V1CinderVolumeSource": {"volumeID": "a"},
    "CoreV1ResourceClaim": {"name": "a"},
    "V1ClusterTrustBundleProjection": {"path": "a", "name": "b"},
    "V1PodCertificateProjection": {"signerName": "a/b", "keyType": "ED25519", "keyPath": "c"},
}
_EXCLUDED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("httpGet", "tcpSocket", "grpc", "sleep"), "exec"),
    **dict.fromkeys(
        ("configMapKeyRef", "secretKeyRef", "resourceFieldRef", "fileKeyRef"), "fieldRef"
    ),
    "secretRef": "configMapRef",
}
"""By field: what may not stand beside it."""


def zeros() -> Iterator[tuple[str, dict[str, Any]]]:
    """Pairs of a field's path and a pod template in which it has its zero; each type once."""
    yield from _below("V1PodTemplateSpec", "", lambda value: value, {"V1EphemeralContainer"})


def _below(
    kind: str, path: str, within: Callable[[Any], Any], seen: set[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Zeros of what is in an object of a type.

    Args:
        kind: the type's name in the schema.
        path: where the object stands.
        within: the whole template, from such an object.
        seen: types that need no other look.
    """
    seen.add(kind)
    for field, of in _TYPES[kind].items():
        where = f"{path}.{field}" if path else field
        listed, inner = of.startswith("["), of.strip("[]{}")
        for zero in _LEAVES.get(of, ([],) if listed else ({},)):
            yield f"{where}={zero!r}", _with(kind, field, within, zero)
        if of == "{str}":
            yield f"{where}={{'a': ''}}", _with(kind, field, within, {"a": ""})
        if inner in _TYPES and inner not in seen:
            below = partial(_with, kind, field, within, listed=listed)
            yield from _below(inner, where, below, seen)


def _with(
    kind: str, field: str, within: Callable[[Any], Any], value: Any, *, listed: bool = False
) -> Any:
    """The template with an object of a type in it, of which a field has this value."""
    beside = copy.deepcopy(_REQUIRED.get(kind, {}))
    beside.pop(_EXCLUDED.get(field), None)
    if kind == "V1PodSpec":
        beside["volumes"] = [{"name": "v", "emptyDir": {}}]
    return within({**beside, field: [value] if listed else value})
