"""Which vLLM releases are asked, by the engine tier of the tests and by `make try-engine`. Pure."""

from collections.abc import Mapping
from typing import Final

from packaging.version import Version

from local_cluster.engine.environment import DEFAULT_ENGINE_VERSION

OLDEST_TESTED: Final = "0.28.0"
NEWEST_KNOWN: Final = "0.33.0"
"""The newest that `fathom.engine.capability_table` was compared with."""
VARIABLE: Final = "FATHOM_ENGINE_VERSIONS"


def asked_releases(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Those that the variable names, separated by blanks; else those that `make test` asks."""
    named = environ.get(VARIABLE, "").split()
    return tuple(dict.fromkeys(named)) or (OLDEST_TESTED, DEFAULT_ENGINE_VERSION)


def known_as(release: str) -> Version:
    """The release whose cells of the table a release has to agree with.

    Its own. One that the table does not know yet is held against the newest that it does.
    """
    return min(Version(release), Version(NEWEST_KNOWN))
