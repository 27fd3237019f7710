"""What other platforms start, by their own tools, before a patch of `fathom attach` and after it.

kubectl merges and kustomizes (`support.kustomize`); Helm renders charts. What they read is in
the folder `platforms`, or in the one that `FATHOM_PLATFORMS` names (its README).
"""

import copy
import difflib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from fathom.adapters.yaml_documents import to_yaml
from fathom.attach.host import Host, host_of, host_of_pods
from fathom.attach.patch import (
    Attachment,
    helm_values,
    kustomize_component,
    template_patch,
    workload_patch,
)
from fathom.attach.startup import startup_of
from fathom.cluster.kinds import DEPLOYMENT, LLM_INFERENCE_SERVICE
from local_cluster.helm import Release, find_helm
from support.kustomize import Object, documents, kustomized, patched

OWN: Final = Path(__file__).with_name("platforms")
FOLDER: Final = Path(os.environ.get("FATHOM_PLATFORMS") or OWN)
PLUGIN: Final = "fathom-plugin-HASH"
LONGEST_ENTRY: Final = 100
SEQS: Final = ("--max-num-seqs", "256")
_OPTION_OF_TLS: Final = re.compile(r"\{\{-?\s*if .*?\}\}.*?\{\{-?\s*end\s*\}\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patched:
    """A workload of a platform."""

    before: Object
    """The container that runs vLLM, as its pods have it."""
    attachment: Attachment
    after: Object
    """The same container once the patch is applied."""
    volumes: list[Object]
    """Those of its pod then."""
    printed: Object
    """The patch."""
    written: tuple[Object, Object]
    """What people write, without the patch and with it."""

    @property
    def lines(self) -> int:
        """How many lines of it the patch adds or changes."""
        compared = difflib.ndiff(*([*lines_of(each)] for each in self.written))
        return sum(each.startswith("+ ") for each in compared)


def all_of(folder: Path, drafting: str) -> dict[str, Patched]:
    """Each platform's, with speculation as its users would ask for it.

    Args:
        folder: for files of the tools.
        drafting: value of `--speculative-config`.
    """
    return {
        "production-stack": production_stack(folder, drafting),
        "AIBrix": aibrix(folder, drafting),
        "AIBrix, StormService": aibrix_by_roles(folder, drafting),
        "llm-d": llm_d(folder, drafting),
        "KServe": kserve(folder, f"{' '.join(SEQS)} --speculative-config '{drafting}'"),
    }


def lines_of(value: Any, indent: str = "") -> Iterator[str]:
    """YAML in the order of its keys, with an entry of a list on one line where it fits on one."""
    if isinstance(value, dict):
        for key, each in sorted(value.items()):
            if isinstance(each, dict | list):
                yield f"{indent}{key}:"
                yield from lines_of(each, f"{indent}  ")
            else:
                yield f"{indent}{key}: {json.dumps(each)}"
        return
    for each in value:
        whole = json.dumps(each, sort_keys=True)
        if isinstance(each, str) or len(whole) <= LONGEST_ENTRY:
            yield from (f"{indent}- {line}" for line in str(each).splitlines())
        else:
            yield f"{indent}-"
            yield from lines_of(each, f"{indent}  ")


def kserve(folder: Path, additional: str) -> Patched:
    """An LLMInferenceService, with what its controller makes of the config that comes with it."""
    text = (FOLDER / "kserve/config/llmisvcconfig/config-llm-template.yaml").read_text()
    # Its controller fills them in; nothing that they are about is asked for here.
    text = _OPTION_OF_TLS.sub("", text)
    text = re.sub(r"\{\{ shutdownTimeout .*?\}\}", "45", text)
    config = yaml.safe_load(
        re.sub(r"\{\{.*?(Name )?\}\}", lambda at: "qwen" if at[1] else "", text)
    )
    variable = {"name": "VLLM_ADDITIONAL_ARGS", "value": additional}
    service = {
        "apiVersion": LLM_INFERENCE_SERVICE.api_version,
        "kind": LLM_INFERENCE_SERVICE.kind,
        "metadata": {"name": "qwen", "namespace": "llm"},
        "spec": {
            "model": {"uri": "hf://Qwen/Qwen3-8B", "name": "qwen"},
            "template": {"containers": [{"name": "main", "env": [variable]}]},
        },
    }

    def pod_of(service: Object) -> Object:
        own = {"spec": service["spec"]["template"]}
        return patched(folder, _pod({"spec": config["spec"]["template"]}), own)

    before = pod_of(service)
    attachment = _attachment(host_of(LLM_INFERENCE_SERVICE, service, before["spec"]))
    printed = _read(workload_patch(attachment))
    changed = patched(folder, service, printed, "merge")
    return _patched(before, attachment, pod_of(changed), printed, (service, changed))


def production_stack(folder: Path, drafting: str) -> Patched:
    """A model of the chart's; its values get those of the patch, as its remark says."""
    chart = folder / "production-stack"
    shutil.copytree(FOLDER / "production-stack/helm", chart)
    described = yaml.safe_load((chart / "Chart.yaml").read_text())
    described.pop("dependencies", None)  # monitoring, which would have to be downloaded
    (chart / "Chart.yaml").write_text(yaml.safe_dump(described))
    (chart / "Chart.lock").unlink(missing_ok=True)
    model = {
        "name": "qwen",
        "repository": "vllm/vllm-openai",
        "tag": "v0.32.0",
        "modelURL": "Qwen/Qwen3-8B",
        "replicaCount": 1,
        "requestCPU": 6,
        "requestMemory": "16Gi",
        "requestGPU": 1,
        "vllmConfig": {"maxNumSeqs": 256, "extraArgs": ["--speculative-config", drafting]},
        "env": [{"name": "HF_HUB_OFFLINE", "value": "1"}],
    }

    def deployment_of(model: Object) -> Object:
        values = {"servingEngineSpec": {"modelSpec": [model]}}
        made = find_helm().template(
            Release(chart=chart, name="rel", namespace="llm", values=values)
        )
        return _deployment(documents(made), "-deployment-vllm")

    before = deployment_of(model)
    attachment = _attachment(host_of(DEPLOYMENT, before, None))
    printed = _read(helm_values(attachment))
    (ours,) = printed["servingEngineSpec"]["modelSpec"]
    more = _added(model, ours)
    return _patched(before, attachment, deployment_of(more), printed, (model, more))


def aibrix(folder: Path, drafting: str) -> Patched:
    """The Deployment of its quickstart."""
    before = yaml.safe_load((FOLDER / "aibrix/samples/quickstart/model.yaml").read_text())
    _container(before)["command"] += [*SEQS, "--speculative-config", drafting]
    attachment = _attachment(host_of(DEPLOYMENT, before, None))
    printed = _read(workload_patch(attachment))
    after = patched(folder, before, printed)
    return _patched(before, attachment, after, printed, (before, after))


def aibrix_by_roles(folder: Path, drafting: str) -> Patched:
    """The decode role of a StormService, which `fathom attach` knows by its pods alone."""
    service = yaml.safe_load((FOLDER / "aibrix/samples/quickstart/pd-model.yaml").read_text())
    roles = {each["name"]: each for each in service["spec"]["template"]["spec"]["roles"]}
    before = _pod(roles["decode"]["template"])
    text = _container(before)["args"][0].rstrip()
    _container(before)["args"] = [
        f"{text} \\\n{' '.join(SEQS)} --speculative-config '{drafting}'\n"
    ]
    attachment = _attachment(host_of_pods("llm", {"role-name": "decode"}, before, ""))
    printed = _read(template_patch(attachment))
    after = patched(folder, before, printed)
    return _patched(before, attachment, after, printed, (before, after))


def llm_d(folder: Path, drafting: str) -> Patched:
    """A guide's Deployment, with the component in a kustomization around the guide's."""
    tree = folder / "llm-d"
    shutil.copytree(FOLDER / "llm-d/guides", tree / "guides")
    guide = tree / "guides/optimized-baseline/modelserver/gpu/vllm/base"
    own = yaml.safe_load((guide / "patch-vllm.yaml").read_text())
    _container(own)["args"] += [*SEQS, f"--speculative-config={drafting}"]
    (guide / "patch-vllm.yaml").write_text(yaml.safe_dump(own))
    before = _deployment(kustomized(guide), "-decode")
    attachment = _attachment(host_of(DEPLOYMENT, before, None))
    component = kustomize_component(attachment.host, to_yaml([workload_patch(attachment)])[4:])
    around = {"resources": [os.path.relpath(guide, tree / "around")], "components": ["../fathom"]}
    for name, kustomization in {"fathom": component, "around": around}.items():
        (tree / name).mkdir()
        (tree / name / "kustomization.yaml").write_text(to_yaml([kustomization]))
    after = _deployment(kustomized(tree / "around"), "-decode")
    return _patched(before, attachment, after, _read(component), (before, after))


# -- tools


def _added(own: Any, ours: Any) -> Any:
    """Values with more: lists behind each other, as whoever adds entries does it."""
    if isinstance(own, dict) and isinstance(ours, dict):
        both = {key: _added(own[key], ours[key]) if key in own else ours[key] for key in ours}
        return own | both
    return own + ours if isinstance(own, list) and isinstance(ours, list) else ours


def _attachment(host: Host) -> Attachment:
    return Attachment(host=host, startup=startup_of(host.engine), tuner="qwen", plugin=PLUGIN)


def _read(manifest: Mapping[str, Any]) -> Any:
    return yaml.safe_load(to_yaml([manifest]))


def _pod(template: Mapping[str, Any]) -> Object:
    metadata = {**template.get("metadata", {}), "name": "qwen-0", "namespace": "llm"}
    return copy.deepcopy({"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata})


def _deployment(made: Sequence[Object], ending: str) -> Object:
    (found,) = (
        each
        for each in made
        if each["kind"] == "Deployment" and each["metadata"]["name"].endswith(ending)
    )
    found["metadata"].setdefault("namespace", "llm")
    result: Object = found
    return result


def _spec(manifest: Mapping[str, Any]) -> Object:
    """The spec of a pod, or of the template of one."""
    result: Object = manifest["spec"].get("template", manifest)["spec"]
    return result


def _container(manifest: Mapping[str, Any]) -> Object:
    result: Object = _spec(manifest)["containers"][0]
    return result


def _patched(
    before: Object,
    attachment: Attachment,
    after: Object,
    printed: Object,
    written: tuple[Object, Object],
) -> Patched:
    return Patched(
        before=_container(before),
        attachment=attachment,
        after=_container(after),
        volumes=_spec(after)["volumes"],
        printed=printed,
        written=written,
    )
