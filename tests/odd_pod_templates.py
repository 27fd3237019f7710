"""Kinds of odd `podTemplate` and `workerTemplate`: refused with a field and a cure, or right.

One that is right may leave something to the user: `fathom check` says it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Path = tuple[str, ...]
"""Keys from the pod's spec on; members of a list by name, mountPath or containerPort."""

GONE: Final = object()
"""What is not there."""


@dataclass(frozen=True)
class Odd:
    template: Mapping[str, Any]
    changes: Mapping[str, Any] = field(default_factory=dict)
    """In the rest of the spec."""
    refused: str = ""
    """The problem, below where it stands; empty: there is none."""
    pod: Mapping[Path, Any] = field(default_factory=dict)
    """What stands in the pod of one that is not refused."""
    doubt: str = ""
    """What is left to the user, below where it stands; empty: nothing."""
    workers: bool = False
    """Whether it is a `workerTemplate`, and the pod a worker's."""

    @property
    def edits(self) -> dict[str, Any]:
        """All that is set in a good spec."""
        return {**self.changes, self.name: dict(self.template)}

    @property
    def name(self) -> str:
        return "workerTemplate" if self.workers else "podTemplate"


def spec(**fields: Any) -> dict[str, Any]:
    return {"spec": fields}


def engine(**fields: Any) -> dict[str, Any]:
    return spec(containers=[{"name": "vllm", **fields}])


def env(*variables: Mapping[str, Any]) -> dict[str, Any]:
    return engine(env=list(variables))


def on_nodes(*expressions: Mapping[str, Any]) -> dict[str, Any]:
    terms = [{"matchExpressions": [each]} for each in expressions]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}}


VLLM: Final = ("containers", "vllm")
AT: Final = ".spec.containers[0]"
PLUGIN: Final = "the plugin that follows and counts depth needs it"
LEVEL: Final = "Its namespace must allow pods of level privileged."
WRAPPER: Final = 'a wrapper that ends in `exec vllm serve "$@"`'
INSTEAD: Final = "these would take the place of all that starts the engine: set spec.engine.args"
GPUS: Final = (
    "a pod of this spec gets 4: set spec.engine.tensorParallelSize, pipelineParallelSize and "
    "dataParallelSize, and leave this out."
)
GROUP: Final = {"engine.tensorParallelSize": 8}
STATIC: Final = {"speculation.tuning.mode": "Static"}
CACHE: Final = {"cache.claimName": "weights"}
GPU: Final = "nvidia.com/gpu"
BOARDS: Final = {"nodePool.products": ["NVIDIA-GB200"]}
BOARD: Final = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-GB200"]}
ZONE: Final = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}
NODES: Final = (
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "nodeSelectorTerms",
)

SCHEMA: Final[Mapping[str, Odd]] = {
    "a field misspelt": Odd(
        spec(tolerration=[]), refused=".spec.tolerration: unknown field. Did you mean tolerations?"
    ),
    "a field in other letters": Odd(
        spec(nodeselector={"a": "b"}),
        refused=".spec.nodeselector: unknown field. Did you mean nodeSelector?",
    ),
    "a singular": Odd(
        engine(volumeMount=[]),
        refused=f"{AT}.volumeMount: unknown field. Did you mean volumeMounts?",
    ),
    "a field deep down": Odd(
        engine(readinessProbe={"periodSecond": 3}),
        refused=f"{AT}.readinessProbe.periodSecond: unknown field. Did you mean periodSeconds?",
    ),
    "a field of another sidecar": Odd(
        spec(containers=[{"name": "side", "image": "side", "comand": ["a"]}]),
        refused=".spec.containers[0].comand: unknown field. Did you mean command?",
    ),
    "a field that a newer Kubernetes may have": Odd(
        spec(quantumSeconds=3),
        pod={("quantumSeconds",): 3},
        doubt=".spec.quantumSeconds: no field of a pod that this Fathom knows",
    ),
    "a field of the pod in a container": Odd(
        engine(nodeSelector={"a": "b"}),
        pod={(*VLLM, "nodeSelector", "a"): "b"},
        doubt=f"{AT}.nodeSelector: no field of a pod that this Fathom knows",
    ),
    "a field beside metadata and spec": Odd(
        {"containers": []}, refused=".containers: a pod template has metadata and spec"
    ),
    "text for a truth value": Odd(
        spec(hostNetwork="true"), refused='.spec.hostNetwork: must be true or false (found "true").'
    ),
    "text for a number": Odd(
        spec(terminationGracePeriodSeconds="600"),
        refused='.spec.terminationGracePeriodSeconds: must be a whole number (found "600").',
    ),
    "a fraction for a number": Odd(
        spec(priority=1.5), refused=".spec.priority: must be a whole number (found 1.5)."
    ),
    "a number in an annotation": Odd(
        {"metadata": {"annotations": {"prometheus.io/port": 8000}}},
        refused=".metadata.annotations.prometheus.io/port: 8000 is not text: put it in quotes.",
    ),
    "a number in a variable": Odd(
        env({"name": "A", "value": 1}),
        refused=f"{AT}.env[0].value: 1 is not text: put it in quotes.",
    ),
    "a number for a CPU": Odd(
        engine(resources={"limits": {"cpu": 8}}), pod={(*VLLM, "resources", "limits", "cpu"): "8"}
    ),
    "a number for a size": Odd(
        spec(volumes=[{"name": "shm", "emptyDir": {"sizeLimit": 1024}}]),
        pod={("volumes", "shm", "emptyDir"): {"medium": "Memory", "sizeLimit": "1024"}},
    ),
    "a port in quotes": Odd(
        engine(ports=[{"containerPort": "9000"}]),
        refused=f'{AT}.ports[0].containerPort: must be a whole number (found "9000").',
    ),
    "two sidecars of one name": Odd(
        spec(containers=[{"name": "a", "image": "a"}, {"name": "a", "image": "b"}]),
        refused=".spec.containers[1].name: another container of the pod is called a",
    ),
    "a sidecar in the place of one": Odd(
        spec(containers=[{"name": "a", "$patch": "delete"}, {"name": "a", "image": "b"}]),
        pod={("containers", "a", "image"): "b"},
    ),
    "two volumes of one name": Odd(
        spec(volumes=[{"name": "a", "emptyDir": {}}, {"name": "a", "configMap": {"name": "b"}}]),
        refused=".spec.volumes[1].name: another volume of the pod is called a",
    ),
    "an object for a list": Odd(
        spec(containers={"vllm": {}}), refused=".spec.containers: must be a list."
    ),
    "text for a list": Odd(engine(command="/run"), refused=f"{AT}.command: must be a list."),
    "a list for an object": Odd(
        engine(securityContext=[]), refused=f"{AT}.securityContext: must be an object."
    ),
    "nothing in a list": Odd(
        spec(containers=[None]), refused=".spec.containers[0]: this is empty: remove it."
    ),
    "a directive that there is not": Odd(
        engine(**{"$patch": "remove"}), refused=f"{AT}: 'remove' is not a $patch directive."
    ),
    "the order of a list": Odd(
        engine(**{"$setElementOrder/env": []}),
        refused=f"{AT}.$setElementOrder/env: this directive is not supported",
    ),
    "a mount without a path": Odd(
        engine(volumeMounts=[{"name": "a"}]),
        refused=f"{AT}.volumeMounts[0]: needs `mountPath`",
    ),
}

START: Final[Mapping[str, Odd]] = {
    "arguments": Odd(engine(args=["--max-num-seqs", "64"]), refused=f"{AT}.args: {INSTEAD}"),
    "no arguments": Odd(engine(args=None), refused=f"{AT}.args: {INSTEAD}"),
    "an image": Odd(
        engine(image="acme/engine:1.0"),
        refused=f"{AT}.image: may not be set here: set spec.engine.image instead.",
    ),
    "the same image": Odd(
        engine(image="vllm/vllm-openai:v0.32.0"),
        pod={(*VLLM, "image"): "vllm/vllm-openai:v0.32.0"},
    ),
    "vLLM's server as a module": Odd(
        engine(command=["python3", "-m", "vllm.entrypoints.openai.api_server"]),
        refused=f"{AT}.command: vllm.entrypoints.openai.api_server takes no model from its "
        "arguments, so vLLM's default model would be loaded: write [vllm, serve], or",
    ),
    "that server in a script": Odd(
        engine(
            command=["sh", "-c", 'exec python3 -m vllm.entrypoints.openai.api_server "$@"', "vllm"]
        ),
        refused=f"{AT}.command: vllm.entrypoints.openai.api_server takes no model",
    ),
    "vLLM's command as a module": Odd(
        engine(command=["python3", "-m", "vllm.entrypoints.cli.main", "serve"]),
        pod={(*VLLM, "args", "0"): "nvidia/Kimi-K2.6-NVFP4"},
    ),
    "vllm by its path": Odd(
        engine(command=["/opt/venv/bin/vllm", "serve"]),
        pod={(*VLLM, "command", "0"): "/opt/venv/bin/vllm"},
    ),
    "a program around vllm": Odd(
        engine(command=["numactl", "--interleave=all", "vllm", "serve"]),
        pod={(*VLLM, "args", "0"): "nvidia/Kimi-K2.6-NVFP4"},
    ),
    "options in the command": Odd(
        engine(command=["vllm", "serve", "--seed=1"]),
        refused=f"{AT}.command: options after vllm serve may not be set here: set "
        "spec.engine.args instead.",
    ),
    "a script that hands everything on": Odd(
        engine(command=["bash", "-c", 'ulimit -l unlimited; exec vllm serve "$@"', "vllm"]),
        pod={(*VLLM, "command", "0"): "bash", (*VLLM, "args", "0"): "nvidia/Kimi-K2.6-NVFP4"},
    ),
    "a script whose shell is strict": Odd(
        engine(command=["bash", "-eu", "-o", "pipefail", "-c", 'exec vllm serve "$@"']),
        refused=f"{AT}.command: what follows a script is its $0 first, so the model would be lost",
    ),
    "a program of a shell's own": Odd(
        engine(command=["bash", "-e", "/opt/run.sh", "-c", "any"]),
        pod={(*VLLM, "command"): ["bash", "-e", "/opt/run.sh", "-c", "any"]},
        doubt=f"{AT}.command: bash starts the engine: it must be {WRAPPER}.",
    ),
    "a script that swallows the model": Odd(
        engine(command=["/bin/sh", "-ec", 'exec vllm serve "$@"']),
        refused=f"{AT}.command: what follows a script is its $0 first, so the model would be lost",
    ),
    "a script that swallows everything": Odd(
        engine(command=["sh", "-c", "exec vllm serve my/model", "vllm"]),
        refused=f'{AT}.command: the script does not name "$@"',
    ),
    "a wrapper that nobody here can read": Odd(
        engine(command=["/opt/run.sh"]),
        pod={(*VLLM, "command"): ["/opt/run.sh"], (*VLLM, "args", "0"): "nvidia/Kimi-K2.6-NVFP4"},
        doubt=f"{AT}.command: /opt/run.sh starts the engine: it must be {WRAPPER}.",
    ),
    "the image's entrypoint": Odd(
        engine(command=None),
        pod={(*VLLM, "command"): GONE},
        doubt=f"{AT}.command: the image's own entrypoint starts the engine: it must be {WRAPPER}.",
    ),
    "a container called main": Odd(
        spec(containers=[{"name": "main", "tty": True}]),
        refused=".spec.containers: the container main needs an image. The engine's container is "
        "called vllm.",
    ),
    "a sidecar": Odd(
        spec(containers=[{"name": "side", "image": "side"}]),
        pod={
            ("containers", "side", "image"): "side",
            (*VLLM, "args", "0"): "nvidia/Kimi-K2.6-NVFP4",
        },
    ),
    "an init container without an image": Odd(
        spec(initContainers=[{"name": "wait"}]),
        refused=".spec.initContainers: the container wait needs an image.",
    ),
    "no engine": Odd(
        engine(**{"$patch": "delete"}), refused=".spec.containers: the container vllm must stay"
    ),
    "no containers": Odd(
        spec(containers=None), refused=".spec.containers: the container vllm must stay"
    ),
    "other containers": Odd(
        spec(containers=[{"$patch": "replace"}, {"name": "a", "image": "a"}]),
        refused=".spec.containers: the container vllm must stay",
    ),
    "restart never": Odd(
        spec(restartPolicy="Never"), refused=".spec.restartPolicy: pods that serve have Always"
    ),
    "a deadline": Odd(
        spec(activeDeadlineSeconds=60), refused=".spec.activeDeadlineSeconds: Kubernetes refuses it"
    ),
    "a label of ours": Odd(
        {"metadata": {"labels": {"fathom.dev/role": "worker"}}},
        refused=".metadata.labels.fathom.dev/role: Fathom's own: remove it.",
    ),
}

ENVIRONMENT: Final[Mapping[str, Odd]] = {
    "a path for Python": Odd(
        env({"name": "PYTHONPATH", "value": "/mine"}),
        pod={(*VLLM, "env", "PYTHONPATH", "value"): "/etc/fathom/plugin:/mine"},
    ),
    "a path for Python that has ours": Odd(
        env({"name": "PYTHONPATH", "value": "/mine:/etc/fathom/plugin"}),
        pod={(*VLLM, "env", "PYTHONPATH", "value"): "/mine:/etc/fathom/plugin"},
    ),
    "a path for Python from elsewhere": Odd(
        env(
            {"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "paths", "key": "p"}}}
        ),
        pod={
            (*VLLM, "env", "FATHOM_USER_PYTHONPATH", "valueFrom", "configMapKeyRef", "key"): "p",
            (*VLLM, "env", "PYTHONPATH"): {
                "name": "PYTHONPATH",
                "value": "/etc/fathom/plugin:$(FATHOM_USER_PYTHONPATH)",
            },
        },
    ),
    "a path for Python beside one in engine.env": Odd(
        env({"name": "PYTHONPATH", "value": "/b"}),
        {"engine.env": [{"name": "PYTHONPATH", "value": "/a"}]},
        pod={(*VLLM, "env", "PYTHONPATH", "value"): "/etc/fathom/plugin:/b"},
    ),
    "a path for Python of a static engine": Odd(
        env({"name": "PYTHONPATH", "value": "/mine"}),
        STATIC,
        pod={(*VLLM, "env", "PYTHONPATH", "value"): "/mine"},
    ),
    "a path for Python of a sidecar": Odd(
        spec(
            containers=[{"name": "s", "image": "s", "env": [{"name": "PYTHONPATH", "value": "/s"}]}]
        ),
        pod={
            ("containers", "s", "env", "PYTHONPATH", "value"): "/s",
            (*VLLM, "env", "PYTHONPATH", "value"): "/etc/fathom/plugin",
        },
    ),
    "no path for Python": Odd(
        env({"name": "PYTHONPATH", "$patch": "delete"}),
        refused=f"{AT}.env: PYTHONPATH must stay: {PLUGIN}.",
    ),
    "plugins of vLLM": Odd(
        env({"name": "VLLM_PLUGINS", "value": "mine"}),
        pod={(*VLLM, "env", "VLLM_PLUGINS", "value"): "fathom,mine"},
    ),
    "no plugin of vLLM": Odd(
        env({"name": "VLLM_PLUGINS", "value": ""}),
        pod={(*VLLM, "env", "VLLM_PLUGINS", "value"): "fathom,"},
    ),
    "a variable of ours": Odd(
        env({"name": "FATHOM_DEPTH_FILE", "value": "/x"}),
        refused=f"{AT}.env: variables called FATHOM_… are Fathom's own: remove FATHOM_DEPTH_FILE.",
    ),
    "another environment": Odd(
        env({"$patch": "replace"}, {"name": "PYTHONPATH", "value": "/mine"}),
        refused=f"{AT}.env: FATHOM_POD_NAME must stay: {PLUGIN}.",
    ),
    "a variable that Fathom reads": Odd(
        env({"name": "HF_HOME", "value": "/models"}),
        CACHE,
        refused=f"{AT}.env: HF_HOME may not be set here: set it in spec.engine.env, which Fathom "
        "reads.",
    ),
    "the model runner": Odd(
        env({"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"}),
        refused=f"{AT}.env: VLLM_USE_V2_MODEL_RUNNER may not be set here: set it in spec.engine",
    ),
    "the frontend": Odd(
        env({"name": "VLLM_USE_RUST_FRONTEND", "value": "1"}),
        refused=f"{AT}.env: VLLM_USE_RUST_FRONTEND may not be set here: set it in spec.engine.env",
    ),
    "a secret in the open": Odd(
        env({"name": "VLLM_API_KEY", "value": "secret"}),
        refused=f"{AT}.env[0]: VLLM_API_KEY is readable here for all who may read pods",
    ),
    "a secret of ours from elsewhere": Odd(
        env({"name": "HF_TOKEN", "value": "$(MINE)"}),
        {"model.tokenSecretRef": {"name": "hf", "key": "token"}},
        pod={(*VLLM, "env", "HF_TOKEN"): {"name": "HF_TOKEN", "value": "$(MINE)"}},
    ),
    "a variable by another kind of reference": Odd(
        env({"name": "HF_TOKEN", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}),
        {"model.tokenSecretRef": {"name": "hf", "key": "token"}},
        pod={
            (*VLLM, "env", "HF_TOKEN", "valueFrom"): {"configMapKeyRef": {"name": "a", "key": "b"}}
        },
    ),
    "the time to load": Odd(
        env({"name": "VLLM_ENGINE_READY_TIMEOUT_S", "value": "60"}),
        pod={(*VLLM, "env", "VLLM_ENGINE_READY_TIMEOUT_S", "value"): "60"},
    ),
}

RESOURCES: Final[Mapping[str, Odd]] = {
    "more GPUs": Odd(
        engine(resources={"limits": {GPU: 8}}), refused=f"{AT}.resources.limits.{GPU}: {GPUS}"
    ),
    "another request for GPUs": Odd(
        engine(resources={"requests": {GPU: "1"}}), refused=f"{AT}.resources.requests.{GPU}: {GPUS}"
    ),
    "no GPUs": Odd(
        engine(resources={"limits": {GPU: None}}), refused=f"{AT}.resources.limits.{GPU}: {GPUS}"
    ),
    "no limits": Odd(
        engine(resources={"limits": None}), refused=f"{AT}.resources.limits.{GPU}: {GPUS}"
    ),
    "GPUs of another vendor": Odd(
        engine(resources={"limits": {"amd.com/gpu": 4}}),
        refused=f"{AT}.resources.limits.amd.com/gpu: spec.nodePool.accelerator asks for {GPU}, and "
        "no node has both: name the AMD accelerator there",
    ),
    "a part of a GPU": Odd(
        engine(resources={"limits": {"nvidia.com/mig-1g.18gb": 1}}),
        pod={(*VLLM, "resources", "limits"): {GPU: "4", "nvidia.com/mig-1g.18gb": "1"}},
        doubt=f"{AT}.resources.limits.nvidia.com/mig-1g.18gb: the pod waits for a node that has it",
    ),
    "the same GPUs": Odd(
        engine(resources={"limits": {GPU: 4}, "requests": {GPU: 4}}),
        pod={(*VLLM, "resources"): {"limits": {GPU: "4"}, "requests": {GPU: "4"}}},
    ),
    "network cards": Odd(
        engine(resources={"limits": {"rdma/ib": 1}}),
        pod={(*VLLM, "resources", "limits"): {GPU: "4", "rdma/ib": "1"}},
    ),
    "GPUs by a claim": Odd(
        spec(
            containers=[
                {"name": "vllm", "resources": {"limits": {GPU: None}, "claims": [{"name": "gpus"}]}}
            ],
            resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "gpus"}],
        ),
        refused=f"{AT}.resources.limits.{GPU}: claims for GPUs (resourceClaims) are not supported",
    ),
    "a claim beside ours": Odd(
        spec(
            containers=[{"name": "vllm", "resources": {"claims": [{"name": "nic"}]}}],
            resourceClaims=[{"name": "nic", "resourceClaimTemplateName": "nic"}],
        ),
        GROUP,
        pod={
            (*VLLM, "resources", "claims"): [{"name": "compute-domain-channel"}, {"name": "nic"}],
            ("resourceClaims", "nic", "resourceClaimTemplateName"): "nic",
        },
    ),
    "no claims": Odd(
        engine(resources={"claims": None}),
        GROUP,
        refused=f"{AT}.resources.claims: the claim compute-domain-channel must stay",
    ),
    "no claims of the pod": Odd(
        spec(resourceClaims=None),
        GROUP,
        refused=".spec.resourceClaims: the claim compute-domain-channel must stay",
    ),
    "other pods to be near": Odd(
        spec(
            affinity={
                "podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
                    ]
                }
            }
        ),
        GROUP,
        pod={
            ("affinity", "podAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "0"): {
                "topologyKey": "zone",
                "labelSelector": {"matchLabels": {"a": "b"}},
            }
        },
        doubt=".spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution: it takes "
        "the place of the term",
    ),
    "other nodes than of these products": Odd(
        spec(affinity=on_nodes(ZONE)),
        BOARDS,
        pod={(*NODES, "0", "matchExpressions", "0"): ZONE},
        doubt=f".spec.{'.'.join(NODES)}: it takes the place of what Fathom asks of nodes by "
        "nvidia.com/gpu.product: repeat that in each of your terms",
    ),
    "other nodes or these products": Odd(
        spec(affinity=on_nodes(ZONE, BOARD)),
        BOARDS,
        pod={(*NODES, "1", "matchExpressions", "0"): BOARD},
        doubt=f".spec.{'.'.join(NODES)}: it takes the place of",
    ),
    "no affinity, where products are asked for": Odd(
        spec(affinity=None),
        BOARDS,
        pod={("affinity",): GONE},
        doubt=f".spec.{'.'.join(NODES)}: it takes the place of",
    ),
    "these products, written again": Odd(
        spec(affinity=on_nodes(BOARD)),
        BOARDS,
        pod={(*NODES, "0", "matchExpressions", "0"): BOARD},
    ),
    "a zone, where no product is asked for": Odd(
        spec(affinity=on_nodes(ZONE)),
        pod={(*NODES, "0", "matchExpressions", "0"): ZONE},
    ),
}

VOLUMES: Final[Mapping[str, Odd]] = {
    "a larger /dev/shm": Odd(
        spec(volumes=[{"name": "shm", "emptyDir": {"sizeLimit": "200Gi"}}]),
        pod={("volumes", "shm", "emptyDir"): {"medium": "Memory", "sizeLimit": "200Gi"}},
    ),
    "a /dev/shm of another name": Odd(
        spec(
            containers=[
                {"name": "vllm", "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}]}
            ],
            volumes=[{"name": "dshm", "emptyDir": {"medium": "Memory"}}],
        ),
        pod={(*VLLM, "volumeMounts", "/dev/shm", "name"): "dshm"},
    ),
    "a /dev/shm from a claim": Odd(
        spec(volumes=[{"name": "shm", "persistentVolumeClaim": {"claimName": "a"}}]),
        pod={("volumes", "shm"): {"name": "shm", "persistentVolumeClaim": {"claimName": "a"}}},
    ),
    "no /dev/shm": Odd(
        engine(volumeMounts=[{"mountPath": "/dev/shm", "$patch": "delete"}]),
        refused=f"{AT}.volumeMounts: /dev/shm must stay mounted: do not delete it.",
    ),
    "a mount of a volume that is not there": Odd(
        engine(volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}]),
        refused=".spec.containers: the container vllm mounts the volume scratch, which there is "
        "not: add it to spec.podTemplate.spec.volumes.",
    ),
    "no mounts": Odd(
        engine(volumeMounts=[{"$patch": "replace"}]),
        refused=f"{AT}.volumeMounts: /dev/shm must stay mounted: do not delete it.",
    ),
    "no plugin": Odd(
        engine(volumeMounts=[{"mountPath": "/etc/fathom/plugin", "$patch": "delete"}]),
        refused=f"{AT}.volumeMounts: /etc/fathom/plugin must stay mounted: do not delete it.",
    ),
    "another plugin": Odd(
        engine(volumeMounts=[{"mountPath": "/etc/fathom/plugin", "name": "shm"}]),
        refused=f"{AT}.volumeMounts: /etc/fathom/plugin holds the whole volume fathom-plugin: "
        f"{PLUGIN}. Mount elsewhere.",
    ),
    "a depth that is never refreshed": Odd(
        engine(volumeMounts=[{"mountPath": "/etc/fathom/depth", "subPath": "depth.json"}]),
        refused=f"{AT}.volumeMounts: /etc/fathom/depth holds the whole volume fathom-depth",
    ),
    "other weights": Odd(
        spec(
            containers=[{"name": "vllm", "volumeMounts": [{"name": "w", "mountPath": "/cache"}]}],
            volumes=[{"name": "w", "persistentVolumeClaim": {"claimName": "w"}}],
        ),
        CACHE,
        refused=f"{AT}.volumeMounts: /cache holds the whole volume cache: spec.cache says what "
        "is there. Mount elsewhere.",
    ),
    "other weights, with a slash": Odd(
        spec(
            containers=[{"name": "vllm", "volumeMounts": [{"name": "w", "mountPath": "/cache/"}]}],
            volumes=[{"name": "w", "persistentVolumeClaim": {"claimName": "w"}}],
        ),
        CACHE,
        refused=f"{AT}.volumeMounts: /cache is mounted twice: write the path so, or mount",
    ),
    "weights at /cache without a cache of ours": Odd(
        spec(
            containers=[{"name": "vllm", "volumeMounts": [{"name": "w", "mountPath": "/cache"}]}],
            volumes=[{"name": "w", "persistentVolumeClaim": {"claimName": "w"}}],
        ),
        pod={(*VLLM, "volumeMounts", "/cache", "name"): "w"},
    ),
    "another claim for the cache": Odd(
        spec(volumes=[{"name": "cache", "persistentVolumeClaim": {"claimName": "other"}}]),
        CACHE,
        refused=".spec.volumes: the volume cache must stay as it is: spec.cache says what is "
        "there; give yours another name.",
    ),
    "the volume of the plugin": Odd(
        spec(volumes=[{"name": "fathom-plugin", "emptyDir": {}}]),
        refused=f".spec.volumes: the volume fathom-plugin must stay as it is: {PLUGIN}",
    ),
    "no volume of the depth": Odd(
        spec(volumes=[{"name": "fathom-depth", "$patch": "delete"}]),
        refused=f".spec.volumes: the volume fathom-depth must stay as it is: {PLUGIN}",
    ),
    "a home on another disk": Odd(
        spec(volumes=[{"name": "home", "hostPath": {"path": "/mnt/nvme"}}]),
        {"engine.user": 2000},
        pod={("volumes", "home"): {"name": "home", "hostPath": {"path": "/mnt/nvme"}}},
        doubt=".spec.volumes: the volume home is /mnt/nvme of the node",
    ),
}

SERVING: Final[Mapping[str, Odd]] = {
    "another name for the port": Odd(
        engine(ports=[{"containerPort": 8000, "name": "metrics"}]),
        pod={
            (*VLLM, "ports", "8000", "name"): "metrics",
            (*VLLM, "startupProbe", "httpGet", "port"): 8000,
            (*VLLM, "readinessProbe", "httpGet", "port"): 8000,
            (*VLLM, "livenessProbe", "httpGet", "port"): 8000,
        },
    ),
    "no name for the port": Odd(
        engine(ports=[{"containerPort": 8000, "name": None}]),
        pod={(*VLLM, "ports", "8000", "name"): GONE},
    ),
    "a port more": Odd(
        engine(ports=[{"containerPort": 9000, "name": "side"}]),
        pod={(*VLLM, "ports", "8000", "name"): "http", (*VLLM, "ports", "9000", "name"): "side"},
    ),
    "no port": Odd(
        engine(ports=[{"containerPort": 8000, "$patch": "delete"}]),
        refused=f"{AT}.ports: port 8000 must stay, with TCP",
    ),
    "a port by UDP": Odd(
        engine(ports=[{"containerPort": 8000, "protocol": "UDP"}]),
        refused=f"{AT}.ports: port 8000 must stay, with TCP",
    ),
    "a sidecar on our port": Odd(
        spec(containers=[{"name": "s", "image": "s", "ports": [{"containerPort": 8000}]}]),
        refused=".spec.containers: port 8000 is the engine's: give s another one.",
    ),
    "a port of the node": Odd(
        engine(ports=[{"containerPort": 8000, "hostPort": 8000}]),
        pod={(*VLLM, "ports", "8000", "hostPort"): 8000},
        doubt=".spec.containers: the container vllm takes port 8000 of its node",
    ),
    "a probe of a port that is not there": Odd(
        engine(
            ports=[{"containerPort": 8000, "name": "metrics"}],
            readinessProbe={"httpGet": {"port": "http"}},
        ),
        refused=".spec.containers: no port of the container vllm is called 'http', which a probe "
        "or hook asks: write the port's number.",
    ),
    "a probe over TLS": Odd(
        engine(livenessProbe={"httpGet": {"path": "/health", "port": 8000, "scheme": "HTTPS"}}),
        refused=f"{AT}.livenessProbe: the engine speaks plain HTTP at port 8000: leave scheme out.",
    ),
    "a probe by gRPC": Odd(
        engine(readinessProbe={"httpGet": None, "grpc": {"port": 8000}}),
        refused=f"{AT}.readinessProbe: the engine speaks HTTP at port 8000: ask /health there by "
        "httpGet.",
    ),
    "a probe by its port's new name": Odd(
        engine(
            ports=[{"containerPort": 8000, "name": "metrics"}],
            readinessProbe={"httpGet": {"port": "metrics"}},
        ),
        pod={(*VLLM, "readinessProbe", "httpGet"): {"path": "/health", "port": "metrics"}},
    ),
    "a probe of another kind": Odd(
        engine(readinessProbe={"exec": {"command": ["true"]}}),
        pod={
            (*VLLM, "readinessProbe", "exec", "command"): ["true"],
            (*VLLM, "readinessProbe", "httpGet"): GONE,
        },
    ),
    "a longer start": Odd(
        engine(startupProbe={"failureThreshold": 5000}),
        pod={
            (*VLLM, "startupProbe", "failureThreshold"): 5000,
            (*VLLM, "startupProbe", "httpGet", "port"): 8000,
        },
    ),
    "a probe where nothing listens": Odd(
        engine(readinessProbe={"httpGet": {"port": 8080}}),
        refused=f"{AT}.readinessProbe: nothing is known to listen at port 8080: ask 8000",
    ),
    "a probe where a sidecar says it listens": Odd(
        spec(
            containers=[
                {"name": "vllm", "readinessProbe": {"httpGet": {"port": 8080}}},
                {"name": "side", "image": "side", "ports": [{"containerPort": 8080}]},
            ]
        ),
        pod={(*VLLM, "readinessProbe", "httpGet", "port"): 8080},
    ),
    "a probe where a sidecar may listen": Odd(
        spec(
            containers=[
                {"name": "vllm", "readinessProbe": {"httpGet": {"port": 8080}}},
                {"name": "side", "image": "side"},
            ]
        ),
        pod={(*VLLM, "readinessProbe", "httpGet", "port"): 8080},
        doubt=f"{AT}.readinessProbe: nothing is known to listen at port 8080",
    ),
    "a probe where a connector may listen": Odd(
        engine(livenessProbe={"httpGet": {"port": 8998}}),
        {
            "engine.args": [
                "--kv-transfer-config",
                '{"kv_connector": "MooncakeConnector", "kv_role": "kv_both"}',
            ]
        },
        pod={(*VLLM, "livenessProbe", "httpGet", "port"): 8998},
        doubt=f"{AT}.livenessProbe: nothing is known to listen at port 8998",
    ),
    "a probe of another host": Odd(
        engine(livenessProbe={"httpGet": {"port": 8080, "host": "example.com"}}),
        pod={(*VLLM, "livenessProbe", "httpGet", "host"): "example.com"},
    ),
    "no readiness": Odd(
        engine(readinessProbe=None),
        pod={(*VLLM, "readinessProbe"): GONE},
        doubt=f"{AT}.readinessProbe: without it requests reach an engine that still loads.",
    ),
    "no liveness": Odd(engine(livenessProbe=None), pod={(*VLLM, "livenessProbe"): GONE}),
    "a hook of its own before the end": Odd(
        engine(lifecycle={"preStop": {"httpGet": {"path": "/bye", "port": 9000}}}),
        pod={(*VLLM, "lifecycle", "preStop"): {"httpGet": {"path": "/bye", "port": 9000}}},
        doubt=f"{AT}.lifecycle.preStop: it must take the seconds until every client has heard",
    ),
    "less time to end": Odd(
        spec(terminationGracePeriodSeconds=30),
        pod={("terminationGracePeriodSeconds",): 30},
        doubt=".spec.terminationGracePeriodSeconds: a pod that goes needs 140 to finish its "
        "requests, and loses those that take longer than this: lower spec.engine.drainSeconds",
    ),
    "more time to end": Odd(
        spec(terminationGracePeriodSeconds=900), pod={("terminationGracePeriodSeconds",): 900}
    ),
}

HOST: Final[Mapping[str, Odd]] = {
    "the network of the node": Odd(
        spec(hostNetwork=True),
        pod={("hostNetwork",): True},
        doubt=".spec.hostNetwork: the pod takes port 8000 of its node",
    ),
    "the processes of the node": Odd(
        spec(hostPID=True),
        pod={("hostPID",): True},
        doubt=f".spec.hostPID: the pod sees the processes of its node. {LEVEL}",
    ),
    "the memory of the node": Odd(
        spec(hostIPC=True), pod={("hostIPC",): True}, doubt=".spec.hostIPC: the pod shares memory"
    ),
    "a directory of the node": Odd(
        spec(volumes=[{"name": "nvme", "hostPath": {"path": "/mnt"}}]),
        pod={("volumes", "nvme", "hostPath", "path"): "/mnt"},
        doubt=".spec.volumes: the volume nvme is /mnt of the node, which outlives the pod",
    ),
    "a privileged engine, half": Odd(
        engine(securityContext={"privileged": True}),
        refused=".spec.containers: the container vllm cannot be privileged with "
        "allowPrivilegeEscalation: false, which Fathom sets: set that to true as well.",
    ),
    "a privileged engine": Odd(
        engine(securityContext={"privileged": True, "allowPrivilegeEscalation": True}),
        pod={(*VLLM, "securityContext", "privileged"): True},
        doubt=".spec.containers: the container vllm is privileged: it may do what its node may.",
    ),
    "a privileged init container": Odd(
        spec(
            initContainers=[
                {"name": "tune", "image": "tune", "securityContext": {"privileged": True}}
            ]
        ),
        pod={("initContainers", "tune", "image"): "tune"},
        doubt=".spec.initContainers: the container tune is privileged",
    ),
}

WORKERS: Final[Mapping[str, Odd]] = {
    "workers: a field misspelt": Odd(
        spec(tolerration=[]),
        GROUP,
        refused=".spec.tolerration: unknown field. Did you mean tolerations?",
        workers=True,
    ),
    "workers: a field beside metadata and spec": Odd(
        {"containers": []},
        GROUP,
        refused=".containers: a pod template has metadata and spec",
        workers=True,
    ),
    "workers: a label of ours": Odd(
        {"metadata": {"labels": {"fathom.dev/role": "leader"}}},
        GROUP,
        refused=".metadata.labels.fathom.dev/role: Fathom's own: remove it.",
        workers=True,
    ),
    "workers: an image": Odd(
        engine(image="vllm/vllm-openai:v0.33.0"),
        GROUP,
        refused=f"{AT}.image: may not be set here: set spec.engine.image instead.",
        workers=True,
    ),
    "workers: fewer GPUs": Odd(
        engine(resources={"limits": {GPU: 2}}),
        GROUP,
        refused=f"{AT}.resources.limits.{GPU}: {GPUS}",
        workers=True,
    ),
    "workers: a secret in the open": Odd(
        env({"name": "VLLM_API_KEY", "value": "secret"}),
        GROUP,
        refused=f"{AT}.env[0]: VLLM_API_KEY is readable here for all who may read pods",
        workers=True,
    ),
    "workers: a mount of a volume that is not there": Odd(
        engine(volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}]),
        GROUP,
        refused=".spec.containers: the container vllm mounts the volume scratch, which there is "
        "not: add it to spec.workerTemplate.spec.volumes.",
        workers=True,
    ),
    "workers: no engine": Odd(
        engine(**{"$patch": "delete"}),
        GROUP,
        refused=".spec.containers: the container vllm must stay",
        workers=True,
    ),
    "workers: a probe by HTTP": Odd(
        engine(readinessProbe={"httpGet": {"path": "/health", "port": 8000}}),
        GROUP,
        refused=f"{AT}.readinessProbe: nothing is known to listen at port 8000: leave the probe",
        workers=True,
    ),
    "workers: more patience with the leader": Odd(
        engine(livenessProbe={"failureThreshold": 60}),
        GROUP,
        pod={
            (*VLLM, "livenessProbe", "failureThreshold"): 60,
            (*VLLM, "livenessProbe", "periodSeconds"): 10,
        },
        workers=True,
    ),
    "workers: otherwise than in podTemplate": Odd(
        env({"name": "A", "value": "worker"}),
        {**GROUP, "podTemplate": env({"name": "A", "value": "all"}, {"name": "B", "value": "all"})},
        pod={(*VLLM, "env", "A", "value"): "worker", (*VLLM, "env", "B", "value"): "all"},
        workers=True,
    ),
    "workers: a hook of their own before the end": Odd(
        engine(lifecycle={"preStop": {"exec": {"command": ["sleep", "9"]}}}),
        GROUP,
        pod={(*VLLM, "lifecycle", "preStop", "exec", "command"): ["sleep", "9"]},
        doubt=f"{AT}.lifecycle.preStop: it must wait until the leader is gone",
        workers=True,
    ),
    "workers: a field that a newer Kubernetes may have": Odd(
        spec(quantumSeconds=3),
        GROUP,
        pod={("quantumSeconds",): 3},
        doubt=".spec.quantumSeconds: no field of a pod that this Fathom knows",
        workers=True,
    ),
}

ODD: Final[Mapping[str, Odd]] = {
    **SCHEMA,
    **START,
    **ENVIRONMENT,
    **RESOURCES,
    **VOLUMES,
    **SERVING,
    **HOST,
    **WORKERS,
}
