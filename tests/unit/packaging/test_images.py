"""What of the images can be checked without building them, and the wheel that goes into one."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Callable, Mapping
from email.parser import Parser
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from fathom_vllm import bundle

Render = Callable[[Mapping[str, Any]], dict[tuple[str, str], Any]]
"""Values in, manifests by kind and name out."""

DOCKERFILES = ["images/operator/Dockerfile", "images/vllm/Dockerfile"]


def instructions(path: Path) -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", " ", path.read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def arguments(path: Path, instruction: str) -> list[str]:
    return [rest for name, rest in instructions(path) if name == instruction]


@pytest.mark.parametrize("file", DOCKERFILES)
def test_bases_are_pinned(root: Path, file: str) -> None:
    defaults = dict(line.split("=", 1) for line in arguments(root / file, "ARG"))
    for line in arguments(root / file, "FROM"):
        base = re.sub(r"\$\{(\w+)\}", lambda found: defaults[found[1]], line.split()[0])
        tag = base.partition(":")[2]
        assert re.match(r"v?\d+\.\d+\.\d+", tag), f"{base} is not pinned to a version"


@pytest.mark.parametrize("file", DOCKERFILES)
def test_copied_paths_exist_and_are_sent(root: Path, file: str) -> None:
    sent = (root / f"{file}.dockerignore").read_text().splitlines()
    for line in arguments(root / file, "COPY"):
        if line.startswith("--from="):
            continue
        for source in line.split()[:-1]:
            assert (root / source).exists(), f"{file} copies {source}, which is not there"
            assert f"!{source}" in sent, f"{file}.dockerignore holds {source} back"


@pytest.mark.parametrize("file", DOCKERFILES)
def test_nothing_is_fetched_by_hand(root: Path, file: str) -> None:
    for line in arguments(root / file, "RUN"):
        assert not re.search(r"\b(curl|wget|sudo|git clone)\b", line)
    assert not arguments(root / file, "ADD")


def test_operator_runs_as_the_chart_s_user(root: Path, render: Render) -> None:
    deployment = render({})["Deployment", "fathom"]
    context = deployment["spec"]["template"]["spec"]["securityContext"]
    (user,) = arguments(root / "images/operator/Dockerfile", "USER")
    assert user == f"{context['runAsUser']}:{context['runAsGroup']}"


def test_operator_starts_by_exec(root: Path) -> None:
    (entrypoint,) = arguments(root / "images/operator/Dockerfile", "ENTRYPOINT")
    assert entrypoint == '["fathom"]'


def test_engine_image_is_the_engine_of_the_examples(root: Path) -> None:
    (version,) = arguments(root / "images/vllm/Dockerfile", "ARG")
    tag = version.partition("=")[2]
    model = (root / "examples/gitops/models/kimi-k2.yaml").read_text()
    assert f"image: vllm/vllm-openai:{tag}\n" in model


def test_baked_plugin_is_the_delivered_one(root: Path, tmp_path: Path) -> None:
    script = root / "images/vllm/write_bundle.py"
    environment = {**os.environ, "PYTHONPATH": str(root / "operator")}
    subprocess.run([sys.executable, script, tmp_path], env=environment, check=True, timeout=60)
    written = {
        str(path.relative_to(tmp_path)): path.read_text()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert written == bundle.bundle_files()
    (found,) = distributions(path=[str(tmp_path)])
    (entry,) = found.entry_points
    assert (entry.group, entry.value) == (bundle.STAT_LOGGER_GROUP, bundle.STAT_LOGGER_CLASS)


PACKAGES = {"fathom", "fathom_fetch", "fathom_measure", "fathom_vllm"}
"""What the operator is made of."""


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The operator's wheel, unpacked, made of nothing but what its image is made of."""
    context = tmp_path_factory.mktemp("context")
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
    wheels, unpacked = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("unpacked")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", wheels, context],
        check=True,
        timeout=120,
    )
    (file,) = wheels.glob("*.whl")
    zipfile.ZipFile(file).extractall(unpacked)
    return unpacked


def test_image_installs_the_wheel_of_its_sources_and_no_extra(root: Path) -> None:
    _, line = arguments(root / "images/operator/Dockerfile", "RUN")
    built, installed, _ = map(str.strip, line.split("&&"))
    assert built.endswith(" --wheel-dir /wheels .")
    assert installed.endswith(" install --no-cache-dir --constraint constraints.txt /wheels/*.whl")


def test_wheel_holds_the_operator_s_packages_and_nothing_else(root: Path, wheel: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    (info,) = wheel.glob("*.dist-info")
    assert info.name == f"fathom-{project['version']}.dist-info"
    assert {path.name for path in wheel.iterdir()} == {*PACKAGES, info.name}
    for package in PACKAGES:
        held = {str(path.relative_to(wheel)) for path in (wheel / package).rglob("*.py")}
        sources = (root / "operator" / package).rglob("*.py")
        assert held == {str(path.relative_to(root / "operator")) for path in sources}
    assert (wheel / "fathom" / "py.typed").is_file()
    metadata = Parser().parsestr((info / "METADATA").read_text())
    required = {Requirement(each) for each in metadata.get_all("Requires-Dist", [])}
    assert required == {Requirement(each) for each in project["dependencies"]}
    assert "Provides-Extra" not in metadata


def test_wheel_brings_the_command_but_not_the_local_cluster(wheel: Path) -> None:
    (info,) = wheel.glob("*.dist-info")
    entries = {each.name: each for each in Distribution.at(info).entry_points}
    assert {each.group for each in entries.values()} == {"console_scripts"}
    assert entries.keys() == {"fathom", "kubectl-fathom"}
    plugin = without_a_checkout(wheel, entries["kubectl-fathom"], "explain", "--help")
    assert "Usage: kubectl fathom explain " in plugin.stdout
    entry = entries["fathom"]
    shown = without_a_checkout(wheel, entry, "--help")
    assert shown.returncode == 0
    assert {"render", "check", "run", "top"} <= set(shown.stdout.split())
    assert "local" not in shown.stdout.split()
    refused = without_a_checkout(wheel, entry, "local", "up")
    assert refused.returncode == 2
    assert "make setup" in refused.stderr


def without_a_checkout(
    wheel: Path, entry: EntryPoint, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """The wheel's command where no checkout is on the path; only its dependencies are."""
    code = (
        f"import sys; sys.path[:0] = {[str(wheel), sysconfig.get_path('purelib')]}; "
        f"from {entry.module} import {entry.attr}; {entry.attr}()"
    )
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
    )
