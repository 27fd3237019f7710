"""What docs/security.md promises of its manifests holds for the pods they become."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from fathom.engine.plugin import PluginBundle
from fathom.manifests.pod_template import pod_template
from fathom.resource import SpeculativeDeployment, parse
from support.pod_security import below_baseline, below_restricted
from support.validated import errors

PAGE: Final = (Path(__file__).parents[3] / "docs" / "security.md").read_text(encoding="utf-8")
MANIFESTS: Final = [
    yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
]
USER, WRITABLE, RDMA, API_KEY = MANIFESTS


def pod(manifest: dict[str, Any]) -> dict[str, Any]:
    sd = parse(manifest)
    assert isinstance(sd, SpeculativeDeployment)
    assert errors(sd) == ()
    return pod_template(sd, revision="abcd0123", bundle=PluginBundle({}, "abc"))["spec"]  # type: ignore[return-value]


@pytest.mark.parametrize("manifest", [USER, WRITABLE])
def test_these_are_restricted(manifest: dict[str, Any]) -> None:
    assert below_restricted(pod(manifest)) == []


def test_only_the_first_has_a_root_filesystem_that_nobody_writes_to() -> None:
    read_only = [
        pod(manifest)["containers"][0]["securityContext"].get("readOnlyRootFilesystem", False)
        for manifest in MANIFESTS
    ]

    assert read_only == [True, False, False, False]


def test_a_capability_is_all_that_rdma_adds() -> None:
    assert below_baseline(pod(RDMA)) == ["IPC_LOCK"]


def test_an_engine_with_a_key_has_it_from_its_secret() -> None:
    (container,) = pod(API_KEY)["containers"]

    assert {
        "name": "VLLM_API_KEY",
        "valueFrom": {"secretKeyRef": {"name": "kimi-k2-key", "key": "key"}},
    } in container["env"]


def test_the_variables_that_are_refused_are_those_of_the_page() -> None:
    (row,) = re.findall(r"^\| (.+) with a `value` \|", PAGE, re.MULTILINE)

    for name in re.findall(r"`(\w+)`", row):
        sd = parse(
            {
                **API_KEY,
                "spec": {
                    **API_KEY["spec"],
                    "engine": {
                        **API_KEY["spec"]["engine"],
                        "env": [{"name": name, "value": "secret"}],
                    },
                },
            }
        )
        assert isinstance(sd, SpeculativeDeployment)
        assert [problem.field for problem in errors(sd)] == ["spec.engine.env[0]"]
