"""What vLLM is asked about the arguments of a resource's pods, its answer, and the Job that asks.

`fathom_measure.start_probe` asks it; `ask_engine` runs that.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from fathom.api import names
from fathom.cluster.kinds import JOB
from fathom.cluster.manifest import Manifest
from fathom.engine.flags import COMMAND
from fathom.engine.plugin import DeliveredCode, PluginBundle
from fathom.engine.replica_layout import LEADER_ADDRESS, WORKER_INDEX, Role
from fathom.manifests.config_maps import code_data, code_volume
from fathom.manifests.pod_template import (
    DEPTH_VOLUME,
    PLUGIN_VOLUME,
    node_tolerations,
    pod_template,
    worker_template,
)
from fathom.manifests.program_job import node_selector
from fathom.manifests.template_parts import Part, by, part, parts, texts
from fathom.resource import SpeculativeDeployment
from fathom.text import shortened
from fathom_measure import start_probe

RULE: Final = "engine"
PROBE: Final = "start_probe.py"
QUESTION: Final = "question.json"
DEADLINE_SECONDS: Final = 1800
"""After which Kubernetes ends a Job: images of engines are large."""
KEPT_SECONDS: Final = 600
"""That a Job stays after its end, where nobody removed it."""
COMPONENT: Final = "engine-check"
_DIRECTORY: Final = "/etc/fathom/check"
_VOLUME: Final = "fathom-check"
_OF_THE_CONTAINER: Final = (
    *("name", "image", "imagePullPolicy", "envFrom", "securityContext", "workingDir"),
    "terminationMessagePolicy",
)
_OF_THE_TEMPLATE: Final = (
    *("serviceAccountName", "automountServiceAccountToken", "enableServiceLinks"),
    *("imagePullSecrets", "securityContext", "hostAliases", "dnsConfig", "dnsPolicy"),
    "schedulerName",
)
"""What a pod needs to get the image, and to reach a hub from where the engine does."""
_NO_GPU: Final = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
"""Or a container on a node with GPUs may see them all, those of replicas too."""
_RESOURCES: Final[Mapping[str, JsonValue]] = {"requests": {"cpu": "500m", "memory": "2Gi"}}
_LONGEST: Final = 800
"""Characters of a text that is repeated."""
_OF_A_GROUP: Final = {LEADER_ADDRESS: "127.0.0.1", WORKER_INDEX: "1"}
"""What LeaderWorkerSet gives its pods."""
_READ: Final = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
"""What the kubelet replaces in arguments."""
_OF_THE_POD: Final = frozenset({"VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT"})
"""Variables that name places in a pod."""


class NotAskedError(Exception):
    """vLLM cannot be asked; the message is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineQuestion:
    """What vLLM is asked about one resource."""

    arguments: Mapping[str, tuple[str, ...]]
    """What follows `vllm serve`, by the role of the pod."""
    variables: Mapping[str, str]
    """The user's own that vLLM reads, as far as the spec has their values."""
    bundle: PluginBundle
    """The plugin, which the arguments name."""

    def to_json(self) -> str:
        return json.dumps({role: list(words) for role, words in self.arguments.items()})


class RoleAnswer(BaseModel):
    """What vLLM makes of the arguments of one kind of pod; all empty: it takes them."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    refused_by: str = ""
    error: str = ""
    unknown: str = ""


class EngineAnswer(BaseModel):
    """What `start_probe` writes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    vllm: str = ""
    """Its version."""
    failure: str = ""
    """Why it cannot be asked at all."""
    answers: dict[str, RoleAnswer] = {}


def question_of(sd: SpeculativeDeployment, bundle: PluginBundle) -> EngineQuestion:
    """What to ask of a resource that is not refused.

    Raises:
        NotAskedError: its pods start something else, or their arguments are not in the spec.
    """
    containers = {
        role: engine_container(template) for role, template in templates_of(sd, bundle).items()
    }
    return EngineQuestion(
        arguments={role.value: _arguments(each) for role, each in containers.items()},
        variables={
            name: value
            for name, value in _literals(containers[Role.LEADER]).items()
            if name.startswith("VLLM_") and name not in _OF_THE_POD
        },
        bundle=bundle,
    )


def templates_of(sd: SpeculativeDeployment, bundle: PluginBundle) -> Mapping[Role, Part]:
    """The templates of its pods."""
    found = {Role.LEADER: pod_template(sd, revision=RULE, bundle=bundle)}
    if sd.engine.layout.spans_nodes:
        found[Role.WORKER] = worker_template(sd, revision=RULE, bundle=bundle)
    return found


def engine_container(template: Part) -> Part:
    """The one in which the engine runs."""
    return by("name", parts(template, "spec", "containers"))[names.ENGINE_CONTAINER]


def _literals(container: Part) -> Mapping[str, str]:
    """Variables whose values are in the spec, by name."""
    found = {str(each.get("name")): each.get("value") for each in parts(container, "env")}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _arguments(container: Part) -> tuple[str, ...]:
    words = (*texts(container, "command"), *texts(container, "args"))
    if words[: len(COMMAND)] != COMMAND:
        raise NotAskedError(
            f"The pods start `{shortened(' '.join(words[:2]), 80)}`, by podTemplate, and of "
            f"`{' '.join(COMMAND)}` alone the arguments can be checked: leave out --engine and "
            "--image."
        )
    known = {**_OF_A_GROUP, **_literals(container)}
    return tuple(_expanded(word, known) for word in words[len(COMMAND) :])


def _expanded(word: str, known: Mapping[str, str]) -> str:
    """An argument as the kubelet passes it on."""

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        if found[1] not in known:
            raise NotAskedError(
                f"The arguments read {found[0]}, and the spec does not have its value: write the "
                "value into the argument, or leave out --engine and --image."
            )
        return known[found[1]]

    return _READ.sub(value, word)


def answer_in(written: str) -> EngineAnswer | None:
    """What `start_probe` answered; None: nothing that can be read."""
    lines = [line for line in written.splitlines() if line.startswith(start_probe.PREFIX)]
    try:
        text = lines[-1].removeprefix(start_probe.PREFIX) if lines else ""
        return EngineAnswer.model_validate_json(text)
    except ValidationError:
        return None


def last_words(written: str) -> str:
    """The last line of what a program wrote."""
    lines = [line.strip() for line in written.splitlines() if line.strip()]
    return shortened(lines[-1], _LONGEST) if lines else "it wrote nothing"


def probe_text() -> str:
    """The program that asks."""
    return Path(start_probe.__file__).read_text(encoding="utf-8")


def check_job(
    sd: SpeculativeDeployment, question: EngineQuestion, *, run: str, missing: Collection[str]
) -> Manifest:
    """One pod with the engine's image and variables, on any node of its architecture. Pure.

    Args:
        sd: whose.
        question: what it asks.
        run: tells it from others.
        missing: claims for volumes that are not there: the operator makes some, later.
    """
    name = names.engine_check(sd.metadata.name, run)
    labels: dict[str, JsonValue] = {names.LABEL_COMPONENT: COMPONENT}
    template = templates_of(sd, question.bundle)[Role.LEADER]
    spec, container = part(template, "spec"), engine_container(template)
    mounts = [
        dict(each)
        for each in parts(container, "volumeMounts")
        # An engine that serves reads it.
        if each.get("name") != DEPTH_VOLUME
    ]
    mounted = {each.get("name") for each in mounts}
    kept = {key: spec[key] for key in _OF_THE_TEMPLATE if key in spec}
    if kept.get("serviceAccountName") == sd.metadata.name:
        # The operator makes it; it has no rights, and need not be there yet.
        del kept["serviceAccountName"]
    pod: dict[str, JsonValue] = {
        **kept,
        "restartPolicy": "Never",
        "nodeSelector": node_selector(sd),
        "tolerations": node_tolerations(sd.spec.node_pool),
        "containers": [
            {
                **{key: container[key] for key in _OF_THE_CONTAINER if key in container},
                "command": ["python3", f"{_DIRECTORY}/{PROBE}", f"{_DIRECTORY}/{QUESTION}"],
                "env": _env(container),
                "resources": dict(_RESOURCES),
                "volumeMounts": [
                    *mounts,
                    {"name": _VOLUME, "mountPath": _DIRECTORY, "readOnly": True},
                ],
            }
        ],
        "volumes": [
            *(
                _volume(each, question, name, missing)
                for each in parts(spec, "volumes")
                if each.get("name") in mounted
            ),
            code_volume(_VOLUME, name, _program(question)),
        ],
    }
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {"name": name, "namespace": sd.metadata.namespace, "labels": dict(labels)},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {"metadata": {"labels": dict(labels)}, "spec": pod},
        },
    }


def check_code(
    sd: SpeculativeDeployment, question: EngineQuestion, *, run: str, owner: list[JsonValue]
) -> Manifest:
    """The program, what it asks, and the plugin; it goes with its owner."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.engine_check(sd.metadata.name, run),
            "namespace": sd.metadata.namespace,
            "labels": {names.LABEL_COMPONENT: COMPONENT},
            "ownerReferences": owner,
        },
        "data": {**code_data(question.bundle), **code_data(_program(question))},
    }


def _program(question: EngineQuestion) -> DeliveredCode:
    return DeliveredCode({PROBE: probe_text(), QUESTION: question.to_json()}, "")


def _env(container: Part) -> list[JsonValue]:
    env = by("name", parts(container, "env"))
    return [dict(each) for each in {**env, _NO_GPU["name"]: _NO_GPU}.values()]


def _volume(
    volume: Part, question: EngineQuestion, code: str, missing: Collection[str]
) -> dict[str, JsonValue]:
    if volume.get("name") == PLUGIN_VOLUME:
        return code_volume(PLUGIN_VOLUME, code, question.bundle)
    # A pod whose claim is not there waits for it.
    gone = claim_in(volume) in missing
    return {"name": volume["name"], "emptyDir": {}} if gone else dict(volume)


def claim_in(volume: Part) -> str:
    return str(part(volume, "persistentVolumeClaim").get("claimName", ""))
