"""The bundle for OperatorHub says what the chart and the CRD say, as `operator-sdk` wants it said.

`operator-sdk bundle validate` itself is no part of this: what it asks of a bundle like this one is
asked here. Its source: pkg/validation/internal in github.com/operator-framework/api.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from kubernetes.aio.client import models
from packaging.version import Version

from fathom.api import names
from fathom.api.crd import custom_resource_definition
from fathom.resource import SpeculativeDeployment, parse
from generators import operatorhub
from support.validated import errors

Render = Callable[[Mapping[str, Any]], dict[tuple[str, str], Any]]
"""Values in, manifests by kind and name out."""

CATEGORIES = {
    *("AI/Machine Learning", "Application Runtime", "Big Data", "Cloud Provider"),
    *("Developer Tools", "Database", "Integration & Delivery", "Logging & Tracing"),
    *("Modernization & Migration", "Monitoring", "Networking", "OpenShift Optional"),
    *("Security", "Storage", "Streaming & Messaging"),
}
CAPABILITIES = {
    *("Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"),
}
MOST_BYTES = 1 << 20
"""A bundle is kept in one ConfigMap while it is installed."""


@pytest.fixture(scope="module")
def folder(root: Path) -> Path:
    return root / "packaging" / "operatorhub"


@pytest.fixture(scope="module")
def csv(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(
        (folder / "manifests" / "fathom.clusterserviceversion.yaml").read_text()
    )
    return found


def test_it_is_what_the_chart_and_the_crd_make_of_it(folder: Path) -> None:
    there = {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*.yaml")
        if path.is_file()
    }
    assert there == dict(operatorhub.bundle()), "Run: make regenerate"
    assert sum(map(len, there.values())) < MOST_BYTES


def test_a_kind_that_the_chart_makes_unasked_is_told_of() -> None:
    with pytest.raises(operatorhub.LocalClusterError, match="The chart makes a Secret"):
        operatorhub._know_all([{"kind": "Secret"}, {"kind": "Service"}])


def test_the_annotations_name_the_folders_that_are_there(folder: Path) -> None:
    found = yaml.safe_load((folder / "metadata" / "annotations.yaml").read_text())["annotations"]
    bundle = {name.removeprefix("operators.operatorframework.io.bundle."): value
              for name, value in found.items()}  # fmt: skip
    assert bundle["mediatype.v1"] == "registry+v1"
    assert (folder / bundle["manifests.v1"]).is_dir()
    assert (folder / bundle["metadata.v1"]).is_dir()
    assert bundle["channel.default.v1"] in bundle["channels.v1"].split(",")
    assert bundle["package.v1"] == "fathom"


def test_what_people_read_first_is_all_there(csv: dict[str, Any]) -> None:
    spec, told = csv["spec"], csv["metadata"]["annotations"]
    assert csv["metadata"]["name"] == f"{operatorhub.PACKAGE}.v{Version(spec['version'])}"
    assert told["categories"] in CATEGORIES
    assert told["capabilities"] in CAPABILITIES
    assert re.fullmatch(r"\d+\.\d+\.\d+", spec["minKubeVersion"])
    assert spec["provider"]["name"]
    assert all("@" in each["email"] and each["name"] for each in spec["maintainers"])
    assert all(each["url"].startswith("https://") and each["name"] for each in spec["links"])
    (icon,) = spec["icon"]
    assert icon["mediatype"] == "image/svg+xml"
    assert ET.fromstring(base64.b64decode(icon["base64data"])).tag.endswith("svg")
    assert "](" in spec["description"]
    assert not re.search(r"\]\((?!https://)", spec["description"]), "a link that leads nowhere"


def test_one_operator_serves_all_namespaces(csv: dict[str, Any]) -> None:
    modes = {each["type"]: each["supported"] for each in csv["spec"]["installModes"]}
    assert modes == {
        "OwnNamespace": False,
        "SingleNamespace": False,
        "MultiNamespace": False,
        "AllNamespaces": True,
    }


@pytest.mark.parametrize("kind", [names.KIND, names.TUNER_KIND])
def test_each_kind_that_is_owned_has_its_crd_beside_it(
    kind: str, csv: dict[str, Any], folder: Path
) -> None:
    listed = csv["spec"]["customresourcedefinitions"]["owned"]
    (owned,) = [each for each in listed if each["kind"] == kind]
    crd: dict[str, Any] = custom_resource_definition(kind)
    file = folder / "manifests" / operatorhub.CRD_FILES[kind]
    assert yaml.safe_load(file.read_text()) == crd
    assert owned["name"] == crd["metadata"]["name"]
    (version,) = crd["spec"]["versions"]
    assert owned["version"] == version["name"]
    for part in ("spec", "status"):
        for each in owned[f"{part}Descriptors"]:
            field = version["schema"]["openAPIV3Schema"]["properties"][part]
            for name in each["path"].split("."):
                field = field["properties"][name]
            assert each["description"] == field["description"]
            assert each["description"]


def test_the_examples_are_those_of_the_repository_and_valid(
    csv: dict[str, Any], root: Path
) -> None:
    shown = json.loads(csv["metadata"]["annotations"]["alm-examples"])
    files = [root / "examples" / name for name in operatorhub.EXAMPLES]
    assert shown == [yaml.safe_load(file.read_text()) for file in files]
    for manifest in shown:
        sd = parse(manifest)
        assert isinstance(sd, SpeculativeDeployment)
        assert errors(sd) == ()


def test_it_may_do_what_the_chart_lets_it_and_nothing_else(
    csv: dict[str, Any], render: Render
) -> None:
    chart, install = render({}), csv["spec"]["install"]["spec"]
    account = chart["ServiceAccount", "fathom"]["metadata"]["name"]
    for part, kind in (("clusterPermissions", "ClusterRole"), ("permissions", "Role")):
        (granted,) = install[part]
        assert granted == {
            "serviceAccountName": account,
            "rules": chart[kind, "fathom"]["rules"],
        }


def test_it_runs_the_pod_that_the_chart_runs(csv: dict[str, Any], render: Render) -> None:
    """As whom the cluster chooses: the manager installs on OpenShift, too."""
    chart = render({"fixedUser": False})["Deployment", "fathom"]
    (deployment,) = csv["spec"]["install"]["spec"]["deployments"]
    assert deployment["name"] == chart["metadata"]["name"]
    pod, theirs = deployment["spec"]["template"], chart["spec"]["template"]
    assert pod["spec"] == theirs["spec"]
    assert {*theirs["metadata"]["labels"]} - {*pod["metadata"]["labels"]} == {
        "helm.sh/chart",
        "app.kubernetes.io/managed-by",
    }
    selected = deployment["spec"]["selector"]["matchLabels"]
    assert selected.items() <= pod["metadata"]["labels"].items()
    assert models.V1DeploymentSpec.model_validate(deployment["spec"])
    (container,) = pod["spec"]["containers"]
    assert csv["metadata"]["annotations"]["containerImage"] == container["image"]


def test_what_lies_beside_it_names_no_release_of_helm_s(folder: Path) -> None:
    beside = [
        path
        for path in (folder / "manifests").iterdir()
        if path.name not in {"fathom.clusterserviceversion.yaml", *operatorhub.CRD_FILES.values()}
    ]
    assert beside
    for path in beside:
        manifest = yaml.safe_load(path.read_text())
        assert "namespace" not in manifest["metadata"]
        assert "helm" not in path.read_text().lower()
