"""The health check for Argo CD, run by a real Lua of the version that Argo CD embeds."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa import lua51

from fathom.api import names
from fathom.api.conditions import ConditionType, Reason

FOLDER = (
    Path(__file__).parents[3]
    / "examples/gitops/argocd/resource_customizations"
    / names.GROUP
    / names.KIND
)
CHECK = (FOLDER / "health.lua").read_text()
APPLICATION = "resource.customizations.health.argoproj.io_Application"
CASES = yaml.safe_load((FOLDER / "health_test.yaml").read_text())["tests"]


def health(manifest: dict[str, Any], check: str = CHECK) -> dict[str, str]:
    lua = lua51.LuaRuntime(unpack_returned_tuples=True)
    lua.globals()["obj"] = lua.table_from(manifest, recursive=True)
    return dict(lua.execute(check))


@pytest.mark.parametrize("case", CASES, ids=lambda case: Path(case["inputPath"]).stem)
def test_health(case: dict[str, Any]) -> None:
    manifest = yaml.safe_load((FOLDER / case["inputPath"]).read_text())
    assert health(manifest) == case["healthStatus"]


def test_every_input_is_tested() -> None:
    inputs = {f"testdata/{path.name}" for path in (FOLDER / "testdata").iterdir()}
    assert inputs == {case["inputPath"] for case in CASES}


def test_inputs_speak_the_operator_s_words() -> None:
    for case in CASES:
        manifest = yaml.safe_load((FOLDER / case["inputPath"]).read_text())
        for condition in manifest.get("status", {}).get("conditions", []):
            assert condition["type"] in set(ConditionType)
            assert condition["reason"] in set(Reason)


def test_configmap_embeds_the_same_check(root: Path) -> None:
    patch = yaml.safe_load((root / "examples/gitops/argocd/argocd-cm.yaml").read_text())
    key = "resource.customizations.health"
    assert patch.keys() == {"data"}
    assert patch["data"].keys() == {f"{key}.{names.GROUP}_{names.KIND}", APPLICATION}
    assert patch["data"][f"{key}.{names.GROUP}_{names.KIND}"] == CHECK


@pytest.mark.parametrize(
    ("status", "seen"),
    [
        (None, "Progressing"),
        ({}, "Progressing"),
        ({"health": {"status": "Healthy"}}, "Healthy"),
        ({"health": {"status": "Degraded"}}, "Degraded"),
    ],
)
def test_the_models_wait_for_a_healthy_operator(
    root: Path, status: dict[str, Any] | None, seen: str
) -> None:
    patch = yaml.safe_load((root / "examples/gitops/argocd/argocd-cm.yaml").read_text())
    application = {"status": status} if status is not None else {}
    assert health(application, patch["data"][APPLICATION])["status"] == seen
