"""What the API server of a history keeps of what it is given: with defaults, and less what it does
not know.

Sources: `pkg/apis/{core,apps,batch}/v1/defaults.go` of Kubernetes; `contract/test_kept.py` asks a
real one about every object of ours.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Final

from fathom.cluster.kinds import (
    DEPLOYMENT,
    JOB,
    LEADER_WORKER_SET,
    PERSISTENT_VOLUME_CLAIM,
    SERVICE,
    SPECULATIVE_DEPLOYMENT,
    Kind,
)

Object = dict[str, Any]

_NOT_IN_AN_OLDER_CRD: Final = (
    "spec.speculation.adaptiveVerification",
    "spec.speculation.drafting",
    "spec.draft.trial",
    "spec.draft.training",
    "spec.rollout.whenNoCapacity",
    "spec.rollout.capacityMinutes",
    "status.adaptiveVerification",
    "status.drafting",
    "status.draftTrial",
    "status.training",
    "status.depth",
    "status.engine",
    "status.gained",
    "status.rollout.why",
)
"""What the tests do not judge by, so that all else has to be told without it."""
_POD: Final[Object] = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "securityContext": {},
}
_CONTAINER: Final[Object] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
_PROBE: Final[Object] = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_SERVICE: Final[Object] = {
    "type": "ClusterIP",
    "clusterIP": "10.96.0.7",
    "clusterIPs": ["10.96.0.7"],
    "sessionAffinity": "None",
    "ipFamilies": ["IPv4"],
    "ipFamilyPolicy": "SingleStack",
    "internalTrafficPolicy": "Cluster",
}
_JOB: Final[Object] = {
    "parallelism": 1,
    "completions": 1,
    "completionMode": "NonIndexed",
    "suspend": False,
    "manualSelector": False,
    "podReplacementPolicy": "TerminatingOrFailed",
}


def filled_in(kind: Kind, body: Object) -> Object:
    """An object with the server's defaults, where it says nothing itself."""
    spec = body.get("spec")
    if not spec or kind not in _FILLS:
        return body
    body = copy.deepcopy(body)
    _FILLS[kind](body, body["spec"])
    return body


def known_of(body: Object) -> Object:
    """A SpeculativeDeployment as a CRD keeps it that is older than the operator."""
    body = copy.deepcopy(body)
    for path in _NOT_IN_AN_OLDER_CRD:
        *parents, last = path.split(".")
        place: Any = body
        for parent in parents:
            place = place.get(parent) if isinstance(place, dict) else None
        if isinstance(place, dict):
            place.pop(last, None)
    return body


def undeclared(body: Mapping[str, Any]) -> str:
    """The first field of an object that an older CRD does not know; empty: it knows all."""
    for path in _NOT_IN_AN_OLDER_CRD:
        place: Any = body
        for part in path.split("."):
            place = place.get(part) if isinstance(place, Mapping) else None
        if place is not None:
            return f".{path}"
    return ""


def keeps(*, fills_in: bool, older_crd: bool) -> Any:
    """What an API server makes of an object of a kind."""

    def kept(kind: Kind, body: Object) -> Object:
        if older_crd and kind == SPECULATIVE_DEPLOYMENT:
            return known_of(body)
        return filled_in(kind, body) if fills_in else body

    return kept


# -- each kind


def _fill(body: Object, defaults: Mapping[str, Any]) -> None:
    for key, value in defaults.items():
        if key not in body:
            body[key] = copy.deepcopy(value)


def _deployment(_: Object, spec: Object) -> None:
    _fill(spec, {"revisionHistoryLimit": 10})
    _pod(spec["template"]["spec"])


def _service(_: Object, spec: Object) -> None:
    _fill(spec, _SERVICE)
    for port in spec.get("ports", []):
        _fill(port, {"protocol": "TCP", "targetPort": port["port"]})


def _job(body: Object, spec: Object) -> None:
    _fill(spec, _JOB)
    uid, template = body["metadata"].get("uid"), spec["template"]
    if uid is not None and "selector" not in spec:
        prefix = "batch.kubernetes.io/"
        spec["selector"] = {"matchLabels": {f"{prefix}controller-uid": uid}}
        own = {"controller-uid": uid, "job-name": body["metadata"]["name"]}
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        labels.update(own | {f"{prefix}{key}": value for key, value in own.items()})
    _pod(template["spec"])


def _claim(_: Object, spec: Object) -> None:
    _fill(spec, {"volumeMode": "Filesystem"})


def _group(_: Object, spec: Object) -> None:
    _fill(spec, {"startupPolicy": "LeaderCreated"})
    _fill(spec["rolloutStrategy"]["rollingUpdateConfiguration"], {"partition": 0})


def _pod(spec: Object) -> None:
    _fill(spec, _POD)
    if "serviceAccountName" in spec:
        _fill(spec, {"serviceAccount": spec["serviceAccountName"]})
    for container in (*spec.get("initContainers", []), *spec.get("containers", [])):
        _container(container)
    for volume in spec.get("volumes", []):
        for source in ("configMap", "secret", "downwardAPI", "projected"):
            if source in volume:
                _fill(volume[source], {"defaultMode": 0o644})


def _container(container: Object) -> None:
    newest = ":" not in container["image"].rsplit("/", 1)[-1] or container["image"].endswith(
        ":latest"
    )
    _fill(container, {**_CONTAINER, "imagePullPolicy": "Always" if newest else "IfNotPresent"})
    for port in container.get("ports", []):
        _fill(port, {"protocol": "TCP"})
    for probe in _probes(container):
        _fill(probe, _PROBE)
        if "httpGet" in probe:
            _fill(probe["httpGet"], {"scheme": "HTTP", "path": "/"})
    for variable in container.get("env", []):
        field = variable.get("valueFrom", {}).get("fieldRef")
        if field is not None:
            _fill(field, {"apiVersion": "v1"})


def _probes(container: Object) -> Iterable[Object]:
    names = ("startupProbe", "readinessProbe", "livenessProbe")
    return (container[name] for name in names if name in container)


_FILLS: Final = {
    DEPLOYMENT: _deployment,
    SERVICE: _service,
    JOB: _job,
    PERSISTENT_VOLUME_CLAIM: _claim,
    LEADER_WORKER_SET: _group,
}
