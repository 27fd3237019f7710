"""What a wrong name was meant to be: a name known from Kubernetes or vLLM, or a near one.

One table: what refuses an unknown field takes its advice from it, and `docs/kubernetes-fields.md`
shows it. What is a field of ours elsewhere needs no row, in whatever spelling.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fathom.api.names import ENGINE_CONTAINER

NEAR: Final = 0.65
"""Likeness of two names of one place; by difflib's measure, which is 1 for the same."""
VERY_NEAR: Final = 0.8
"""Likeness of names that are searched for anywhere, or among hundreds: many are a little alike."""
_POD: Final = "spec.podTemplate.spec"
_CONTAINER: Final = f"{_POD}.containers[name: {ENGINE_CONTAINER}]"


def plain(name: str) -> str:
    """A name without what tells one way of spelling from another."""
    return re.sub(r"[-_]", "", name).lower()


def nearest(name: str, names: Iterable[str], likeness: float = NEAR) -> str:
    """The one of the names that is meant, in another spelling or misspelt; empty: none is near.

    Args:
        name: as it was written.
        names: those that there are.
        likeness: that is asked for; 1: nothing but the spelling may differ.
    """
    by_plain = {plain(each): each for each in names}
    close = difflib.get_close_matches(plain(name), by_plain, n=1, cutoff=likeness)
    return by_plain[close[0]] if close else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Familiar:
    """Names that go to one place."""

    names: tuple[str, ...]
    """As they are spelled where they come from."""
    field: str = ""
    """Path of the field that is set instead, whatever it is called."""
    below: str = ""
    """Path of what has a field of the same name."""
    instead: str = ""
    """What to do where neither says it, as the second half of a sentence; `{name}` is the name."""
    beside: bool = False
    """Meant only where the field itself could stand: elsewhere the names may mean anything."""

    def advice(self, name: str) -> str:
        """What to do instead of setting one of the names."""
        if path := self.path(name):
            return f"set {path} instead"
        return self.instead.format(name=name)

    def path(self, name: str) -> str:
        """Path of the field that one of the names means; empty: there is none."""
        return f"{self.below}.{name}" if self.below else self.field


OF_WORKLOADS: Final = (
    Familiar(names=("name", "namespace"), below="metadata"),
    Familiar(names=("template", "podSpec", "leaderTemplate"), field="spec.podTemplate"),
    Familiar(names=("labels", "annotations"), below="spec.podTemplate.metadata"),
    Familiar(names=("strategy", "updateStrategy", "rollingUpdate"), field="spec.rollout"),
    Familiar(names=("minReadySeconds",), field="spec.rollout.canaryMinutes"),
    Familiar(
        names=("selector", "matchLabels"),
        instead="remove it, for pods are selected by labels that the operator sets",
    ),
    Familiar(
        names=("revisionHistoryLimit", "progressDeadlineSeconds"),
        instead="remove it, for the operator itself ends a rollout and goes back",
    ),
    Familiar(
        names=("service", "serviceName"),
        instead="remove it, for there is a Service called like the resource",
    ),
    Familiar(
        names=("minReplicas", "maxReplicas", "autoscaling"),
        instead="remove it, and let an autoscaler set spec.replicas",
    ),
    Familiar(names=("minAvailable",), field="spec.rollout.podDisruptionBudget"),
    Familiar(names=("serviceMonitor",), field="spec.metrics.podMonitor"),
    Familiar(names=("url", "address"), field="spec.metrics.prometheusURL", beside=True),
    Familiar(
        names=("bearerTokenSecretRef", "basicAuthSecretRef", "caConfigMapRef"),
        below="spec.metrics.prometheus",
    ),
    Familiar(
        names=("token", "bearerToken", "bearerTokenSecret"),
        field="spec.metrics.prometheus.bearerTokenSecretRef",
        beside=True,
    ),
    Familiar(
        names=("basicAuth", "username", "password"),
        field="spec.metrics.prometheus.basicAuthSecretRef",
        beside=True,
    ),
    Familiar(names=("pvc", "claim", "persistentVolumeClaim"), field="spec.cache.claimName"),
    Familiar(names=("storage",), field="spec.cache.size"),
    Familiar(names=("storageClass",), field="spec.cache.storageClassName"),
)
"""Names from a Deployment, a StatefulSet, and what accompanies one."""

OF_PODS: Final = (
    Familiar(
        names=(
            *("affinity", "automountServiceAccountToken", "containers", "dnsConfig", "dnsPolicy"),
            "enableServiceLinks",
            *("hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers", "hostname"),
            *("imagePullSecrets", "initContainers", "nodeName", "os", "overhead"),
            *("preemptionPolicy", "priority", "priorityClassName", "readinessGates"),
            *("resourceClaims", "runtimeClassName", "schedulerName"),
            *("schedulingGates", "serviceAccount", "serviceAccountName", "setHostnameAsFQDN"),
            *("shareProcessNamespace", "subdomain", "topologySpreadConstraints", "volumes"),
        ),
        below=_POD,
    ),
    Familiar(
        names=("restartPolicy", "activeDeadlineSeconds"),
        instead="remove it, for pods that serve are restarted always, and have no end",
    ),
    Familiar(names=("nodeAffinity", "podAffinity", "podAntiAffinity"), below=f"{_POD}.affinity"),
    Familiar(names=("terminationGracePeriodSeconds",), field="spec.engine.drainSeconds"),
    Familiar(names=("gpuType", "gpuProduct", "instanceType"), field="spec.nodePool.accelerator"),
)

OF_CONTAINERS: Final = (
    Familiar(
        names=(
            *("command", "envFrom", "imagePullPolicy", "lifecycle", "livenessProbe", "ports"),
            *("readinessProbe", "resizePolicy", "securityContext", "startupProbe", "stdin"),
            *("stdinOnce", "terminationMessagePath", "terminationMessagePolicy", "tty"),
            *("volumeDevices", "volumeMounts", "workingDir"),
        ),
        below=_CONTAINER,
    ),
    Familiar(names=("preStop", "postStart"), below=f"{_CONTAINER}.lifecycle"),
    Familiar(names=("cpu", "memory"), below="spec.engine.resources.requests"),
    Familiar(names=("claims",), below=f"{_CONTAINER}.resources"),
    Familiar(
        names=("secretKeyRef", "configMapKeyRef", "fieldRef"), instead="put it below valueFrom"
    ),
    Familiar(names=("resourceFieldRef", "fileKeyRef"), field=f"{_CONTAINER}.env"),
    Familiar(names=("runAsUser",), field="spec.engine.user"),
    Familiar(names=("shmSize", "shm"), field="spec.engine.sharedMemory"),
    Familiar(names=("gpus", "gpuCount"), field="spec.engine.tensorParallelSize"),
    Familiar(names=("environment", "envVars"), field="spec.engine.env"),
    Familiar(names=("arguments", "extraArgs", "vllmArgs", "flags"), field="spec.engine.args"),
)

OF_VLLM: Final = (
    Familiar(names=("model", "model_id", "model_name"), field="spec.model.id"),
    Familiar(
        names=("name", "path", "repository", "repo", "uri"), field="spec.model.id", beside=True
    ),
    Familiar(names=("served_model_name",), field="spec.model.servedName"),
    Familiar(names=("hf_token", "token_secret"), field="spec.model.tokenSecretRef"),
    Familiar(names=("tensor_parallel", "tp_size", "tp"), field="spec.engine.tensorParallelSize"),
    Familiar(
        names=("pipeline_parallel", "pp_size", "pp"), field="spec.engine.pipelineParallelSize"
    ),
    Familiar(names=("data_parallel", "dp_size", "dp"), field="spec.engine.dataParallelSize"),
    Familiar(names=("shutdown_timeout",), field="spec.engine.drainSeconds"),
    Familiar(
        names=("num_speculative_tokens", "spec_tokens", "depth"), field="spec.speculation.tokens"
    ),
    Familiar(names=("max_depth",), field="spec.speculation.maxTokens"),
    Familiar(names=("min_depth",), field="spec.speculation.minTokens"),
    Familiar(names=("enabled",), field="spec.speculation.drafting", beside=True),
    Familiar(
        names=("speculative_config", "speculative"),
        instead="set spec.draft and spec.speculation instead",
    ),
    Familiar(names=("speculative_model", "spec_model", "draft_model"), field="spec.draft.id"),
    Familiar(names=("speculative_method", "spec_method"), field="spec.draft.method"),
    Familiar(names=("draft_tensor_parallel_size",), field="spec.draft.tensorParallelSize"),
    Familiar(names=("prompt_lookup_max", "prompt_lookup_min"), below="spec.draft.options"),
)
"""What stands for a field of ours."""

OPTIONS: Final = Familiar(
    names=(
        *("--async-scheduling", "--block-size", "--chat-template", "--compilation-config"),
        *("--cpu-offload-gb", "--dtype", "--enable-auto-tool-choice"),
        *("--enable-chunked-prefill", "--enable-expert-parallel", "--enable-lora"),
        *("--enable-prefix-caching", "--enforce-eager", "--gpu-memory-utilization"),
        *("--kv-cache-dtype", "--kv-transfer-config", "--limit-mm-per-prompt", "--load-format"),
        *("--max-logprobs", "--max-model-len", "--max-num-batched-tokens", "--max-num-seqs"),
        *("--quantization", "--reasoning-parser", "--safetensors-load-strategy", "--seed"),
        *("--tokenizer", "--tokenizer-mode", "--tool-call-parser"),
    ),
    instead="write vLLM's {name} into spec.engine.args",
)
"""Options of vLLM that have no field."""

FAMILIAR: Final = (*OF_WORKLOADS, *OF_PODS, *OF_CONTAINERS, *OF_VLLM, OPTIONS)

OF_TUNERS: Final = (
    Familiar(
        names=("speculation", "speculative_config", "num_speculative_tokens", "depth"),
        field="spec.tokens",
    ),
    Familiar(names=("max_depth",), field="spec.maxTokens"),
    Familiar(names=("min_depth",), field="spec.minTokens"),
)
"""What stands for a field of a SpeculationTuner, which has none of an engine's."""


def every_row() -> Sequence[Familiar]:
    """The rows of both kinds of resource."""
    return (*FAMILIAR, *OF_TUNERS)


def familiar(name: str) -> Sequence[tuple[str, Familiar]]:
    """The rows that have a name, however it is spelled, each with its own spelling."""
    return [(each, row) for row in every_row() for each in row.names if plain(each) == plain(name)]
