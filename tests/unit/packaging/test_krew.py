"""The manifest for krew's index, held against what krew's validation and its index ask for."""

import re
import subprocess
import sys
from pathlib import Path
from string import Template
from typing import Any

import pytest
import typer
import yaml
from packaging.version import Version
from typer.core import TyperGroup

from fathom import __version__
from fathom.cli.main import app
from support.waiting import GUARD_S

FILLED_IN = {
    "VERSION": __version__,
    "RELEASES": "https://example.com/fathom/releases",
    **dict.fromkeys(("SHA256_LINUX_AMD64", "SHA256_LINUX_ARM64", "SHA256_DARWIN_ARM64"), "0" * 64),
}
SYSTEMS, MACHINES = {"linux", "darwin", "windows"}, {"amd64", "arm64", "386", "arm"}
LONGEST_SHORT_DESCRIPTION = 50


@pytest.fixture
def folder(root: Path) -> Path:
    return root / "packaging" / "krew"


@pytest.fixture
def manifest(folder: Path) -> dict[str, Any]:
    text = (folder / "fathom.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(Template(text).substitute(FILLED_IN))
    return found


def test_it_is_a_plugin_of_krew_s_api(manifest: dict[str, Any], folder: Path) -> None:
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert manifest["kind"] == "Plugin"
    name = manifest["metadata"]["name"]
    assert re.fullmatch(r"[\w-]+", name)
    assert not name.startswith("kubectl")
    assert (folder / f"{name}.yaml").is_file()


def test_its_texts_are_such_as_the_index_takes(manifest: dict[str, Any]) -> None:
    spec = manifest["spec"]
    assert spec["version"].startswith("v")
    assert str(Version(spec["version"][1:])) == spec["version"][1:]
    assert re.match("https://", spec["homepage"])
    short = spec["shortDescription"]
    assert 0 < len(short) <= LONGEST_SHORT_DESCRIPTION
    assert "\n" not in short
    assert not short.endswith(".")
    assert "kubectl" not in short.lower()
    assert spec["description"]


def test_each_platform_has_an_archive_of_its_own(manifest: dict[str, Any]) -> None:
    platforms = manifest["spec"]["platforms"]
    chosen = [tuple(each["selector"]["matchLabels"].values()) for each in platforms]
    assert len({*chosen}) == len(chosen)
    for each, (system, machine) in zip(platforms, chosen, strict=True):
        assert system in SYSTEMS
        assert machine in MACHINES
        assert each["uri"].endswith(f"_{system}_{machine}.tar.gz")
        assert re.fullmatch(r"[0-9a-f]{64}", each["sha256"])
        assert each["bin"] == "kubectl-fathom"
        assert each.keys() == {"selector", "uri", "sha256", "bin"}


@pytest.mark.parametrize(
    ("name", "words", "line"),
    [
        ("kubectl-fathom", ["--version"], f"fathom {__version__}"),
        ("kubectl_complete-fathom", ["expl"], "explain"),
    ],
)
def test_what_krew_links_starts_from_anywhere(
    folder: Path, tmp_path: Path, name: str, words: list[str], line: str
) -> None:
    archive, on_path = tmp_path / "store", tmp_path / "bin"
    archive.mkdir()
    on_path.mkdir()
    launcher = archive / "kubectl-fathom"
    launcher.write_bytes((folder / "kubectl-fathom").read_bytes())
    launcher.chmod(0o755)
    # What it depends on comes from this interpreter.
    (archive / "lib").symlink_to(folder.parents[1] / "operator")
    (on_path / name).symlink_to(launcher)

    ran = subprocess.run(
        [on_path / name, *words],
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=GUARD_S,
        check=False,
    )
    assert ran.stdout.splitlines()[0] == line, ran.stderr


def test_the_commands_that_it_names_are_there(manifest: dict[str, Any]) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    named = re.findall(r"^  (\w+) +\w", manifest["spec"]["description"], re.MULTILINE)
    assert named
    assert {*named} <= {*group.list_commands(typer.Context(group))}
