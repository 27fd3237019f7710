"""What runs elsewhere when somebody pushes: nothing here can run it, so its text is judged."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.waiting import GUARD_S

WORKFLOWS = ("ci.yaml", "release.yaml")
PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
ATTESTS = {"id-token": "write", "attestations": "write"}


@pytest.fixture(scope="module")
def folder(root: Path) -> Path:
    return root / ".github" / "workflows"


def workflow(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((folder / name).read_text())
    return found


def test_zizmor_finds_no_fault(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == sorted(WORKFLOWS)
    done = subprocess.run(
        [Path(sys.executable).with_name("zizmor"), "--offline", "--no-config", "-q", folder],
        check=False,
        capture_output=True,
        text=True,
        timeout=GUARD_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned_to_a_commit_and_say_of_which_version(folder: Path, name: str) -> None:
    used = re.findall(r"uses: .*", (folder / name).read_text())
    assert used
    assert [each for each in used if not PINNED.fullmatch(each)] == []


def test_what_is_pushed_must_pass_what_lands_here(folder: Path, root: Path) -> None:
    steps = workflow(folder, "ci.yaml")["jobs"]["test"]["steps"]
    (own,) = re.findall(r"^exec (.+)$", (root / ".ci/run").read_text(), re.MULTILINE)
    assert steps[-1] == {"run": own}


def test_only_jobs_of_a_release_may_write_and_each_attests(folder: Path) -> None:
    assert workflow(folder, "ci.yaml")["permissions"] == {"contents": "read"}
    release = workflow(folder, "release.yaml")
    assert release["permissions"] == {}
    for name, job in release["jobs"].items():
        assert job["permissions"].items() >= ATTESTS.items(), name
        assert any(step.get("uses", "").startswith("actions/attest@") for step in job["steps"])


def test_what_is_published_is_what_the_chart_installs(folder: Path, root: Path) -> None:
    release = workflow(folder, "release.yaml")
    values = yaml.safe_load((root / "charts/fathom/values.yaml").read_text())
    assert release["env"]["IMAGE"] == values["image"]["repository"]
    (built,) = [step for step in release["jobs"]["image"]["steps"] if step.get("id") == "push"]
    assert built["with"]["file"] == "images/operator/Dockerfile"
    assert built["with"]["platforms"] == "linux/amd64,linux/arm64"
    assert built["with"]["build-args"].startswith("SOURCE_DATE_EPOCH=")
    (pushed,) = [step for step in release["jobs"]["chart"]["steps"] if step.get("id") == "push"]
    assert "'.image.digest = strenv(DIGEST)'" in pushed["run"]
    assert values["image"]["digest"] == ""


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_pipe_fails_with_the_command_that_feeds_it(folder: Path, name: str) -> None:
    """GitHub sets pipefail where a step names `bash` as its shell, not where it is the default."""
    content = workflow(folder, name)
    everywhere = content.get("defaults", {}).get("run", {}).get("shell")
    for job in content["jobs"].values():
        for step in job["steps"]:
            assert " | " not in step.get("run", "") or step.get("shell", everywhere) == "bash"


def test_one_version_stands_everywhere(root: Path) -> None:
    (version,) = re.findall(
        r'^version = "(.+)"$', (root / "pyproject.toml").read_text(), re.MULTILINE
    )
    chart = yaml.safe_load((root / "charts/fathom/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
