"""What of the images can be checked without building them. The wheel in one: test_wheel.py."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from fathom_vllm import bundle
from support.dockerfiles import arguments
from support.waiting import GUARD_S

Render = Callable[[Mapping[str, Any]], dict[tuple[str, str], Any]]
"""Values in, manifests by kind and name out."""

DOCKERFILES = ["images/operator/Dockerfile", "images/vllm/Dockerfile"]


@pytest.mark.parametrize("file", DOCKERFILES)
def test_bases_are_pinned(root: Path, file: str) -> None:
    defaults = dict(line.split("=", 1) for line in arguments(root / file, "ARG"))
    for line in arguments(root / file, "FROM"):
        (named, *_) = [word for word in line.split() if not word.startswith("--")]
        base = re.sub(r"\$\{(\w+)\}", lambda found: defaults[found[1]], named)
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
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    # The one that heeds a signal at once: tests/unit/cli/test_entry.py.
    assert project["scripts"]["fathom"] == "fathom.__main__:main"


def test_engine_image_is_the_engine_of_the_examples(root: Path) -> None:
    (version,) = arguments(root / "images/vllm/Dockerfile", "ARG")
    tag = version.partition("=")[2]
    model = (root / "examples/gitops/models/kimi-k2.yaml").read_text()
    assert f"image: vllm/vllm-openai:{tag}\n" in model


def test_baked_plugin_is_the_delivered_one(root: Path, tmp_path: Path) -> None:
    script = root / "images/vllm/write_bundle.py"
    environment = {**os.environ, "PYTHONPATH": str(root / "operator")}
    subprocess.run([sys.executable, script, tmp_path], env=environment, check=True, timeout=GUARD_S)
    written = {
        str(path.relative_to(tmp_path)): path.read_text()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert written == bundle.bundle_files()
    (found,) = distributions(path=[str(tmp_path)])
    (entry,) = found.entry_points
    assert (entry.group, entry.value) == (bundle.STAT_LOGGER_GROUP, bundle.STAT_LOGGER_CLASS)


@pytest.mark.parametrize("file", DOCKERFILES)
def test_hadolint_finds_no_fault(root: Path, file: str) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), "--no-fail", "--format", "tty", root / file],
        check=True,
        capture_output=True,
        text=True,
        timeout=GUARD_S,
    )
    assert done.stdout == ""


@pytest.mark.parametrize("file", DOCKERFILES)
def test_labels_say_what_an_image_is_and_where_it_comes_from(root: Path, file: str) -> None:
    (line,) = arguments(root / file, "LABEL")
    labels = dict(re.findall(r'org\.opencontainers\.image\.([\w.]+)="([^"]+)"', line))
    assert {"title", "description", "source", "documentation", "licenses"} <= labels.keys()
    *_, last = arguments(root / file, "FROM")
    assert labels.get("base.name", last).removeprefix("docker.io/library/") == last
    page = labels["documentation"].removeprefix(f"{labels['source']}/blob/main/")
    assert (root / page).is_file()
    assert labels["licenses"] == "Apache-2.0"


def test_the_same_sources_make_the_same_files(root: Path) -> None:
    """What is installed is compared in test_wheel.py; here, that the image installs it so."""
    file = root / "images/operator/Dockerfile"
    assert [line.partition("=")[0] for line in arguments(file, "ARG")] == [
        "SOURCE_DATE_EPOCH",
        "BUILD",
    ]
    assert "PYTHONHASHSEED=0" in arguments(file, "ENV")
    (installs,) = arguments(file, "RUN")
    assert "--wheel-dir /wheels . " in installs
    assert installs.endswith(" /wheels/*.whl")
    for command in re.findall(r"pip (?:--python \S+ )?(?:install|wheel) [^&]*", installs):
        assert "--constraint constraints.txt" in command or "--no-build-isolation" in command
