"""Whether a person has paused a resource, by an annotation. Pure."""

from collections.abc import Mapping
from typing import Final

from fathom.api import names
from fathom.core.shortened import shortened

PAUSED_WITHOUT_REASON: Final = "true"
"""What the annotation says where nobody said why."""
_NOT_PAUSED: Final = frozenset({"", "false"})
_LONGEST_REASON: Final = 256
"""Characters of a person's reason that are repeated."""


def pause_of(annotations: Mapping[str, str]) -> str:
    """The sentence that says who holds it and why; empty: it is not paused.

    Any value but `false` is a pause: one that was misspelt must not be none.

    Args:
        annotations: of the SpeculativeDeployment.
    """
    said = " ".join(annotations.get(names.ANNOTATION_PAUSED, "").split())
    if said.lower() in _NOT_PAUSED:
        return ""
    why = "" if said.lower() == PAUSED_WITHOUT_REASON else f": {shortened(said, _LONGEST_REASON)}"
    held = f"annotation {names.ANNOTATION_PAUSED} holds depth, rollouts and refreshes"
    return f"{held}{why.rstrip('.')}."
