"""The examples for Argo CD and Flux: that they name what is there, in an order that works."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from cel_expr_python import cel

from fathom.api import names
from fathom.resource import SpeculativeDeployment, parse
from local_cluster.helm import Helm, Release

GITOPS = Path(__file__).parents[3] / "examples" / "gitops"
HEALTH = GITOPS / "argocd/resource_customizations" / names.GROUP / names.KIND
CASES = yaml.safe_load((HEALTH / "health_test.yaml").read_text())["tests"]
WAVE = "argocd.argoproj.io/sync-wave"


def documents(path: str) -> list[Any]:
    return [*yaml.safe_load_all((GITOPS / path).read_text())]


def flux(kind: str, name: str) -> Any:
    found = documents("flux/fathom.yaml") + documents("flux/operator/helm-release.yaml")
    (one,) = [each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return one


@pytest.mark.parametrize("path", sorted(GITOPS.rglob("*.yaml")), ids=lambda path: path.name)
def test_parses(path: Path) -> None:
    assert list(yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("path", sorted((GITOPS / "models").glob("*.yaml")), ids=lambda p: p.name)
def test_models_are_valid(path: Path) -> None:
    for manifest in yaml.safe_load_all(path.read_text()):
        assert isinstance(parse(manifest), SpeculativeDeployment)


@pytest.mark.parametrize("name", ["application-operator", "application-models", "root"])
def test_applications_point_at_what_exists(root: Path, name: str) -> None:
    (application,) = documents(f"argocd/{name}.yaml")
    assert application["kind"] == "Application"
    assert (root / application["spec"]["source"]["path"]).is_dir()


def test_the_root_applies_the_operator_before_the_models() -> None:
    (root,) = documents("argocd/root.yaml")
    included = sorted((GITOPS / "argocd").glob(root["spec"]["source"]["directory"]["include"]))
    waves = {
        each["metadata"]["name"]: int(each["metadata"]["annotations"][WAVE])
        for path in included
        for each in yaml.safe_load_all(path.read_text())
    }

    assert waves == {"fathom": 0, "fathom-models": 1}


def test_replicas_stay_with_the_autoscaler() -> None:
    (application,) = documents("argocd/application-models.yaml")
    assert application["spec"]["ignoreDifferences"] == [
        {
            "group": "fathom.dev",
            "kind": "SpeculativeDeployment",
            "jsonPointers": ["/spec/replicas"],
        }
    ]
    assert "RespectIgnoreDifferences=true" in application["spec"]["syncPolicy"]["syncOptions"]


def test_flux_applies_the_operator_before_the_models(root: Path) -> None:
    operator, models = (
        flux("Kustomization", name)["spec"] for name in ("fathom-operator", "fathom-models")
    )
    source = flux("GitRepository", "fathom")["metadata"]["name"]

    assert models["dependsOn"] == [{"name": "fathom-operator"}]
    assert operator["wait"]
    for each in (operator, models):
        assert each["sourceRef"] == {"kind": "GitRepository", "name": source}
        assert (root / each["path"]).is_dir()


def test_flux_installs_the_chart_where_its_namespace_is(helm: Helm, root: Path) -> None:
    release = flux("HelmRelease", "fathom")["spec"]
    made = {each["metadata"]["name"] for each in documents("flux/operator/namespaces.yaml")}
    chart = root / release["chart"]["spec"]["chart"]
    models = flux("Kustomization", "fathom-models")["spec"]

    assert {release["targetNamespace"], models["targetNamespace"]} == made
    asked = Release(chart, release["releaseName"], release["targetNamespace"], release["values"])
    assert "replicas: 2" in helm.template(asked)


@pytest.mark.parametrize("case", CASES, ids=lambda case: Path(case["inputPath"]).stem)
def test_flux_sees_the_health_that_argo_cd_sees(case: dict[str, Any]) -> None:
    """Suspended is no word of Flux's; of what is being deleted Flux does not ask."""
    manifest = yaml.safe_load((HEALTH / case["inputPath"]).read_text())
    seen = case["healthStatus"]["status"]
    if "deletionTimestamp" in manifest["metadata"]:
        assert seen == "Progressing"
        return
    told = flux_health(manifest)
    assert (told == "failed") == (seen == "Degraded")
    assert told == "current" or seen in {"Degraded", "Progressing"}


def flux_health(manifest: dict[str, Any]) -> str:
    """The first expression that holds, as Flux asks them; empty: it waits."""
    (check,) = flux("Kustomization", "fathom-models")["spec"]["healthCheckExprs"]
    environment = cel.NewEnv(variables={"status": cel.Type.DYN, "metadata": cel.Type.DYN})
    data = {"metadata": manifest["metadata"], "status": manifest.get("status", {})}
    for name in ("inProgress", "failed", "current"):
        try:
            answer = environment.compile(check[name]).eval(data=data).value()
        except Exception:  # noqa: BLE001  # a field that is not there yet: Flux waits
            return ""
        if answer is True:
            return name
    return ""


def test_flux_checks_the_kind_that_there_is() -> None:
    (check,) = flux("Kustomization", "fathom-models")["spec"]["healthCheckExprs"]
    assert (check["apiVersion"], check["kind"]) == (names.API_VERSION, names.KIND)
