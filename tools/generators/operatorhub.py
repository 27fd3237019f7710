"""Writes the bundle for OperatorHub (packaging/operatorhub) from the chart, the CRD and the README.

`python -m generators.operatorhub FOLDER`, as `make regenerate` does. What the operator may
do, how its pod runs and which image it has is what Helm makes of the chart, so that the Operator
Lifecycle Manager installs what Helm installs. Why it is so: docs/design/0038.
"""

import base64
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from fathom.adapters.yaml_documents import to_yaml
from fathom.api import names
from fathom.api.crd import custom_resource_definition
from local_cluster.errors import LocalClusterError
from local_cluster.helm import Release, find_helm
from local_cluster.kube import Object

REPOSITORY: Final = Path(__file__).parents[2]
CHART: Final = REPOSITORY / "charts" / "fathom"
ICON: Final = REPOSITORY / "packaging" / "operatorhub" / "icon.svg"
CRD_FILES: Final = {
    names.KIND: f"{names.GROUP}_{names.PLURAL}.yaml",
    names.TUNER_KIND: f"{names.GROUP}_{names.TUNER_PLURAL}.yaml",
}
PACKAGE: Final = "fathom"
CHANNEL: Final = "candidate"
SOURCE: Final = "https://github.com/fathom-dev/fathom"
EXAMPLES: Final = (
    "kimi-k2.6-gb200.yaml",
    "llama-3.3-70b-h100.yaml",
    "glm-4.5-air-mtp-h200.yaml",
    "qwen-coder-ngram-h100.yaml",
)
"""Files in `examples`: one of each kind of draft."""
_NAMESPACE: Final = "fathom-system"
_VALUES: Final = {"fixedUser": False}
"""A bundle has no values, and the manager is what installs on OpenShift, which chooses the user."""
_OF_THE_MANAGER: Final = frozenset({"CustomResourceDefinition", "ServiceAccount", "Deployment"})
"""Kinds of the chart that the manager makes from the ClusterServiceVersion, or from the CRD."""
_AS_THEY_ARE: Final = frozenset({"Service", "PodDisruptionBudget"})
"""Kinds of the chart that a bundle may hold beside it."""
_RIGHTS: Final = frozenset({"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"})
_OF_HELM: Final = ("helm.sh/chart", "app.kubernetes.io/managed-by")


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A field that a console shows by itself."""

    path: str
    """Within the spec or the status."""
    title: str
    widget: str = ""
    """Widget by the console's own name, such as podCount; empty: text."""


SPEC: Final = (
    Descriptor("replicas", "Replicas", "urn:alm:descriptor:com.tectonic.ui:podCount"),
    Descriptor("model.id", "Model"),
    Descriptor("draft.id", "Draft"),
    Descriptor("speculation.tokens", "Speculative tokens"),
    Descriptor("speculation.tuning.mode", "Tuning mode"),
    Descriptor("engine.image", "vLLM image"),
    Descriptor("engine.tensorParallelSize", "GPUs of a replica"),
    Descriptor("nodePool.accelerator", "Accelerator"),
)
STATUS: Final = (
    Descriptor("conditions", "Conditions", "urn:alm:descriptor:io.kubernetes.conditions"),
    Descriptor("ready", "Ready replicas"),
    Descriptor("reason", "What to know first"),
    Descriptor("depth.summary", "Depth in force"),
    Descriptor("measured.acceptanceLength", "Acceptance length"),
    Descriptor("measured.gainPercent", "Gain over your tokens, percent"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A kind that the operator brings, for consoles."""

    kind: str
    title: str
    spec: Sequence[Descriptor]
    status: Sequence[Descriptor]
    resources: Sequence[str]
    """Kinds of what is made for it."""


OWNED: Final = (
    Owned(
        kind=names.KIND,
        title="Speculative deployment",
        spec=SPEC,
        status=STATUS,
        resources=("Deployment", "Service", "ConfigMap"),
    ),
    Owned(
        kind=names.TUNER_KIND,
        title="Speculation tuner",
        spec=(
            Descriptor("tokens", "Speculative tokens"),
            Descriptor("tuning.mode", "Tuning mode"),
        ),
        status=(
            Descriptor("conditions", "Conditions", "urn:alm:descriptor:io.kubernetes.conditions"),
            Descriptor("readable", "Readable pods"),
            Descriptor("level", "What can be done"),
            Descriptor("reason", "What to know first"),
            Descriptor("depth.summary", "Depth in force"),
            Descriptor("measured.acceptanceLength", "Acceptance length"),
        ),
        resources=("ConfigMap",),
    ),
)


def bundle() -> Mapping[str, str]:
    """Every generated file of the bundle, by its path there.

    Raises:
        LocalClusterError: Helm refuses the chart, or the chart has a kind that nobody placed here.
    """
    text = find_helm().template(Release(CHART, PACKAGE, _NAMESPACE, _VALUES))
    objects: list[Object] = [each for each in yaml.safe_load_all(text) if each]
    _know_all(objects)
    manifests = {
        f"{PACKAGE}.clusterserviceversion.yaml": _cluster_service_version(objects),
        **{file: custom_resource_definition(kind) for kind, file in CRD_FILES.items()},
    }
    for each in objects:
        if each["kind"] in _AS_THEY_ARE:
            name = f"{each['metadata']['name']}_{each['kind'].lower()}.yaml"
            manifests[name] = each | {"metadata": _without_the_release(each["metadata"])}
    written = {f"manifests/{name}": to_yaml([each]) for name, each in manifests.items()}
    annotations: Object = {"annotations": _ANNOTATIONS}
    return {**written, "metadata/annotations.yaml": to_yaml([annotations])}


_PREFIX: Final = "operators.operatorframework.io.bundle"
_ANNOTATIONS: Final = {
    f"{_PREFIX}.mediatype.v1": "registry+v1",
    f"{_PREFIX}.manifests.v1": "manifests/",
    f"{_PREFIX}.metadata.v1": "metadata/",
    f"{_PREFIX}.package.v1": PACKAGE,
    f"{_PREFIX}.channels.v1": CHANNEL,
    f"{_PREFIX}.channel.default.v1": CHANNEL,
}


def _know_all(objects: Iterable[Object]) -> None:
    strange = {each["kind"] for each in objects} - _OF_THE_MANAGER - _AS_THEY_ARE - _RIGHTS
    if strange:
        raise LocalClusterError(
            f"The chart makes a {', '.join(sorted(strange))} without being asked to: say in "
            f"{Path(__file__).name} what becomes of it in the bundle for OperatorHub."
        )


def _cluster_service_version(objects: Iterable[Object]) -> Object:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    (deployment,) = _of_kind(objects, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    version = chart["version"]
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{PACKAGE}.v{version}",
            "namespace": "placeholder",
            "labels": {
                "operatorframework.io/arch.amd64": "supported",
                "operatorframework.io/arch.arm64": "supported",
                "operatorframework.io/os.linux": "supported",
            },
            "annotations": {
                "alm-examples": json.dumps([_example(file) for file in EXAMPLES], indent=2),
                "capabilities": "Seamless Upgrades",
                "categories": "AI/Machine Learning",
                "containerImage": container["image"],
                "description": chart["description"],
                "repository": SOURCE,
                "support": f"{SOURCE}/issues",
            },
        },
        "spec": {
            "displayName": "Fathom",
            "description": _description(),
            "version": version,
            "maturity": "alpha",
            "minKubeVersion": chart["kubeVersion"].removeprefix(">=").removesuffix("-0"),
            "keywords": chart["keywords"],
            "provider": {"name": "The Fathom authors", "url": SOURCE},
            "maintainers": [
                {
                    "name": "The Fathom authors",
                    "email": "fathom-dev@users.noreply.github.com",
                }
            ],
            "links": [
                {"name": "Documentation", "url": f"{SOURCE}/blob/main/docs/index.md"},
                {"name": "Source", "url": SOURCE},
            ],
            "icon": [
                {
                    "base64data": base64.b64encode(ICON.read_bytes()).decode(),
                    "mediatype": "image/svg+xml",
                }
            ],
            # One operator serves all namespaces: the chart's `namespaces` has no counterpart here.
            "installModes": [
                {"type": kind, "supported": kind == "AllNamespaces"}
                for kind in ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
            ],
            "customresourcedefinitions": {"owned": [_owned(each) for each in OWNED]},
            "install": {
                "strategy": "deployment",
                "spec": {
                    "clusterPermissions": _permissions(objects, "ClusterRole"),
                    "permissions": _permissions(objects, "Role"),
                    "deployments": [
                        {
                            "name": deployment["metadata"]["name"],
                            "label": _without_helm(deployment["metadata"]["labels"]),
                            "spec": _deployment_spec(deployment),
                        }
                    ],
                },
            },
        },
    }


def _owned(owned: Owned) -> Object:
    """A kind as consoles show it, in the words of the CRD."""
    crd: Object = custom_resource_definition(owned.kind)
    (version,) = crd["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    return {
        "name": crd["metadata"]["name"],
        "version": version["name"],
        "kind": crd["spec"]["names"]["kind"],
        "displayName": owned.title,
        "description": schema["description"],
        "resources": [{"kind": each, "version": "v1", "name": ""} for each in owned.resources],
        "specDescriptors": [_described(each, schema, "spec") for each in owned.spec],
        "statusDescriptors": [_described(each, schema, "status") for each in owned.status],
    }


def _described(descriptor: Descriptor, schema: Object, part: str) -> Object:
    field = schema["properties"][part]
    for name in descriptor.path.split("."):
        field = field["properties"][name]
    described = {"path": descriptor.path, "displayName": descriptor.title}
    shown = [descriptor.widget] if descriptor.widget else []
    return described | {"description": field["description"], "x-descriptors": shown}


def _permissions(objects: Iterable[Object], kind: str) -> list[Object]:
    """The rules that each service account of the chart is bound to, by roles of a kind."""
    rules = {each["metadata"]["name"]: each["rules"] for each in _of_kind(objects, kind)}
    return [
        {"serviceAccountName": subject["name"], "rules": rules[each["roleRef"]["name"]]}
        for each in _of_kind(objects, f"{kind}Binding")
        for subject in each["subjects"]
    ]


def _deployment_spec(deployment: Object) -> Object:
    template = deployment["spec"]["template"]
    labels = _without_helm(template["metadata"]["labels"])
    metadata = template["metadata"] | {"labels": labels}
    spec: Object = deployment["spec"] | {"template": template | {"metadata": metadata}}
    return spec


def _without_the_release(metadata: Object) -> Object:
    """Metadata of an object in the namespace that a user of the manager chose."""
    kept = {name: value for name, value in metadata.items() if name != "namespace"}
    return kept | {"labels": _without_helm(metadata["labels"])}


def _without_helm(labels: Object) -> Object:
    return {name: value for name, value in labels.items() if name not in _OF_HELM}


def _of_kind(objects: Iterable[Object], kind: str) -> list[Object]:
    return [each for each in objects if each["kind"] == kind]


def _example(file: str) -> Object:
    text = (REPOSITORY / "examples" / file).read_text(encoding="utf-8")
    found: Object = yaml.safe_load(text)
    return found


def _description() -> str:
    """How the README begins, up to its picture, and where it says what does not work."""
    beginning = (REPOSITORY / "README.md").read_text(encoding="utf-8").partition("\n![")[0]
    text = beginning.removeprefix("# Fathom").strip()
    return (
        f"{text}\n\n"
        "Before you rely on this, read in the "
        f"[README]({SOURCE}#what-does-not-work-yet) what is unproven and what does not work yet.\n"
    )


def main(folder: Path) -> None:
    """Write the bundle; what an earlier one had and this one has not goes."""
    files = bundle()
    for part in ("manifests", "metadata"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for old in (folder / part).iterdir():
            old.unlink()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
