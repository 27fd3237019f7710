"""What an API server adds to a pod template by itself.

Source: the defaulting functions of core/v1 in Kubernetes, `pkg/apis/core/v1/defaults.go` and
`zz_generated.defaults.go`.
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
}
"""By the field's name: it means one thing wherever it stands in a pod template."""

_SAME_AS: Final = {"serviceAccount": "serviceAccountName", "hostPort": "containerPort"}
"""Fields that are filled in from another one beside them."""


def is_server_default(field: str, value: JsonValue, beside: Mapping[str, JsonValue]) -> bool:
    """Whether a field would hold this value had nobody set it.

    Args:
        field: its name.
        value: what it holds.
        beside: the object it stands in.
    """
    if value in (None, {}, [], ""):
        return True
    if isinstance(value, Mapping):
        return all(is_server_default(key, each, value) for key, each in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return False
    if field in _SAME_AS:
        return value == beside.get(_SAME_AS[field])
    if field == "imagePullPolicy":
        return value == _pull_policy(str(beside.get("image", "")))
    return field in _VALUES and value == _VALUES[field]


def _pull_policy(image: str) -> str:
    name = image.rsplit("/", 1)[-1]
    newest = "@" not in name and (":" not in name or name.endswith(":latest"))
    return "Always" if newest else "IfNotPresent"
