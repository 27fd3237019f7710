"""Which build says so: the image's word, then git's, and otherwise nobody."""

import subprocess
from pathlib import Path

import pytest

from fathom import BUILD_VARIABLE, __version__, build_name, version_and_build


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "First"], check=True)
    return tmp_path


def test_a_checkout_has_a_build(checkout: Path) -> None:
    head = subprocess.check_output(["git", "-C", str(checkout), "rev-parse", "HEAD"], text=True)

    assert build_name({}, checkout) == head[:12]


def test_what_is_installed_from_a_wheel_has_none(tmp_path: Path) -> None:
    assert build_name({}, tmp_path) == ""


def test_the_image_says_first(checkout: Path) -> None:
    assert build_name({BUILD_VARIABLE: "abc"}, checkout) == "abc"


def test_a_folder_that_git_does_not_take_has_none(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("junk")

    assert build_name({}, tmp_path) == ""


def test_the_build_follows_the_version_where_it_is_known() -> None:
    assert version_and_build("abc") == f"{__version__} (build abc)"
    assert version_and_build("") == __version__
