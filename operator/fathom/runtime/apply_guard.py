"""Stops the tug-of-war with whatever rewrites our fields."""

import hashlib
import json
from collections.abc import Sequence
from typing import Final

from fathom.core.kinds import Kind
from fathom.runtime.operations import Apply, Create, Delete, Operation, Patch

PATIENCE: Final = 3
"""Identical writes of one object that the API server took, before it is left alone."""


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
        """Why this write is not tried again; None: it may be."""
        if isinstance(operation, Delete) or self._times(operation) < PATIENCE:
            return None
        return (
            f"{operation.kind.kind} {operation.name} was written {PATIENCE} times and is "
            f"changed back by something else: {operation.why}. It is left alone; find the "
            "webhook or controller that does this, and exempt objects labelled "
            "app.kubernetes.io/managed-by=fathom."
        )

    def wrote(self, operation: Operation) -> None:
        """Count a write that the API server took; one that it refused changed nothing."""
        if not isinstance(operation, Delete):
            seen = (_fingerprint(operation), self._times(operation) + 1)
            self._written[operation.kind, operation.name] = seen

    def _times(self, operation: Create | Apply | Patch) -> int:
        seen, times = self._written.get((operation.kind, operation.name), ("", 0))
        return times if seen == _fingerprint(operation) else 0


def _fingerprint(operation: Create | Apply | Patch) -> str:
    content = operation.patch if isinstance(operation, Patch) else operation.manifest
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
