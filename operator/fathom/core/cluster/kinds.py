"""The kinds of objects the operator reads or writes, and how a path to one is spelled."""

from dataclasses import dataclass
from typing import Final

from fathom.api import names


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """One kind at one version."""

    group: str
    """Empty for the core group."""
    version: str
    kind: str
    plural: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """Where one object lives; for a SpeculativeDeployment, also whose loop is meant."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


SPECULATIVE_DEPLOYMENT: Final = Kind(names.GROUP, names.VERSION, names.KIND, names.PLURAL)
DEPLOYMENT: Final = Kind("apps", "v1", "Deployment", "deployments")
POD: Final = Kind("", "v1", "Pod", "pods")
SERVICE: Final = Kind("", "v1", "Service", "services")
SERVICE_ACCOUNT: Final = Kind("", "v1", "ServiceAccount", "serviceaccounts")
CONFIG_MAP: Final = Kind("", "v1", "ConfigMap", "configmaps")
JOB: Final = Kind("batch", "v1", "Job", "jobs")
PERSISTENT_VOLUME_CLAIM: Final = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
EVENT: Final = Kind("", "v1", "Event", "events")
NODE: Final = Kind("", "v1", "Node", "nodes")
"""Not namespaced."""

LEADER_WORKER_SET: Final = Kind(
    "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"
)
COMPUTE_DOMAIN: Final = Kind("resource.nvidia.com", "v1beta1", "ComputeDomain", "computedomains")
POD_DISRUPTION_BUDGET: Final = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
POD_MONITOR: Final = Kind("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors")

CHILD_KINDS: Final = (
    DEPLOYMENT,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    CONFIG_MAP,
    JOB,
    PERSISTENT_VOLUME_CLAIM,
)
"""What the operator reads beside the resource itself."""
OPTIONAL_KINDS: Final = (POD_DISRUPTION_BUDGET, POD_MONITOR)
"""Children that are made only where the cluster serves their API and lets the operator use it."""
SPANNING_KINDS: Final = (LEADER_WORKER_SET, COMPUTE_DOMAIN)
"""Children of a replica over several nodes: without their APIs no such spec can be carried out."""

_BY_NAME: Final = {
    (kind.api_version, kind.kind): kind
    for kind in (SPECULATIVE_DEPLOYMENT, EVENT, *CHILD_KINDS, *OPTIONAL_KINDS, *SPANNING_KINDS)
}


def kind_of(api_version: object, kind: object) -> Kind:
    """The kind of a manifest.

    Raises:
        KeyError: the operator has no business with it.
    """
    return _BY_NAME[str(api_version), str(kind)]
