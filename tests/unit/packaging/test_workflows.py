"""What runs elsewhere when somebody pushes: nothing here can run it, so its text is judged."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from local_cluster.control_plane.release import VERSION as DOWNLOADED_KUBERNETES
from support.pages import commands
from support.waiting import GUARD_S

WORKFLOWS = ("ci.yaml", "release.yaml")
PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
ATTESTS = {"id-token": "write", "attestations": "write"}
OWNS_CHECKOUT = 'git config --global --add safe.directory "$GITHUB_WORKSPACE"'
ENGINE, OLDEST_ENGINE = "fathom local engine", "local_cluster.engine.environment"
CLUSTER, BROWSER = "fathom local build", "prerequisites.sh browser"
SET_UP: dict[str, set[str]] = {
    "light": set(),
    "storms": set(),
    "cluster": {CLUSTER, BROWSER},
    "engine": {ENGINE, OLDEST_ENGINE},
    "e2e": {CLUSTER, ENGINE},
}
"""Set-up of each tier, besides the Python environment."""


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


def minor(version: str) -> str:
    major, minor, *_ = version.split(".")
    return f"{major}.{minor}"


def released(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def make_calls(job: dict[str, Any]) -> list[list[str]]:
    """What make is given in each cell of a job's matrix. A job calls nothing else."""
    cells: list[dict[str, str]] = [{}]
    for axis, values in job.get("strategy", {}).get("matrix", {}).items():
        assert all(isinstance(value, str) for value in values), (
            f"{axis}: without quotes 1.30 is 1.3"
        )
        cells = [cell | {axis: value} for cell in cells for value in values]
    called = []
    for command in (step["run"] for step in job["steps"] if "run" in step):
        if command == OWNS_CHECKOUT:
            continue
        for cell in cells:
            filled = re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda each: cell[each[1]], command)  # noqa: B023
            program, *arguments = shlex.split(filled)
            assert program == "make", command
            called.append(arguments)
    assert called
    return called


def planned(root: Path, *arguments: str) -> list[str]:
    """The commands that make would run, but for those that call make again."""
    # As if typed: not with what the make around the tests was given.
    ours = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "ARGS", "KUBERNETES"}
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", *arguments],
        cwd=root,
        env={name: value for name, value in os.environ.items() if name not in ours},
        check=True,
        capture_output=True,
        text=True,
        timeout=GUARD_S,
    )
    lines = [line.strip() for line in done.stdout.replace("\\\n", "").splitlines()]
    return [line for line in lines if not re.search(r"(?:^|\s)make\s", line)]


def tier_jobs(folder: Path) -> dict[str, dict[str, Any]]:
    """The jobs that run tests, and not what only builds, or types a page."""
    jobs = workflow(folder, "ci.yaml")["jobs"]
    return {name: job for name, job in jobs.items() if name not in {"image", "kind"}}


def matrix(folder: Path, axis: str) -> dict[str, set[str]]:
    """Versions of each job that has the axis."""
    found = {}
    for name, job in tier_jobs(folder).items():
        if axis in (axes := job.get("strategy", {}).get("matrix", {})):
            found[name] = set(axes[axis])
    return found


def tiers(root: Path) -> list[str]:
    (line,) = re.findall(r"^TIERS := (.+)$", (root / "Makefile").read_text(), re.MULTILINE)
    return list(line.split())


def test_a_job_types_the_whole_page_about_kind(folder: Path, root: Path) -> None:
    """The rest of the page is typed in tests/e2e/test_on_kind.py, too."""
    job = workflow(folder, "ci.yaml")["jobs"]["kind"]
    *_, prints, types = (step["run"] for step in job["steps"] if "run" in step)
    told = subprocess.run(
        [sys.executable, "-m", "support.pages", "docs/kind.md"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"tests{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        check=True,
        capture_output=True,
        text=True,
        timeout=GUARD_S,
    ).stdout

    assert prints == "PYTHONPATH=tests .venv/bin/python -m support.pages docs/kind.md > typed.sh"
    assert types.endswith("bash -eux typed.sh")
    shown = [str(each) for each in commands(root / "docs" / "kind.md") if not each.inline]
    assert told.splitlines() == shown


def test_what_lands_passes_make_test(root: Path) -> None:
    (own,) = re.findall(r"^exec (.+)$", (root / ".ci/run").read_text(), re.MULTILINE)
    assert own == "make test"


def test_each_tier_has_a_job_that_runs_what_a_user_would_type(folder: Path, root: Path) -> None:
    assert list(tier_jobs(folder)) == tiers(root)
    for tier, job in tier_jobs(folder).items():
        for arguments in make_calls(job):
            steps = planned(root, *arguments)
            assert [step for step in steps if "maintenance.tier " in step] == steps[-1:]
            assert f"maintenance.tier {tier} " in steps[-1]


@pytest.mark.parametrize("tier", SET_UP)
def test_a_tier_sets_up_what_it_needs_and_no_more(root: Path, tier: str) -> None:
    assert list(SET_UP) == tiers(root)
    before = planned(root, f"tier-{tier}")[:-1]
    found = {part for part in set().union(*SET_UP.values()) for step in before if part in step}
    assert found == SET_UP[tier]


def test_together_the_jobs_run_all_that_make_test_runs(folder: Path, root: Path) -> None:
    done = {
        step
        for job in tier_jobs(folder).values()
        for arguments in make_calls(job)
        for step in planned(root, *arguments)
    }
    wanted = planned(root, "test")
    assert any("maintenance.tier" in step for step in wanted)
    assert [step for step in wanted if step not in done] == []


def test_they_run_on_each_python_that_the_package_names(folder: Path, root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert project["requires-python"] == f">={named[0]}"
    run = matrix(folder, "python")
    assert "light" in run
    for job, versions in run.items():
        assert sorted(map(minor, versions), key=released) == named, job


def test_what_runs_on_one_python_runs_on_that_of_the_operators_image(
    folder: Path, root: Path
) -> None:
    dockerfile = (root / "images/operator/Dockerfile").read_text()
    (of_the_image,) = set(re.findall(r"^FROM python:([\d.]+)-slim-\w+", dockerfile, re.MULTILINE))
    run = matrix(folder, "python")
    for name, job in tier_jobs(folder).items():
        image = job["container"]["image"]
        if name in run:
            assert image == "python:${{ matrix.python }}-bookworm"
            assert of_the_image in run[name]
        else:
            assert image == f"python:{of_the_image}-bookworm", name


def test_the_cluster_is_each_end_of_what_is_supported_and_what_users_get(
    folder: Path, root: Path
) -> None:
    page = (root / "docs/requirements.md").read_text()
    ((oldest, newest),) = re.findall(r"^Supported are (\d\.\d+) to (\d\.\d+)\.", page, re.MULTILINE)
    run = matrix(folder, "kubernetes")
    assert list(run) == ["cluster"]
    minors = {released(minor(version)) for version in run["cluster"]}
    assert (min(minors), max(minors)) == (released(oldest), released(newest))
    assert DOWNLOADED_KUBERNETES in run["cluster"]
    asked = {
        step.rpartition("fathom local build --version ")[2]
        for arguments in make_calls(tier_jobs(folder)["cluster"])
        for step in planned(root, *arguments)
        if "fathom local build" in step
    }
    assert asked == run["cluster"]


def test_no_job_waits_for_hours(folder: Path) -> None:
    for name, job in workflow(folder, "ci.yaml")["jobs"].items():
        assert job["timeout-minutes"] <= 60, name


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
