"""The operator's wheel: made of what its image is made of, and installed where nothing else is."""

import json
import os
import shutil
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from hashlib import sha256
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from maintenance import dist
from support.dockerfiles import arguments
from support.waiting import GUARD_S

PACKAGES = {"fathom", "fathom_fetch", "fathom_intake", "fathom_measure", "fathom_vllm"}
"""What the operator is made of."""


def built(root: Path, scratch: Path) -> Path:
    """A wheel made of nothing but what the image's build is sent."""
    context, wheels = scratch / "context", scratch / "wheels"
    context.mkdir()
    for line in arguments(root / "images/operator/Dockerfile", "COPY"):
        *sources, target = line.split()
        if line.startswith("--from="):
            continue
        for source in map(root.joinpath, sources):
            if source.is_dir():
                shutil.copytree(
                    source, context / target, ignore=shutil.ignore_patterns("__pycache__")
                )
            else:
                shutil.copy(source, context / target)
    return dist.build_wheel(context, wheels)


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(root, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment that has the wheel and what it asks for, and nothing else."""
    return dist.install(wheel, tmp_path_factory.mktemp("clean") / "venv")


def test_the_same_sources_make_the_same_wheel(root: Path, wheel: Path, tmp_path: Path) -> None:
    again = built(root, tmp_path)
    assert again.name == wheel.name
    assert sha256(again.read_bytes()).digest() == sha256(wheel.read_bytes()).digest()


def test_it_holds_the_operator_s_packages_and_nothing_else(root: Path, unpacked: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    (info,) = unpacked.glob("*.dist-info")
    assert info.name == f"fathom-{project['version']}.dist-info"
    assert {path.name for path in unpacked.iterdir()} == {*PACKAGES, info.name}
    for package in PACKAGES:
        held = {str(path.relative_to(unpacked)) for path in (unpacked / package).rglob("*.py")}
        sources = (root / "operator" / package).rglob("*.py")
        assert held == {str(path.relative_to(root / "operator")) for path in sources}
    assert (unpacked / "fathom" / "py.typed").is_file()
    page = root / "operator" / "fathom" / "page"
    for brought in (*page.glob("templates/*"), *page.glob("uplot/*")):
        assert (unpacked / "fathom" / "page" / brought.relative_to(page)).is_file()
    metadata = Parser().parsestr((info / "METADATA").read_text())
    required = {Requirement(each) for each in metadata.get_all("Requires-Dist", [])}
    assert required == {Requirement(each) for each in project["dependencies"]}
    assert "Provides-Extra" not in metadata


def typed(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of the environment, by its name, where no checkout is on the path."""
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [python.with_name(words[0]), *words[1:]],
        check=False,
        capture_output=True,
        text=True,
        timeout=GUARD_S,
        cwd=python.parent,
        env={**usual, "COLUMNS": "200", "NO_COLOR": "1"},
    )


def test_the_commands_start_where_nothing_else_is_installed(root: Path, python: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]

    assert typed(python, "fathom", "--version").stdout == f"fathom {project['version']}\n"
    run = typed(python, "fathom", "run", "--help")
    assert (run.returncode, run.stderr) == (0, "")
    assert "--leader-elect" in run.stdout
    assert (
        "Usage: kubectl fathom explain "
        in typed(python, "kubectl-fathom", "explain", "--help").stdout
    )
    example = str(root / "examples/kimi-k2.6-gb200.yaml")
    assert "kind: Deployment" in typed(python, "fathom", "render", "-f", example).stdout


def test_it_brings_no_local_cluster(python: Path) -> None:
    shown = typed(python, "fathom", "--help")
    assert {"render", "check", "run", "top"} <= set(shown.stdout.split())
    assert "local" not in shown.stdout.split()
    refused = typed(python, "fathom", "local", "up")
    assert refused.returncode == 2
    assert "make setup" in refused.stderr


def locked(root: Path) -> dict[str, str]:
    lines = (root / "constraints.txt").read_text().splitlines()
    pins = (line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pins}


def installed(python: Path) -> Iterator[tuple[str, str]]:
    (site,) = python.parents[1].glob("lib/*/site-packages")
    for info in site.glob("*.dist-info"):
        found = Distribution.at(info)
        yield canonicalize_name(found.metadata["Name"]), found.version


def test_each_dependency_has_the_version_of_the_constraints(root: Path, python: Path) -> None:
    found = dict(installed(python))
    version = found.pop("fathom")
    assert version == tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    assert found.items() <= locked(root).items()
    assert "pip" not in found


def test_the_sbom_names_all_that_is_installed(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    file = tmp_path / "sbom.json"
    dist.write_sbom(python, file)
    bom = json.loads(file.read_bytes())
    assert bom["bomFormat"] == "CycloneDX"
    named = {(canonicalize_name(each["name"]), each["version"]) for each in bom["components"]}
    assert named == {each for each in installed(python) if each[0] != "fathom"}
    assert bom["metadata"]["component"]["name"] == "fathom"
    assert all(each["purl"].startswith("pkg:pypi/") for each in bom["components"])
    # Of the sources, not of the day.
    assert bom["metadata"]["timestamp"].startswith("2020-02-02T")
    assert "serialNumber" not in bom
