"""What only pods of a replica over several nodes have: each other.

A group comes as a whole and goes as a whole. Its leader serves; its workers listen to nobody but
the leader, so nothing about them can be asked over HTTP.

Sources: LeaderWorkerSet's variables and labels, its `pkg/utils/pod/pod_utils.go`; the claim to a
ComputeDomain, both halves of it, the NVIDIA DRA driver's `demo/specs/imex`.
"""

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.api.accelerators import CLIQUE_LABEL
from fathom.api.spec import EngineSpec
from fathom.engine.replica_layout import LEADER_ADDRESS, MASTER_PORT, ReplicaLayout
from fathom.manifests.metadata import group_selector
from fathom.resource import SpeculativeDeployment

CLAIM: Final = "compute-domain-channel"
"""Name of the claim to the ComputeDomain within a pod."""
GROUP_KEY_LABEL: Final = "leaderworkerset.sigs.k8s.io/group-key"
"""On pods: what tells one group from all others."""

MATCHES_LABEL_KEYS: Final = (1, 31)
"""The release of Kubernetes from which on `matchLabelKeys` is served."""
PROBE_PERIOD_SECONDS: Final = 10
PROBE_TIMEOUT_SECONDS: Final = 10
LOST_LEADER_FAILURES: Final = 30
"""Five minutes without a leader: LeaderWorkerSet restarts a group whose pod went much sooner, so
this is for a leader whose process is gone and whose pod is not."""

_MEET: Final = (
    "import os, socket; "
    f"socket.create_connection((os.environ['{LEADER_ADDRESS}'], {MASTER_PORT}), 5).close()"
)
_OUTLIVE: Final = f"""import os, socket, time
while True:
    try:
        socket.create_connection((os.environ['{LEADER_ADDRESS}'], {MASTER_PORT}), 5).close()
    except OSError:
        break
    time.sleep(1)
"""


_SERVING: Final = frozenset({"ports", "startupProbe", "livenessProbe", "readinessProbe"})


def watched_worker(engine: EngineSpec) -> dict[str, JsonValue]:
    """Probes of a worker: whether the ranks still meet where the leader holds the door.

    A worker without any looks well for hours after its leader has lost it. It ends after its
    leader: a node that is drained takes a worker first as often as not, and the leader's requests
    in flight need it until they are done.
    """
    meet: dict[str, JsonValue] = {"exec": {"command": ["python3", "-c", _MEET]}}
    period: dict[str, JsonValue] = {
        "periodSeconds": PROBE_PERIOD_SECONDS,
        "timeoutSeconds": PROBE_TIMEOUT_SECONDS,
    }
    return {
        "startupProbe": {
            **meet,
            **period,
            "failureThreshold": engine.startup_minutes * 60 // PROBE_PERIOD_SECONDS,
        },
        "livenessProbe": {**meet, **period, "failureThreshold": LOST_LEADER_FAILURES},
        "lifecycle": {"preStop": {"exec": {"command": ["python3", "-c", _OUTLIVE]}}},
    }


def for_worker(pod_template: Mapping[str, JsonValue], container: str) -> dict[str, JsonValue]:
    """`podTemplate` without what it says of serving: a worker has no port, and watches of its own.

    Args:
        pod_template: as the user wrote it.
        container: the engine's.
    """
    spec = pod_template.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(containers, list):
        return dict(pod_template)
    kept: list[JsonValue] = [
        _of_worker(each) if isinstance(each, dict) and each.get("name") == container else each
        for each in containers
    ]
    return {**pod_template, "spec": {**spec, "containers": kept}}


def _of_worker(container: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    kept = {key: value for key, value in container.items() if key not in _SERVING}
    if isinstance(hooks := kept.get("lifecycle"), dict):
        kept["lifecycle"] = {hook: value for hook, value in hooks.items() if hook != "preStop"}
    return kept


def group_affinity(sd: SpeculativeDeployment) -> dict[str, JsonValue]:
    """What keeps the pods of one group in one NVLink domain; empty: nothing has to.

    Several groups may share a domain: LeaderWorkerSet's own exclusive placement would give a whole
    rack to each. The label that tells groups apart is put on by LeaderWorkerSet, so its value
    cannot stand here; `matchLabelKeys` takes it from the pod. The selector must
    not name that label as well, or no pod is admitted.
    """
    key = sd.engine.layout.domain_key
    if not key:
        return {}
    same_group: dict[str, JsonValue] = {
        "topologyKey": key,
        "labelSelector": group_selector(sd),
        "matchLabelKeys": [GROUP_KEY_LABEL],
    }
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [same_group]}}


def in_an_nvlink_partition(layout: ReplicaLayout) -> list[JsonValue]:
    """What a node's labels must say beside its type; empty: nothing.

    On a node outside any NVLink partition the claim would succeed and give nothing.
    """
    if layout.needs_compute_domain and layout.domain_key == CLIQUE_LABEL:
        return [{"key": CLIQUE_LABEL, "operator": "Exists"}]
    return []


def resource_claims(sd: SpeculativeDeployment) -> dict[str, JsonValue]:
    """The pod's half of the claim to the ComputeDomain's channel: it prepares the node."""
    if not sd.engine.layout.needs_compute_domain:
        return {}
    template = names.channel_claim_template(sd.metadata.name)
    return {"resourceClaims": [{"name": CLAIM, "resourceClaimTemplateName": template}]}


def container_claims(layout: ReplicaLayout) -> dict[str, JsonValue]:
    """The container's half: without it the channel's device is in no container."""
    return {"claims": [{"name": CLAIM}]} if layout.needs_compute_domain else {}
