"""What a host's pods need for live depth: a patch, a ConfigMap, and a SpeculationTuner. Pure."""

import shlex
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.attach.host import ADDITIONAL, Engine, Form, Host
from fathom.attach.startup import DRAFTING, PLACEHOLDER, SCHEDULER, Startup
from fathom.cluster.kinds import (
    DEPLOYMENT,
    LEADER_WORKER_SET,
    LLM_INFERENCE_SERVICE,
    STATEFUL_SET,
    Kind,
)
from fathom.cluster.manifest import Manifest
from fathom.engine.argument_parser import EngineArguments
from fathom.engine.flags import HTTP_PORT
from fathom.manifests.engine_env import PLUGIN_DIRECTORY
from fathom.manifests.strategic_merge import merged
from fathom.manifests.template_parts import Part, parts, texts
from fathom_vllm.bundle import SCHEDULER_CLASS, STAT_LOGGER_NAME
from fathom_vllm.environment import DEPTH_DIRECTORY, OWN_TABLE, POD_NAME, STARTUP

PLUGIN_FILE: Final = "fathom.zip"
PLUGIN_PATH: Final = f"{PLUGIN_DIRECTORY}/{PLUGIN_FILE}"
_PATH, _PLUGINS = "PYTHONPATH", "VLLM_PLUGINS"
_Object = dict[str, JsonValue]


class Printed(StrEnum):
    """What can be printed."""

    DEPLOYMENT = "deployment"
    POD = "pod"
    KUSTOMIZE = "kustomize"
    HELM = "helm"
    KSERVE = "kserve"
    LWS = "lws"
    PLUGIN = "plugin"
    TUNER = "tuner"


FORM_OF: Final[Mapping[Kind, Printed]] = {
    DEPLOYMENT: Printed.DEPLOYMENT,
    STATEFUL_SET: Printed.DEPLOYMENT,
    LEADER_WORKER_SET: Printed.LWS,
    LLM_INFERENCE_SERVICE: Printed.KSERVE,
}
"""Each workload's own patch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """What is to be added to a host, and for whom."""

    host: Host
    startup: Startup
    tuner: str
    """Name of the SpeculationTuner."""
    plugin: str
    """Name of the ConfigMap with the plugin."""

    def arguments(self, engine: Engine) -> tuple[str, str]:
        """The two of vLLM's, quoted where a shell reads them: it takes JSON apart that is not.

        A variable that no shell evaluates keeps its quotes, and vLLM would get them.
        """
        config, by_shell = self.startup.config, engine.form is Form.SCRIPT or engine.evaluated
        return (
            f"{SCHEDULER}={SCHEDULER_CLASS}",
            f"{DRAFTING}={shlex.quote(config) if by_shell else config}",
        )

    @property
    def to_do(self) -> tuple[str, ...]:
        """What is left to whoever takes the patch; empty: nothing."""
        return (*self.startup.to_do, *dict.fromkeys(_by_hand(self.host)))


def _by_hand(host: Host) -> Iterator[str]:
    for engine in host.engines:
        by_shell = engine.form in {Form.SCRIPT, Form.VARIABLE}
        if by_shell and any(each.keys for each in engine.arguments.spelled(DRAFTING)):
            yield f"Remove its {DRAFTING} that is written key by key: it would win over JSON."
        if engine.form is Form.SCRIPT and not _can_append(engine):
            why = "does not end with the command of vLLM"
            if not engine.owns_script:
                why = f"is in an LLMInferenceServiceConfig and does not read {ADDITIONAL}"
            yield (f"Add {SCHEDULER}={SCHEDULER_CLASS} and {DRAFTING} to its script, which {why}.")
        for name in (_PATH, _PLUGINS, ADDITIONAL):
            if "valueFrom" in engine.variable(name):
                yield f"Add Fathom's part to variable {name} where its value is: it is elsewhere."


# -- the patch


def pod_patch(attachment: Attachment, engine: Engine, *, serves: bool = True) -> _Object:
    """What is added to the spec of a pod, as a strategic merge patch.

    Args:
        attachment: what is to be added.
        engine: of this pod.
        serves: whether requests come to it; every rank of a group reads the same arguments.
    """
    mounts: list[JsonValue] = [
        {"name": "fathom-plugin", "mountPath": PLUGIN_DIRECTORY, "readOnly": True}
    ]
    volumes: list[JsonValue] = [{"name": "fathom-plugin", "configMap": {"name": attachment.plugin}}]
    if serves:
        document = names.tuner_depth_config_map(attachment.tuner)
        mounts.append({"name": "fathom-depth", "mountPath": DEPTH_DIRECTORY, "readOnly": True})
        volumes.append({"name": "fathom-depth", "configMap": {"name": document, "optional": True}})
    container: _Object = {
        "name": engine.name,
        **_lists(attachment, engine),
        "env": [*_env(attachment, engine, serves=serves)],
        "volumeMounts": mounts,
    }
    return {"containers": [container], "volumes": volumes}


def _lists(attachment: Attachment, engine: Engine) -> _Object:
    """The list that holds the arguments, whole: a strategic merge replaces lists of texts."""
    given, added = texts(engine.container, engine.field), attachment.arguments(engine)
    if engine.form is Form.LIST:
        return {engine.field: [*_without_ours(given), *added]}
    if engine.form is Form.VARIABLE or not _can_append(engine):
        return {}
    script = _behind(engine.script.rstrip(" \n\\"), added)
    return {engine.field: [script if each == engine.script else each for each in given]}


def _behind(text: str, words: Sequence[str]) -> str:
    added = " ".join(words)
    return text if added in text else f"{text} {added}".strip()


def _can_append(engine: Engine) -> bool:
    """Whether what is put behind a script is put behind vLLM's arguments."""
    text = engine.script.replace("\\\n", " ").strip()
    last = text.rpartition("\n")[2]
    lexer = shlex.shlex(last, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = [*lexer]
    except ValueError:
        return False
    serves = any(each in {"serve", "vllm.entrypoints.openai.api_server"} for each in words)
    joined = any(each[0] in ";|&()<>" for each in words if each)
    return engine.owns_script and serves and not engine.evaluated and not joined


def _without_ours(words: Sequence[str]) -> Iterator[str]:
    """A list without the options that ours take the place of."""
    arguments = EngineArguments.of(words)
    gone = set[int]()
    for option in (*arguments.spelled(DRAFTING), *arguments.beginning(SCHEDULER)):
        gone |= {option.index} if "=" in words[option.index] else {option.index, option.index + 1}
    yield from (word for at, word in enumerate(words) if at not in gone)


def _env(attachment: Attachment, engine: Engine, *, serves: bool) -> Iterator[JsonValue]:
    shared = {_PATH: (PLUGIN_PATH, ":"), _PLUGINS: (STAT_LOGGER_NAME, ",")}
    for name, (ours, separator) in shared.items():
        # Unset, every plugin is loaded; set, only those it lists.
        if "valueFrom" in engine.variable(name) or (name == _PLUGINS and not engine.value_of(name)):
            continue
        theirs = [each for each in engine.value_of(name).split(separator) if each not in {"", ours}]
        yield {"name": name, "value": separator.join([ours, *theirs])}
    if serves:
        yield {"name": POD_NAME, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    if attachment.startup.keeps_own:
        yield {"name": STARTUP, "value": OWN_TABLE}
    if engine.form is Form.VARIABLE and "valueFrom" not in engine.variable(ADDITIONAL):
        value = _behind(engine.value_of(ADDITIONAL), attachment.arguments(engine))
        yield {"name": ADDITIONAL, "value": value}


# -- what is printed


def workload_patch(attachment: Attachment) -> Manifest:
    """The patch for a workload.

    A strategic merge patch where Kubernetes has one. For other kinds lists are whole, since any
    other patch replaces them.

    Raises:
        ValueError: the workload is not known.
    """
    host, kind = attachment.host, attachment.host.kind
    if kind is None:
        raise ValueError("only pods are known")
    engine, pod = host.engine, pod_patch(attachment, host.engine)
    labels: _Object = {names.LABEL_TUNED_BY: attachment.tuner}
    if kind == LLM_INFERENCE_SERVICE:
        # Its template is the spec of a pod, without a place for labels.
        spec: _Object = {"labels": labels, "template": _whole(engine.pod, pod)}
    elif kind == LEADER_WORKER_SET:
        serving: _Object = {"metadata": {"labels": labels}, "spec": _whole(engine.pod, pod)}
        templates: _Object = {"workerTemplate": serving}
        if (other := host.worker) is not None:
            ranks = _whole(other.pod, pod_patch(attachment, other, serves=False))
            templates = {"leaderTemplate": serving, "workerTemplate": {"spec": ranks}}
        spec = {"leaderWorkerTemplate": templates}
    else:
        spec = {"template": {**template_patch(attachment)}}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": host.name, "namespace": host.namespace},
        "spec": spec,
    }


def template_patch(attachment: Attachment) -> Manifest:
    """The patch for the template of a pod, whatever makes pods of it."""
    labels: _Object = {names.LABEL_TUNED_BY: attachment.tuner}
    return {"metadata": {"labels": labels}, "spec": pod_patch(attachment, attachment.host.engine)}


def _whole(pod: Part, patch: _Object) -> _Object:
    """The lists of a patch with all that the pod has in them."""
    result = merged(pod, patch)
    return {key: result[key] for key in patch}


def helm_values(attachment: Attachment) -> Manifest:
    """What to add to one `modelSpec` of production-stack's chart (vllm-stack)."""
    pod = pod_patch(attachment, attachment.host.engine)
    (container,) = parts(pod, "containers")
    model: _Object = {
        "name": attachment.host.labels.get("model") or f"{PLACEHOLDER}the name of your own",
        "podLabels": {names.LABEL_TUNED_BY: attachment.tuner},
        "env": container["env"],
        "vllmConfig": {"extraArgs": [*attachment.arguments(attachment.host.engine)]},
        "extraVolumes": pod["volumes"],
        "extraVolumeMounts": container["volumeMounts"],
    }
    return {"servingEngineSpec": {"modelSpec": [model]}}


def tuner_manifest(host: Host, tuner: str) -> Manifest:
    """The SpeculationTuner, in mode Advise."""
    selector: _Object = {"matchLabels": dict(host.labels)}
    port = host.engine.port
    elsewhere: _Object = {} if port == HTTP_PORT else {"metrics": {"port": port}}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.TUNER_KIND,
        "metadata": {"name": tuner, "namespace": host.namespace},
        "spec": {"selector": selector, **elsewhere},
    }


def plugin_manifest(namespace: str, name: str, packed: bytes) -> Manifest:
    """The plugin. It has no owner: while it is missing, pods do not start.

    Args:
        namespace: of the pods.
        name: with the hash of its content, since it is immutable.
        packed: it as a zip.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "immutable": True,
        "binaryData": {PLUGIN_FILE: b64encode(packed).decode()},
    }


def kustomize_component(host: Host, patch: str) -> Manifest:
    """A component with the patch of a workload, as text.

    Raises:
        ValueError: the workload is not known.
    """
    if host.kind is None:
        raise ValueError("only pods are known")
    kind = host.kind
    target = {"group": kind.group, "version": kind.version, "kind": kind.kind, "name": host.name}
    return {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "patches": [{"target": {**target}, "patch": patch}],
    }


def why_not(host: Host, form: Printed) -> str:
    """Why there is no such patch for a host; empty: there is one."""
    if host.kind is None:
        needs = f"--print {form} needs a WORKLOAD: what made these pods is not known."
        return "" if form is Printed.POD else f"{needs} Give --print {Printed.POD}."
    own = FORM_OF[host.kind]
    fits = {own, Printed.KUSTOMIZE, *((Printed.POD,) if own is Printed.DEPLOYMENT else ())}
    return "" if form in fits else f"--print {form} is not for {host}: give --print {own}."


def remarks(attachment: Attachment, form: Printed) -> Iterator[str]:
    """Comments above what is printed."""
    host = attachment.host
    if form is Printed.PLUGIN:
        yield "Fathom's plugin. It belongs to the host: pods that mount it do not start without it."
        return
    if form is Printed.TUNER:
        yield "It advises, and writes no depth. tuning: {mode: Auto} lets it act."
        return
    if form is Printed.HELM:
        yield "Values of production-stack's chart vllm-stack, for one modelSpec. Add these entries"
        yield "to your own, since Helm replaces lists; of two --speculative-config the last counts."
    elif form is Printed.KUSTOMIZE:
        yield "A component. Write a kustomization.yaml around yours: resources names the directory"
        yield "that you apply now, components that of this file. Within yours, where a namePrefix"
        yield "is still to come, it would match nothing, silently."
    elif form is Printed.POD:
        yield "Merge it into the template of these pods (`template`, or what it is called there):"
        yield "lists of objects by their names; a list of texts takes the place of what is there."
    else:
        kind = "strategic" if form is Printed.DEPLOYMENT else "merge"
        plural = host.kind.plural if host.kind else ""
        yield f"kubectl -n {host.namespace} patch {plural} {host.name} --type {kind} --patch-file"
        yield "with this file, or the same lines in what you apply. It restarts the pods."
    yield f"It mounts ConfigMap {attachment.plugin}: apply --print plugin before it."
    for each in attachment.to_do:
        yield f"TO DO: {each}"
