"""The plugin as it reaches a stock image: flat files, and nothing but vLLM's own dependencies."""

import ast
import os
import subprocess
import sys
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

import fathom_vllm
from fathom_vllm.bundle import SCHEDULER_CLASS, bundle_files, bundle_hash, bundle_zip
from fathom_vllm.plugin_version import content_hash


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for path, text in bundle_files().items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


@pytest.fixture(params=["directory", "zip"])
def on_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """What is put on PYTHONPATH."""
    if request.param == "directory":
        found: Path = request.getfixturevalue("directory")
        return found
    path = tmp_path / "fathom.zip"
    path.write_bytes(bundle_zip())
    return path


def run(directory: Path, code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return process.stdout.strip()


def test_the_entry_point_is_found_without_an_installation(on_path: Path) -> None:
    code = (
        "from importlib.metadata import entry_points;"
        "print(*[e.value for e in entry_points(group='vllm.stat_logger_plugins')])"
    )
    assert run(on_path, code) == "fathom_vllm.stat_logger:FathomStatLogger"


def test_a_bundle_tells_the_hash_the_operator_knows(on_path: Path) -> None:
    code = (
        "from fathom_vllm import hook; from fathom_vllm.plugin_version import *;"
        "print(hook.__file__, content_hash(package_files()))"
    )
    assert run(on_path, code) == f"{on_path}/fathom_vllm/hook.py {bundle_hash()}"


def test_a_zip_is_the_same_for_the_same_bundle() -> None:
    with ZipFile(BytesIO(bundle_zip())) as archive:
        entries = archive.infolist()
        files = {each.filename: archive.read(each).decode() for each in entries}
    assert bundle_zip() == bundle_zip()
    assert files == bundle_files()
    assert [each.filename for each in entries] == sorted(files)
    assert {each.date_time for each in entries} == {(1980, 1, 1, 0, 0, 0)}
    # As text in a ConfigMap, which holds 1 MiB, and kubectl writes it down a second time.
    assert len(bundle_zip()) * 4 / 3 < 250_000


def test_the_scheduler_class_is_where_its_name_says(directory: Path) -> None:
    module, name = SCHEDULER_CLASS.rsplit(".", 1)
    tree = ast.parse((directory / f"{module.replace('.', '/')}.py").read_text())
    assert name in [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def test_it_needs_nothing_but_what_vllm_brings(directory: Path) -> None:
    brought = {*sys.stdlib_module_names, "fathom_vllm", "prometheus_client", "vllm"}
    for source in directory.glob("fathom_vllm/*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            else:
                continue
            assert {module.split(".")[0] for module in modules} <= brought, source.name


def test_it_is_small_and_deterministic() -> None:
    files = bundle_files()
    assert files == bundle_files()
    assert list(files) == [*sorted(list(files)[:-2]), *list(files)[-2:]]
    assert sum(len(path) + len(text.encode()) for path, text in files.items()) < 100_000
    assert "fathom_vllm/bundle.py" not in files


def test_any_change_changes_the_hash() -> None:
    assert content_hash({"a": "bc"}) != content_hash({"ab": "c"})
    assert content_hash({"a": "b"}) != content_hash({"a": "c"})
    assert content_hash({"a": "b", "c": "d"}) == content_hash({"c": "d", "a": "b"})


def test_it_has_the_operators_version() -> None:
    assert fathom_vllm.__version__ == version("fathom")
