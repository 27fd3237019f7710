"""The chart library that the package carries is npm's, unchanged, with its licence."""

import hashlib
from importlib.resources import files

import pytest

DIGESTS = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


@pytest.mark.parametrize("name", DIGESTS)
def test_it_is_unchanged(name: str) -> None:
    content = (files("fathom.page") / "uplot" / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == DIGESTS[name]


def test_its_version_and_licence_are_told() -> None:
    folder = files("fathom.page") / "uplot"
    program = (folder / "uPlot.iife.min.js").read_text()
    version = program.partition("(v")[2].partition(")")[0]
    assert f"uPlot {version} (MIT" in (folder / "README.md").read_text()
    assert "The MIT License" in (folder / "LICENSE").read_text()
