from pathlib import Path

import pytest
import yaml

from fathom.api.resource import SpeculativeDeployment, parse

GITOPS = Path(__file__).parents[3] / "examples" / "gitops"


@pytest.mark.parametrize("path", sorted(GITOPS.rglob("*.yaml")), ids=lambda path: path.name)
def test_parses(path: Path) -> None:
    assert list(yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("path", sorted((GITOPS / "models").glob("*.yaml")), ids=lambda p: p.name)
def test_models_are_valid(path: Path) -> None:
    for manifest in yaml.safe_load_all(path.read_text()):
        assert isinstance(parse(manifest), SpeculativeDeployment)


@pytest.mark.parametrize("name", ["application-operator", "application-models"])
def test_applications_point_at_what_exists(root: Path, name: str) -> None:
    application = yaml.safe_load((GITOPS / "argocd" / f"{name}.yaml").read_text())
    assert application["kind"] == "Application"
    assert (root / application["spec"]["source"]["path"]).is_dir()


def test_replicas_stay_with_the_autoscaler() -> None:
    application = yaml.safe_load((GITOPS / "argocd" / "application-models.yaml").read_text())
    assert application["spec"]["ignoreDifferences"] == [
        {
            "group": "fathom.dev",
            "kind": "SpeculativeDeployment",
            "jsonPointers": ["/spec/replicas"],
        }
    ]
    assert "RespectIgnoreDifferences=true" in application["spec"]["syncPolicy"]["syncOptions"]
