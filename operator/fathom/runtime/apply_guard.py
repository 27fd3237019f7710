"""Stops the tug-of-war with whatever rewrites our fields."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from fathom.core.kinds import Kind
from fathom.runtime.operations import Apply, Create, Delete, Operation, Patch

PATIENCE: Final = 3
"""Identical writes of one object that the API server took, before it is left alone for a while."""
FIRST_PAUSE_S: Final = 120.0
LONGEST_PAUSE_S: Final = 3600.0
"""Each write that is changed back doubles the pause: nobody tells when the other side is mended."""


@dataclass(frozen=True, slots=True)
class _Written:
    """The same thing, written again and again."""

    fingerprint: str
    times: int
    at_s: float
    """Unix seconds of the last time."""

    def pausing(self, now_s: float) -> bool:
        if self.times < PATIENCE:
            return False
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (self.times - PATIENCE))
        # A clock that was set back must not make the pause longer.
        return 0 <= now_s - self.at_s < pause_s


class ApplyGuard:
    """Remembers what was written, and writes the very same again less and less often.

    A webhook or another controller that puts its own value back would otherwise be answered for
    ever, and each answer may restart pods.
    """

    def __init__(self) -> None:
        self._written: dict[tuple[Kind, str], _Written] = {}

    def settle(self, wanted: Sequence[Operation]) -> None:
        """Forget the objects that need no write: they are as they should be."""
        pending = {(each.kind, each.name) for each in wanted}
        self._written = {key: seen for key, seen in self._written.items() if key in pending}

    def refusal(self, operation: Operation, now_s: float) -> str | None:
        """Why this write is not tried again now; None: it may be."""
        if isinstance(operation, Delete) or not self._seen(operation).pausing(now_s):
            return None
        return (
            f"{operation.kind.kind} {operation.name} was written {PATIENCE} times and is "
            f"changed back by something else: {operation.why}. It is written again less and less "
            "often; find the webhook or controller that does this, and exempt objects labelled "
            "app.kubernetes.io/managed-by=fathom."
        )

    def wrote(self, operation: Operation, now_s: float) -> None:
        """Count a write that the API server took; one that it refused changed nothing."""
        if not isinstance(operation, Delete):
            seen = self._seen(operation)
            again = replace(seen, times=seen.times + 1, at_s=now_s)
            self._written[operation.kind, operation.name] = again

    def _seen(self, operation: Create | Apply | Patch) -> _Written:
        fingerprint = _fingerprint(operation)
        seen = self._written.get((operation.kind, operation.name))
        if seen is None or seen.fingerprint != fingerprint:
            return _Written(fingerprint, times=0, at_s=0.0)
        return seen


def _fingerprint(operation: Create | Apply | Patch) -> str:
    content = operation.patch if isinstance(operation, Patch) else operation.manifest
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
