"""What of the images can be checked without building them, and the wheel that goes into one."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

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


def test_wheel_holds_all_packages_and_nothing_else(root: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", tmp_path, root],
        check=True,
        timeout=120,
    )
    (wheel,) = tmp_path.glob("*.whl")
    contents = zipfile.ZipFile(wheel).namelist()
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    info = f"fathom-{version}.dist-info"
    assert {name.split("/")[0] for name in contents} == {
        "fathom",
        "fathom_fetch",
        "fathom_bench",
        "fathom_local",
        "fathom_vllm",
        info,
    }
    assert "fathom/py.typed" in contents
    entry_points = zipfile.ZipFile(wheel).read(f"{info}/entry_points.txt").decode()
    assert "fathom = fathom.cli:app" in entry_points
