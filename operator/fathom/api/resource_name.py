"""What a resource may be called, and a name to offer in place of one that it may not have."""

import re
from typing import Final

NAME_PATTERN: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""Of a Service, which is called like the resource."""
LONGEST_NAME: Final = 45
"""Children append suffixes, and a Service's name has 63 characters at most."""
NAMESPACE_PATTERN: Final = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"
LONGEST_NAMESPACE: Final = 63

_REFUSED: Final = {
    "metadata.name": "this is no name: use lower-case letters, digits and -, and begin with a "
    "letter",
    "metadata.namespace": "this is no name of a namespace: use lower-case letters, digits and -",
}
NAMES: Final = frozenset(_REFUSED)
"""Paths of what is a name."""


def refused_name(path: str, name: str, *, longest: int | None = None) -> str:
    """The sentence that refuses a name, with one to take instead where there is one.

    Args:
        path: one of `NAMES`.
        name: as it is written.
        longest: the characters that it may have, if there are too many; None: others are wrong.
    """
    what = _REFUSED[path]
    if longest is not None:
        what = f"this name has {len(name)} characters: use {longest} at most"
    offered = _offered(name, of_namespace=path == "metadata.namespace")
    return f"{what}.{f' {offered} would do.' if offered else ''}"


def _offered(name: str, *, of_namespace: bool) -> str:
    """The nearest name that may be; empty: there is nothing to make one of."""
    made = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not of_namespace and re.match(r"[0-9]", made):
        made = f"sd-{made}"
    return made[: LONGEST_NAMESPACE if of_namespace else LONGEST_NAME].rstrip("-")
