"""What an API server makes of a pod template: what it adds, and what it takes for nothing.

Sources: the defaulting functions of core/v1 in Kubernetes, `pkg/apis/core/v1/defaults.go` and
`zz_generated.defaults.go`; the types of `k8s.io/api/core/v1`. A server is asked about every field
by tests/cluster/test_zeros_on_the_server.py.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

_VALUES: Final[Mapping[str, JsonValue]] = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "enableServiceLinks": True,
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "procMount": "Default",
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
    "scheme": "HTTP",
    "path": "/",
    "protocol": "TCP",
    "apiVersion": "v1",
    "defaultMode": 0o644,
    "expirationSeconds": 3600,
    "volumeMode": "Filesystem",
    "iscsiInterface": "default",
    "storageMode": "ThinProvisioned",
    "keyring": "/etc/ceph/keyring",
    "pool": "rbd",
}
"""By the field's name: it means one thing wherever it stands in a pod template."""

_VALUES_BESIDE: Final[Mapping[str, tuple[str, JsonValue]]] = {
    "fsType": ("gateway", "xfs"),
    "user": ("image", "admin"),
}
"""Those that hold only where another field tells what object it is: of scaleIO, of rbd."""

_SAME_AS: Final = {"serviceAccount": "serviceAccountName", "hostPort": "containerPort"}
"""Fields that are filled in from another one beside them."""

_PULLED: Final = {"imagePullPolicy": "image", "pullPolicy": "reference"}
"""How an image is pulled: of containers, of volumes. It follows from the image's tag."""

_NOTHING_AT_ZERO: Final = frozenset(
    {
        *("chapAuthDiscovery", "chapAuthSession", "hostIPC", "hostNetwork", "hostPID", "hostPort"),
        *("initialDelaySeconds", "partition", "readOnly", "sslEnabled"),
        *("stdin", "stdinOnce", "tty"),
        *("timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"),
        "generation",
    }
)
"""Fields of a pod whose false or 0 is what their absence means: `omitempty` on what is no pointer.
The server drops it, or has its own default instead. No other rule tells them from those that it
keeps, such as allowPrivilegeEscalation, whose absence means true."""

_EMPTY: Final[tuple[JsonValue, ...]] = (None, {}, [], "")


def is_nothing(field: str, value: JsonValue) -> bool:
    """Whether to write this is to write nothing: null, {}, [], "", and the zeros of some fields."""
    return value in _EMPTY or (field in _NOTHING_AT_ZERO and not value)


def is_server_default(field: str, value: JsonValue, beside: Mapping[str, JsonValue]) -> bool:
    """Whether a field would hold this value had nobody set it.

    Args:
        field: its name.
        value: what it holds.
        beside: the object it stands in.
    """
    if value in _EMPTY:
        return True
    if isinstance(value, Mapping):
        return all(is_server_default(key, each, value) for key, each in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return False
    return value == _default_of(field, beside)


def _default_of(field: str, beside: Mapping[str, JsonValue]) -> JsonValue:
    """None: it has none."""
    if field in _SAME_AS:
        return beside.get(_SAME_AS[field])
    if field in _PULLED:
        return _pull_policy(str(beside.get(_PULLED[field], "")))
    telling, value = _VALUES_BESIDE.get(field, (None, None))
    return value if telling in beside else _VALUES.get(field)


def _pull_policy(image: str) -> str:
    name = image.rsplit("/", 1)[-1]
    newest = "@" not in name and (":" not in name or name.endswith(":latest"))
    return "Always" if newest else "IfNotPresent"
