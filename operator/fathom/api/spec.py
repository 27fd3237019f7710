"""What users write: the spec of a SpeculativeDeployment, v1alpha1.

Cross-field rules stand in `fathom.api.cel_rules`: once, as CEL for the API server and as a
predicate for everything else.
"""

from typing import Annotated, Final

from pydantic import Field, JsonValue

from fathom.api.base import WHOLE_NUMBER, ApiModel, Texts
from fathom.api.choices import (
    Accelerator,
    Actuation,
    AdaptiveVerification,
    AutoOrNever,
    Compares,
    ComputeDomainPolicy,
    Drafting,
    MetricsSource,
    Objective,
    Switch,
    TuningMode,
    WhenNoCapacity,
)
from fathom.api.models import DraftSpec, ModelSpec
from fathom.api.pod_fields import (
    QUANTITY_OR_NOTHING,
    AccessMode,
    ConfigMapKeyRef,
    EnvVar,
    Resources,
    SecretKeyRef,
    SecretRef,
    Toleration,
)

MAX_REPLICAS: Final = 1024
MAX_TOKENS_LIMIT: Final = 64
LONGEST_WINDOW_S: Final = 600
MAX_USER_ID: Final = 2**31 - 1
"""The largest that Kubernetes takes."""
DEFAULT_MAX_TOKENS: Final = 7
"""Default of `maxTokens`: the deepest that tokenspeed_mla verifies (query length 8)."""
_DEPTHS: Final = MAX_TOKENS_LIMIT + 1
_Depth = Annotated[int, Field(ge=0, le=MAX_TOKENS_LIMIT), WHOLE_NUMBER]
_LabelValue = Annotated[str, Field(min_length=1, max_length=63)]


class TuningGoals(ApiModel):
    """How depth follows the traffic."""

    mode: TuningMode = TuningMode.AUTO
    """Auto changes depth; Advise keeps `tokens` and says what it would do; Static runs a stock
    engine. Auto and Advise run identical pods, so going from one to the other restarts nothing."""
    objective: Objective = Objective.THROUGHPUT
    """Latency: tokens per second per request. Throughput: tokens per second. Goodput: throughput
    while time per output token stays within `tpotMilliseconds`."""
    tpot_milliseconds: Annotated[float, Field(gt=0, le=60_000)] | None = None
    """Largest acceptable time per output token in milliseconds; required with Goodput."""
    window_seconds: Annotated[int, Field(ge=5, le=LONGEST_WINDOW_S)] = 30
    """Length of one measurement window in seconds."""
    min_gain_percent: Annotated[float, Field(ge=0, le=100)] = 1
    """Smallest gain in percent for which depth is changed."""
    probing: Switch = Switch.ENABLED
    """Whether one pod at a time may run at another depth for some seconds, to measure it."""


class TuningSpec(TuningGoals):
    """How depth follows the traffic."""

    actuation: Actuation = Actuation.AUTO
    """Auto and Live mean the same: depth changes between two engine steps, where the engine can."""


class SpeculationSpec(ApiModel):
    """Depth: how many tokens are speculated per step."""

    tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS_LIMIT)] = 3
    """Your own guess at num_speculative_tokens: the start, and what any change is judged against.
    Where CUDA graphs are captured, an engine has a set of depths, and another one than that of
    `tokens` needs new pods."""
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS_LIMIT)] | None = None
    """The deepest that the engine is sized for; default: the largest of `depths` or, without them,
    the larger of 7 and `tokens`; for a new resource whose target keeps states (Mamba, linear
    attention), `tokens`. Changing it needs new pods."""
    min_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS_LIMIT)] = 1
    """The shallowest the tuner may go; 0 allows it to stop speculating."""
    depths: Annotated[tuple[_Depth, ...], Field(min_length=1, max_length=_DEPTHS)] | None = None
    """The depths that the engine captures CUDA graphs for, and the tuner chooses among: `tokens`
    and others between `minTokens` and `maxTokens`. Absent: chosen by Fathom, so that none takes
    another's graphs; `fathom check` says which. Changing them needs new pods."""
    drafting: Drafting = Drafting.ENABLED
    """Disabled starts the engine without speculation, and leaves everything else as it is: for a
    model without a draft yet. `draft` may stay. Canary: one replica runs without speculation, all
    others draft, and status.drafting says what drafts are worth."""
    tuning: TuningSpec = TuningSpec()
    adaptive_verification: AdaptiveVerification = AdaptiveVerification.DISABLED
    """vLLM's adaptive verification, which verifies fewer drafts than are made where the batch is
    large; needs an engine that has it. Canary: one replica has it, the others do not, and
    status.adaptiveVerification says what it is worth."""

    @property
    def effective_max_tokens(self) -> int:
        """`maxTokens` with its default applied."""
        return self.max_tokens or max(self.depths or (DEFAULT_MAX_TOKENS, self.tokens))


class EngineSpec(ApiModel):
    """The vLLM that serves."""

    image: Annotated[str, Field(min_length=1, max_length=512)]
    """Container image of vLLM. Stock images work; the plugin comes by volume."""
    version: Annotated[str, Field(max_length=32)] = ""
    """vLLM's version, such as 0.32.0, when the image's tag does not say."""
    tensor_parallel_size: Annotated[int, Field(ge=1, le=1024)]
    """GPUs that one model shard group spans."""
    pipeline_parallel_size: Annotated[int, Field(ge=1, le=64)] = 1
    """Pipeline stages."""
    data_parallel_size: Annotated[int, Field(ge=1, le=1024)] = 1
    """Data-parallel engines per replica, behind one address. Live depth needs 1. Experts are spread
    over them with the argument --enable-expert-parallel."""
    attention_backend: Annotated[str, Field(max_length=64)] = ""
    """vLLM attention backend; empty lets vLLM choose."""
    args: Annotated[
        tuple[Annotated[str, Field(max_length=32_768)], ...], Field(max_length=256)
    ] = ()
    """More arguments for `vllm serve`. What has a field of its own may not be repeated here."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=256)] = ()
    """Environment of the engine container."""
    resources: Resources = Resources()
    shared_memory: Annotated[str, Field(max_length=32, pattern=QUANTITY_OR_NOTHING)] = ""
    """Largest size of /dev/shm, such as 200Gi; empty: what the pod's memory limit or, without one,
    the node allows."""
    user: Annotated[int, Field(ge=1, le=MAX_USER_ID)] | None = None
    """User id that the pod runs as, such as 2000, `vllm` in stock images: never root, and nothing
    of the image is written to. Absent: the image's own user, root in stock images."""
    startup_minutes: Annotated[int, Field(ge=1, le=1440)] = 90
    """How long loading may take before the pod is restarted, in minutes."""
    drain_seconds: Annotated[int, Field(ge=0, le=86_400)] = 120
    """How long requests in flight may finish when a pod goes, in seconds."""


class NodePoolSpec(ApiModel):
    """Where the pods run."""

    accelerator: Accelerator = Accelerator.GB200
    """Known node type: its label, taints, GPUs per node and architecture. Those that begin with MI
    are AMD's, all others NVIDIA's. Custom needs gpusPerNode. CPU is for trying: no GPU is asked
    for, and an engine needs one process and a request for cpu."""
    products: Annotated[tuple[_LabelValue, ...], Field(max_length=16)] | None = None
    """Values of the node label nvidia.com/gpu.product (AMD: amd.com/gpu.product-name) that will do,
    such as NVIDIA-H100-NVL, in place of the accelerator's own; empty: the label is not asked
    for."""
    gpus_per_node: Annotated[int, Field(ge=1, le=16)] | None = None
    """GPUs on one node; for Custom."""
    node_selector: Texts = Field(default_factory=dict)
    """More node labels to require."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=64)] = ()
    """More tolerations."""
    topology_key: Annotated[str, Field(max_length=317)] = ""
    """Node label whose value the pods of one replica share where a replica spans several nodes;
    empty means nvidia.com/gpu.clique on GB200 and GB300, and none elsewhere."""
    compute_domain: ComputeDomainPolicy = ComputeDomainPolicy.AUTO
    """What lets the nodes of one replica use NVLink between them. Auto: the operator makes a
    ComputeDomain where pods share a topologyKey. External: another component does. Never: none.
    AMD's GPUs have no NVLink, and get none in any case."""


class CacheSpec(ApiModel):
    """Shared weights."""

    claim_name: Annotated[str, Field(max_length=253)] = ""
    """An existing PersistentVolumeClaim to keep the weights in; empty means none."""
    size: Annotated[str, Field(max_length=32, pattern=QUANTITY_OR_NOTHING)] = ""
    """Size of a claim that the operator makes, `<name>-cache`, such as 800Gi; instead of claimName.
    The claim outlives this resource."""
    storage_class_name: Annotated[str, Field(max_length=253)] = ""
    """Storage class of that claim; empty means the cluster's default."""
    access_modes: Annotated[tuple[AccessMode, ...], Field(min_length=1, max_length=4)] = (
        AccessMode.READ_WRITE_MANY,
    )
    """Access modes of that claim. Several replicas on several nodes need ReadWriteMany."""
    prefetch: bool = True
    """Fetch the weights into the claim before pods start, once, and start all pods from what was
    fetched. Without a claim it means nothing."""

    @property
    def exists(self) -> bool:
        """Whether there is a claim to keep weights in."""
        return bool(self.claim_name or self.size)


class PrometheusSpec(ApiModel):
    """A source of the operator's, or a URL, with a login where that asks for one."""

    source: Annotated[str, Field(max_length=63)] = ""
    """Its name in the operator's configuration (`prometheus.sources` of the chart)."""
    tenant: Annotated[str, Field(max_length=150)] = ""
    """As which tenant of the source it is asked, of those that this namespace may be; empty: the
    only one."""
    url: Annotated[str, Field(max_length=2048)] = ""
    """Its base URL, in place of a source. The Secret of a login names it, too, in its annotation
    `fathom.dev/prometheus-url`."""
    bearer_token_secret_ref: SecretKeyRef | None = None
    """A token for that URL. The operator reads no Secrets unless a Role lets it read this one."""
    basic_auth_secret_ref: SecretRef | None = None
    """A Secret with the keys `username` and `password`, for that URL; as for a token."""
    ca_config_map_ref: ConfigMapKeyRef | None = None
    """The certificates (PEM) that sign the one of that URL; without it those that the operator's
    image trusts."""
    labels: Annotated[Texts, Field(max_length=16)] = Field(default_factory=dict)
    """Labels of all series of this cluster there, such as `cluster: eu-1`, for a Prometheus that
    holds several clusters."""


class SourceSpec(ApiModel):
    """Where measurements come from."""

    source: MetricsSource = MetricsSource.AUTO
    """Pods reads the pods' own /metrics; Prometheus queries the one in `prometheus`; Auto takes
    Prometheus if one is given, else the pods."""
    prometheus_url: Annotated[str, Field(max_length=2048, alias="prometheusURL")] = ""
    """An earlier form of `prometheus.url`, which is read as well."""
    prometheus_labels: Annotated[Texts, Field(max_length=16)] = Field(default_factory=dict)
    """An earlier form of `prometheus.labels`, next to `prometheusURL`."""
    prometheus: PrometheusSpec | None = None
    """The Prometheus that scrapes the pods, in place of `prometheusURL` and `prometheusLabels`."""


class MetricsSpec(SourceSpec):
    """Where measurements come from."""

    pod_monitor: AutoOrNever = AutoOrNever.AUTO
    """Whether to create a PodMonitor where the cluster has that API."""
    pod_monitor_labels: Texts = Field(default_factory=dict)
    """Labels of the PodMonitor, for a Prometheus that selects those it obeys by label."""


class RolloutSpec(ApiModel):
    """How changes that need new pods are carried out."""

    max_unavailable: Annotated[int, Field(ge=0, le=1024)] = 1
    """Replicas that may be missing during a rollout."""
    max_surge: Annotated[int, Field(ge=0, le=1024)] = 1
    """Replicas that may be added during a rollout; each needs free GPUs. 0: none is asked for, and
    a canary takes the place of a replica at once."""
    when_no_capacity: WhenNoCapacity = WhenNoCapacity.TAKE_REPLICA
    """What a canary does if no node has capacity for it in addition to all replicas: it takes the
    place of one, as far as maxUnavailable allows, or waits for capacity."""
    capacity_minutes: Annotated[int, Field(ge=0, le=1440)] = 10
    """How long no node may have capacity for it until then, in minutes; adding nodes takes time."""
    canary_minutes: Annotated[int, Field(ge=0, le=1440)] = 20
    """How long the first new replica is watched, in minutes."""
    paused: bool = False
    """Hold everything but scaling."""
    pod_disruption_budget: AutoOrNever = AutoOrNever.AUTO
    """Whether to create a PodDisruptionBudget where the cluster has that API. Never if one of your
    own selects these pods: Kubernetes evicts no pod that two of them select."""
    refresh: AutoOrNever = AutoOrNever.NEVER
    """Whether replicas whose acceptance decays with uptime are restarted, one at a time."""


class SpeculativeDeploymentSpec(ApiModel):
    """A target model served with speculative decoding, and how deep to speculate."""

    replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] = 1
    """Serving replicas; autoscalers set it through the scale subresource."""
    model: ModelSpec
    draft: DraftSpec = DraftSpec()
    speculation: SpeculationSpec = SpeculationSpec()
    engine: EngineSpec
    node_pool: NodePoolSpec = NodePoolSpec()
    cache: CacheSpec = CacheSpec()
    metrics: MetricsSpec = MetricsSpec()
    rollout: RolloutSpec = RolloutSpec()
    pod_template: dict[str, JsonValue] = Field(
        default_factory=dict, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}
    )
    """Strategic merge over the pod template that the operator builds; for what has no field."""
    worker_template: dict[str, JsonValue] = Field(
        default_factory=dict, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}
    )
    """The same over the headless workers of a replica that spans several nodes, after podTemplate;
    for what they have otherwise than the pod that serves, such as labels that a router selects
    by."""

    @property
    def tunable(self) -> bool:
        """Whether the engine is started so that its depth can be changed live."""
        return self.speculation.tuning.mode is not TuningMode.STATIC

    @property
    def drafts(self) -> bool:
        """Whether the engine speculates at all: with Canary, only one replica does not."""
        return self.speculation.drafting is not Drafting.DISABLED

    @property
    def compares(self) -> Compares | None:
        """What one replica is to have otherwise than the others; None: all are alike."""
        if not self.drafts:
            return None
        if self.speculation.drafting is Drafting.CANARY:
            return Compares.DRAFTING
        if self.speculation.adaptive_verification is AdaptiveVerification.CANARY:
            return Compares.ADAPTIVE_VERIFICATION
        return Compares.DRAFT if self.draft.tries_another else None

    @property
    def has_draft(self) -> bool:
        """Whether a draft is named, comes with the target, or is found in the text itself."""
        return bool(self.draft.id) or not self.draft.method.needs_draft

    @property
    def verifies_adaptively(self) -> bool:
        """Whether all replicas have adaptive verification: with Canary, only one more has."""
        wished = self.speculation.adaptive_verification
        return self.drafts and wished is AdaptiveVerification.ENABLED
