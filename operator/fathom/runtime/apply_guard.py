"""Stops the tug-of-war with whatever rewrites our fields."""

import hashlib
import json
from collections.abc import Sequence
from typing import Final

from fathom.core.kinds import Kind
from fathom.runtime.operations import Apply, Operation, Patch

PATIENCE: Final = 3
"""Identical writes of one object before it is left alone."""


class ApplyGuard:
    """Remembers what was written, and refuses to write the very same again and again.

    A webhook or another controller that puts its own value back would otherwise be answered for
    ever, and each answer may restart pods.
    """

    def __init__(self) -> None:
        self._written: dict[tuple[Kind, str], tuple[str, int]] = {}

    def settle(self, wanted: Sequence[Operation]) -> None:
        """Forget the objects that need no write: they are as they should be."""
        pending = {(each.kind, each.name) for each in wanted}
        self._written = {key: seen for key, seen in self._written.items() if key in pending}

    def refusal(self, operation: Operation) -> str | None:
        """Why this write is not tried again; None: it may be. Counts it, if it may."""
        if not isinstance(operation, Apply | Patch):
            return None
        key, print_ = (operation.kind, operation.name), _fingerprint(operation)
        seen, times = self._written.get(key, ("", 0))
        if seen != print_:
            times = 0
        if times >= PATIENCE:
            return (
                f"{operation.kind.kind} {operation.name} was written {PATIENCE} times and is "
                f"changed back by something else: {operation.why}. It is left alone; find the "
                "webhook or controller that does this, and exempt objects labelled "
                "app.kubernetes.io/managed-by=fathom."
            )
        self._written[key] = (print_, times + 1)
        return None


def _fingerprint(operation: Apply | Patch) -> str:
    content = operation.manifest if isinstance(operation, Apply) else operation.patch
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
