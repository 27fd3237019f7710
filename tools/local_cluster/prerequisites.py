"""Programs of the machine that Fathom needs, and the Debian packages that bring them."""

import shutil
from collections.abc import Callable, Mapping

from local_cluster.errors import LocalClusterError


def require_programs(needed: Mapping[str, str]) -> None:
    """Checks that programs are on PATH.

    Args:
        needed: the Debian package of each program.

    Raises:
        LocalClusterError: some are missing; the message holds the command that installs them.
    """
    packages = missing_packages(needed)
    if packages:
        missing = [program for program, package in needed.items() if package in packages]
        raise LocalClusterError(
            f"Not on PATH: {', '.join(missing)}. "
            f"Install with: apt-get install -y {' '.join(packages)}"
        )


def missing_packages(needed: Mapping[str, str]) -> list[str]:
    """The Debian packages of those programs that are not on PATH."""
    return sorted({package for program, package in needed.items() if not shutil.which(program)})


def require_all(*checks: Callable[[], None]) -> None:
    """Checks all before anything is fetched or built.

    Raises:
        LocalClusterError: with the sentence of each check that failed.
    """
    problems = []
    for check in checks:
        try:
            check()
        except LocalClusterError as error:
            problems.append(str(error))
    if problems:
        raise LocalClusterError("\n".join(problems))
