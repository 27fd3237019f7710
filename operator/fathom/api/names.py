"""Every name that others can see: the API's coordinates, labels, annotations; and what is one."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

GROUP: Final = "fathom.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "SpeculativeDeployment"
LIST_KIND: Final = "SpeculativeDeploymentList"
PLURAL: Final = "speculativedeployments"
SINGULAR: Final = "speculativedeployment"
SHORT_NAMES: Final = ("specdep", "sd")
TUNER_KIND: Final = "SpeculationTuner"
TUNER_LIST_KIND: Final = "SpeculationTunerList"
TUNER_PLURAL: Final = "speculationtuners"
TUNER_SINGULAR: Final = "speculationtuner"
TUNER_SHORT_NAMES: Final = ("spectuner",)
CATEGORIES: Final = ("all", "fathom")

REVISION_LENGTH: Final = 8
"""Hex digits of a revision's hash."""
LONGEST_LABEL: Final = 63
"""Characters of a label's value, by Kubernetes."""
CONTROLLER_HASH_LENGTH: Final = 10
"""Characters at most of the hash by which a StatefulSet's controller tells its revisions apart."""

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_COUNTING: Final = 2
"""Characters by which the LeaderWorkerSets of one revision differ."""
MOST_GROUP_SETS: Final = len(_DIGITS) ** _COUNTING
"""LeaderWorkerSets of one revision that can be told apart by name."""

FIELD_MANAGER: Final = "fathom"
"""Field manager of every server-side apply by the operator."""

LABEL_NAME: Final = f"{GROUP}/name"
"""On every child: the SpeculativeDeployment it belongs to."""
LABEL_TUNER: Final = f"{GROUP}/tuner"
"""On the ConfigMaps of a SpeculationTuner: its name. No pod bears it."""
LABEL_TUNED_BY: Final = f"{GROUP}/tuned-by"
"""On pods whose host took the patch of `fathom attach`: for people; nothing is decided by it."""
LABEL_ROLE: Final = f"{GROUP}/role"
"""On pods: `leader` serves requests; headless workers carry `worker`."""
LABEL_REVISION: Final = f"{GROUP}/revision"
"""On children that belong to one revision: that revision's hash."""
LABEL_COMPONENT: Final = f"{GROUP}/component"
"""On ConfigMaps: `depth`, `tuning`, `plugin`, `fetch` or `intake`; on Jobs and their pods: `fetch`,
`training`, `intake`, or `engine-check` on those of `fathom check --image`, of which no operator
takes notice."""
ANNOTATION_BENCH_RUN: Final = f"{GROUP}/bench-run"
"""On the Job of a bench: which one it is, as the next has the same name."""
LABEL_BENCH: Final = f"{GROUP}/bench"
"""On what `fathom bench` makes: the SpeculativeDeployment that is measured. None of it is a child:
the operator neither counts nor deletes it."""
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"

ENGINE_CONTAINER: Final = "vllm"
"""The container in which the engine runs."""

ROLE_LEADER: Final = "leader"
ROLE_WORKER: Final = "worker"

ANNOTATION_DEPTH_GENERATION: Final = f"{GROUP}/depth-generation"
"""On pods: bumped when the depth changes, so that kubelets refresh the volume soon."""
ANNOTATION_PIN_DEPTH: Final = f"{GROUP}/pin-depth"
"""On pods, by a person: a depth (an integer) this one pod is held at, until it is removed."""
ANNOTATION_CHECK_QUALITY: Final = f"{GROUP}/check-quality"
"""On SpeculativeDeployments, by a person: a request id; each new one asks for one quality check."""
ANNOTATION_ENGINE_ARGUMENTS: Final = f"{GROUP}/engine-arguments"
"""`Unchecked`: what vLLM would refuse at start is a warning, since this image knows more."""
SILENCE_PREFIX: Final = f"silence.{GROUP}/"
"""Before the id of a rule: the reason why its user wants no warning of it."""
ANNOTATION_PAUSED: Final = f"{GROUP}/paused"
"""On SpeculativeDeployments, by a person: why all that the operator does by itself is held, or
`true`; until it is removed, or says `false`."""
ANNOTATION_RETRY_ROLLOUT: Final = f"{GROUP}/retry-rollout"
"""On the SpeculativeDeployment, by a person: any new value tries a revision that was rolled back
once more."""
ANNOTATION_ROLLOUT: Final = f"{GROUP}/rollout"
"""On SpeculativeDeployments, by a person: the revision that the status offers, to be rolled out."""
ANNOTATION_NEW_REFERENCE: Final = f"{GROUP}/new-reference"
"""On a resource of either kind, by a person: any new value takes acceptance as it is from now on
for what this draft is held against."""
ANNOTATION_APPROVE_TRAINING: Final = f"{GROUP}/approve-training"
"""On SpeculativeDeployments, by a person: `status.training.run`, to have that run begin."""
ANNOTATION_DISMISS_TRAINING: Final = f"{GROUP}/dismiss-training"
"""On SpeculativeDeployments, by a person: `status.training.run`, to end it at whatever phase."""
ANNOTATION_PROPOSE_TRAINING: Final = f"{GROUP}/propose-training"
"""On SpeculativeDeployments, by a person: any new value has a training proposed."""
ANNOTATION_EVIDENCE: Final = f"{GROUP}/training-evidence"
"""On the pods of a training: what it is told, in JSON, which they see as a file."""
ASKING_ANNOTATIONS: Final = (
    ANNOTATION_APPROVE_TRAINING,
    ANNOTATION_CHECK_QUALITY,
    ANNOTATION_DISMISS_TRAINING,
    ANNOTATION_NEW_REFERENCE,
    ANNOTATION_PAUSED,
    ANNOTATION_PROPOSE_TRAINING,
    ANNOTATION_RETRY_ROLLOUT,
    ANNOTATION_ROLLOUT,
)
"""On SpeculativeDeployments, by a person who then waits, as after an edit of the spec."""
ANNOTATION_PROMETHEUS_URL: Final = f"{GROUP}/prometheus-url"
"""On a Secret: the Prometheus that its login may be sent to."""
ANNOTATION_PAGE_IP: Final = f"{GROUP}/page-ip"
"""On the lease: where the operator that holds it may be asked for its page."""
ANNOTATION_RENDERED_BY: Final = f"{GROUP}/rendered-by"
"""On workloads: the version of the Fathom that rendered the pods, and a hash of those."""
ANNOTATION_GENERATION: Final = f"{GROUP}/generation"
"""On workloads: the generation of the resource for which they were last written."""
ANNOTATION_PLUGIN: Final = f"{GROUP}/plugin"
"""On workloads: the name of the plugin ConfigMap that their pods mount."""
ANNOTATION_WEIGHTS: Final = f"{GROUP}/weights"
"""On workloads: the commits of the weights that their pods load, where they were fetched before."""

ANNOTATION_LABELS: Final = f"{GROUP}/labels"
"""On PodMonitors: the names of the labels that the spec asks for, so that one which it asked for
before is seen to be left over."""
NAME_PATTERN: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""Pattern of a Service's name: the Service is called like the resource."""
LONGEST_NAME: Final = 45
"""Children append suffixes, and a Service's name has 63 characters at most."""
NAMESPACE_PATTERN: Final = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"
LONGEST_NAMESPACE: Final = 63
_REFUSED: Final = {
    "metadata.name": "this is no name: use lower-case letters, digits and -, and begin with a "
    "letter",
    "metadata.namespace": "this is no name of a namespace: use lower-case letters, digits and -",
}
DEPTH_SUFFIX: Final = "-depth"
"""Ends the name of each ConfigMap that holds a depth document."""
NAMES: Final = frozenset(_REFUSED)
"""Paths of what is a name."""
_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
"""Source: https://prometheus.io/docs/concepts/data_model/#metric-names-and-labels. Prometheus 3
takes any text, quoted; what answers like a Prometheus may not."""


def depth_config_map(name: str) -> str:
    """Name of the ConfigMap that holds the depth document."""
    return f"{name}{DEPTH_SUFFIX}"


def tuner_depth_config_map(name: str) -> str:
    """Name of the ConfigMap that holds the depth document of a SpeculationTuner."""
    return f"{name}-tuner{DEPTH_SUFFIX}"


def tuner_state_config_map(name: str) -> str:
    """Name of the ConfigMap that holds what a SpeculationTuner has learned."""
    return f"{name}-tuner-state"


def tuning_config_map(name: str) -> str:
    """Name of the ConfigMap that holds what must survive a restart of the operator."""
    return f"{name}-tuning"


def plugin_config_map(name: str, content: str) -> str:
    """Name of the immutable ConfigMap with the engine plugin whose content hash is `content`."""
    return f"{name}-plugin-{content}"


def fetch_job(name: str, digest: str) -> str:
    """Name of the Job that fetches the weights whose digest is `digest`."""
    return f"{name}-fetch-{digest}"


def fetch_config_map(name: str, content: str) -> str:
    """Name of the immutable ConfigMap with the program that fetches, by its content hash."""
    return f"{name}-fetch-{content}"


def training_job(name: str, run: str) -> str:
    """Name of the Job that trains a draft, in the run that a person approved."""
    return f"{name}-train-{run}"


def intake_job(name: str, run: str) -> str:
    """Name of the Job that takes in what that run left."""
    return f"{name}-intake-{run}"


def intake_config_map(name: str, content: str) -> str:
    """Name of the immutable ConfigMap with the program that takes in, by its content hash."""
    return f"{name}-intake-{content}"


def bench(name: str) -> str:
    """Name of the Job that measures, and of the ConfigMap that holds what it found."""
    return f"{name}-bench"


def bench_code(name: str, run: str) -> str:
    """Name of the ConfigMap with the code of one bench."""
    return f"{name}-bench-{run}"


def engine_check(name: str, run: str) -> str:
    """Name of the Job that asks the engine's image about arguments, and of what its pod mounts."""
    return f"{name}-check-{run}"


def cache_claim(name: str) -> str:
    """Name of the PersistentVolumeClaim that the operator makes for the weights."""
    return f"{name}-cache"


def channel_claim_template(name: str) -> str:
    """Name of the ResourceClaimTemplate that a ComputeDomain's driver makes."""
    return f"{name}-channel"


def revision_child(name: str, revision: str) -> str:
    """Name of a child that belongs to one revision."""
    return f"{name}-{revision}"


def group_set(name: str, revision: str, number: int) -> str:
    """Name of a LeaderWorkerSet, which holds one replica: `<name>-`, and eight characters.

    Six are of the revision, two count; no longer than a Deployment's, since its pods repeat it in
    labels. Who takes a number that is in use sees that: two revisions may begin alike.

    Args:
        name: of the resource.
        revision: of its spec.
        number: from 0, below `MOST_GROUP_SETS`.
    """
    tens, ones = divmod(number, len(_DIGITS))
    return f"{_group_sets(name, revision)}{_DIGITS[tens]}{_DIGITS[ones]}"


def is_group_set(found: str, name: str, revision: str) -> bool:
    """Whether `group_set` makes this name, of whatever number."""
    begins = _group_sets(name, revision)
    return found.startswith(begins) and len(found) == len(begins) + _COUNTING


def _group_sets(name: str, revision: str) -> str:
    return revision_child(name, revision[: REVISION_LENGTH - _COUNTING])


LONGEST_GROUP_NAME: Final = LONGEST_LABEL - len(
    f"{revision_child('', 'r' * REVISION_LENGTH)}-0-{'h' * CONTROLLER_HASH_LENGTH}"
)
"""Characters that the name of a resource may have whose replicas are groups of pods.

LeaderWorkerSet makes a StatefulSet for the workers of a group, `<name>-<8 characters>-0`.
Kubernetes labels their pods with that name, a hyphen and a hash: `controller-revision-hash`
(pkg/controller/history, `ControllerRevisionName`). With a longer one no worker is created."""


def refused_name(path: str, name: str, *, longest: int | None = None) -> str:
    """The sentence that refuses a name, with one to take instead where there is one.

    Args:
        path: one of `NAMES`.
        name: as it is written.
        longest: the characters that it may have, if there are too many; None: others are wrong.
    """
    what = _REFUSED[path]
    if longest is not None:
        what = f"this name has {len(name)} characters: use {longest} at most"
    offered = _offered(name, of_namespace=path == "metadata.namespace")
    return f"{what}.{f' {offered} would do.' if offered else ''}"


def _offered(name: str, *, of_namespace: bool) -> str:
    """The nearest name that may be; empty: there is nothing to make one of."""
    made = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not of_namespace and re.match(r"[0-9]", made):
        made = f"sd-{made}"
    return made[: LONGEST_NAMESPACE if of_namespace else LONGEST_NAME].rstrip("-")


def pod_labels(labels: Mapping[str, str]) -> str:
    """What series of a pod have to have, in words.

    Args:
        labels: that all series of the cluster have.
    """
    return " and ".join(("namespace", "pod", *map("=".join, sorted(labels.items()))))


def bad_label_names(names: Iterable[str]) -> tuple[str, ...]:
    """Those that are no name of a label, in order."""
    return tuple(sorted(name for name in names if not _NAME.fullmatch(name)))
