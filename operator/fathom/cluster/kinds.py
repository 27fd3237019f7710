"""The kinds of objects the operator reads or writes, and which of them a cluster serves."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from fathom.api import names
from fathom.api.choices import AutoOrNever
from fathom.api.spec import SpeculativeDeploymentSpec

VERSION: Final = "version"


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
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


SPECULATIVE_DEPLOYMENT: Final = Kind(
    group=names.GROUP, version=names.VERSION, kind=names.KIND, plural=names.PLURAL
)
SPECULATION_TUNER: Final = Kind(
    group=names.GROUP, version=names.VERSION, kind=names.TUNER_KIND, plural=names.TUNER_PLURAL
)
RESOURCE_KINDS: Final = (SPECULATIVE_DEPLOYMENT, SPECULATION_TUNER)
"""What users write, and the operator reconciles."""


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """Which resource is meant, and so whose loop; of another object, where it is."""

    namespace: str
    name: str
    kind: Kind = SPECULATIVE_DEPLOYMENT

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}"
        return place if self.kind == SPECULATIVE_DEPLOYMENT else f"{self.kind.kind} {place}"


DEPLOYMENT: Final = Kind(group="apps", version="v1", kind="Deployment", plural="deployments")
STATEFUL_SET: Final = Kind(group="apps", version="v1", kind="StatefulSet", plural="statefulsets")
"""`fathom attach` reads it; the operator has no business with it."""
POD: Final = Kind(group="", version="v1", kind="Pod", plural="pods")
SERVICE: Final = Kind(group="", version="v1", kind="Service", plural="services")
SERVICE_ACCOUNT: Final = Kind(
    group="", version="v1", kind="ServiceAccount", plural="serviceaccounts"
)
CONFIG_MAP: Final = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps")
SECRET: Final = Kind(group="", version="v1", kind="Secret", plural="secrets")
"""The operator may read none, unless somebody lets it read one by a Role."""
JOB: Final = Kind(group="batch", version="v1", kind="Job", plural="jobs")
PERSISTENT_VOLUME_CLAIM: Final = Kind(
    group="", version="v1", kind="PersistentVolumeClaim", plural="persistentvolumeclaims"
)
EVENT: Final = Kind(group="", version="v1", kind="Event", plural="events")
NODE: Final = Kind(group="", version="v1", kind="Node", plural="nodes")
"""Not namespaced."""

LEADER_WORKER_SET: Final = Kind(
    group="leaderworkerset.x-k8s.io",
    version="v1",
    kind="LeaderWorkerSet",
    plural="leaderworkersets",
)
LLM_INFERENCE_SERVICE: Final = Kind(
    group="serving.kserve.io",
    version="v1alpha1",
    kind="LLMInferenceService",
    plural="llminferenceservices",
)
"""KServe's; as above."""
COMPUTE_DOMAIN: Final = Kind(
    group="resource.nvidia.com", version="v1beta1", kind="ComputeDomain", plural="computedomains"
)
POD_DISRUPTION_BUDGET: Final = Kind(
    group="policy", version="v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets"
)
POD_MONITOR: Final = Kind(
    group="monitoring.coreos.com", version="v1", kind="PodMonitor", plural="podmonitors"
)

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
    for kind in (*RESOURCE_KINDS, EVENT, *CHILD_KINDS, *OPTIONAL_KINDS, *SPANNING_KINDS)
}


def kind_of(api_version: object, kind: object) -> Kind:
    """The kind of a manifest.

    Raises:
        KeyError: the operator has no business with it.
    """
    return _BY_NAME[str(api_version), str(kind)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedApis:
    """What discovery found. An API that is not served is gone without, and said so."""

    kinds: frozenset[tuple[str, str]] = frozenset()
    """Pairs of apiVersion and kind."""
    version: tuple[int, int] | None = None
    """Version of the API server, such as (1, 34); None: not known."""
    unknown: frozenset[str] = frozenset()
    """Each apiVersion, and "version", that the server could not show just now."""
    everything: bool = False
    """Assume that any API is served: no cluster was asked."""

    def has(self, kind: Kind) -> bool:
        return self.everything or (kind.api_version, kind.kind) in self.kinds

    def since(self, version: tuple[int, int]) -> bool:
        """Whether the API server is known to be of this version or newer.

        For fields: one that a server does not know makes it refuse the whole object.
        """
        return self.everything or (self.version is not None and self.version >= version)

    def or_before(self, before: "ServedApis") -> "ServedApis":
        """What is unknown now is as it was before."""
        known = {each for each in before.kinds if each[0] in self.unknown}
        version = before.version if VERSION in self.unknown else self.version
        return replace(self, kinds=self.kinds | known, version=version)


ALL: Final = ServedApis(everything=True)
"""For `fathom render`, which asks no cluster."""


_CONSEQUENCE: Final[Mapping[Kind, str]] = {
    POD_DISRUPTION_BUDGET: "draining nodes may take more replicas at a time than "
    "rollout.maxUnavailable.",
    POD_MONITOR: "Prometheus has to be configured to scrape port http of the pods.",
}


def wanted_optional(spec: SpeculativeDeploymentSpec) -> frozenset[Kind]:
    """The optional kinds that a spec asks for."""
    asked = {
        POD_DISRUPTION_BUDGET: spec.rollout.pod_disruption_budget,
        POD_MONITOR: spec.metrics.pod_monitor,
    }
    return frozenset(kind for kind, choice in asked.items() if choice is AutoOrNever.AUTO)


def left_out(
    spec: SpeculativeDeploymentSpec, served: ServedApis, usable: Collection[Kind]
) -> tuple[str, ...]:
    """One sentence for each thing that is left out; empty: nothing is.

    Args:
        spec: what is asked for.
        served: what the cluster has.
        usable: the optional kinds that the operator may use in it.
    """
    unusable = wanted_optional(spec).difference(usable)
    return tuple(
        f"No {kind.kind}, as {_cause(kind, served)}: {_CONSEQUENCE[kind]}"
        for kind in OPTIONAL_KINDS
        if kind in unusable
    )


def _cause(kind: Kind, served: ServedApis) -> str:
    if served.has(kind):
        return f"the operator may not list {kind.plural}.{kind.group}, which its chart allows"
    return f"this cluster does not serve {kind.api_version}"
