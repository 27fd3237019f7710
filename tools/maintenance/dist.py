"""Makes what a release hands out beside its image and its chart: the wheel, and what is in it.

`python -m maintenance.dist FOLDER`. A release attests and uploads what lies there then.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from local_cluster.errors import LocalClusterError

REPOSITORY: Final = Path(__file__).parents[2]
_STEP_SECONDS: Final = 300.0
_EPOCH: Final = "SOURCE_DATE_EPOCH"
_ALWAYS_THE_SAME: Final = "1580601600"
"""Seconds since 1970: hatchling's own choice where nobody says when the sources were made."""


def build_wheel(source: Path, into: Path) -> Path:
    """The operator's wheel, by the build backend that is installed here.

    Args:
        source: a checkout, or as much of one as a wheel is made of.
        into: the folder it is put into.

    Raises:
        LocalClusterError: pip's own words.
    """
    _pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(into), str(source))
    (wheel,) = into.glob("fathom-*.whl")
    return wheel


def install(wheel: Path, venv: Path) -> Path:
    """The wheel and what it needs, in versions of constraints.txt, in an environment of its own.

    Returns:
        The environment's Python.

    Raises:
        LocalClusterError: pip's own words.
    """
    python = venv / "bin" / "python"
    _run((sys.executable, "-m", "venv", "--without-pip", str(venv)))
    pinned = ("--constraint", str(REPOSITORY / "constraints.txt"))
    # It is looked into, and hardly run: compiling all of it would take longer than all else.
    _pip("--python", str(python), "install", "--no-compile", *pinned, str(wheel))
    return python


def write_sbom(python: Path, file: Path) -> None:
    """What is installed beside a Python, as CycloneDX: the same bytes for the same packages.

    Raises:
        LocalClusterError: cyclonedx-py's own words.
    """
    tool = (sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible")
    project = ("--pyproject", str(REPOSITORY / "pyproject.toml"), "--mc-type", "application")
    # Its own output against its own schema: seconds of work, for what cannot differ.
    form = ("--no-validate", "--of", "JSON", "-o", str(file))
    _run((*tool, *project, *form, str(python)))


def _pip(*arguments: str) -> None:
    _run((sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *arguments))


def _run(command: Sequence[str]) -> None:
    dated = {_EPOCH: _ALWAYS_THE_SAME, **os.environ}
    try:
        done = subprocess.run(
            command,
            env=dated,
            capture_output=True,
            text=True,
            timeout=_STEP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LocalClusterError(
            f"`{' '.join(command)}` did not end within {_STEP_SECONDS:.0f} s. Is the package index "
            "reachable?"
        ) from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise LocalClusterError(f"`{' '.join(command)}` failed: {said}")


def main(into: Path) -> None:
    """The wheel and its SBOM, in a folder that is made if need be."""
    into.mkdir(parents=True, exist_ok=True)
    wheel = build_wheel(REPOSITORY, into)
    with tempfile.TemporaryDirectory() as scratch:
        python = install(wheel, Path(scratch) / "venv")
        write_sbom(python, into / "fathom.cdx.json")
    for file in sorted(into.iterdir()):
        sys.stdout.write(f"{file}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
