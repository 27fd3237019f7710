"""How much an operator writes in an hour, whatever happens: events and statuses."""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from storms.invariants import BrokenError
from storms.server import Audit

HOUR_S: Final = 3600.0
MOST_EVENTS: Final = 20
"""Events of one reason, resource and process (docs/design/0004-what-is-written-when.md)."""
MOST_STATUSES: Final = 60 + 60
"""Writes of one resource and one process: 60 changes at once, and one a minute."""


@dataclass
class Pace:
    """Watches the writes of all operators."""

    process_of: Callable[[str], int]
    """The number of the process that runs now, by the operator's name: a new one knows nothing of
    what the one before has written."""
    _times: defaultdict[tuple[Any, ...], deque[float]] = field(
        default_factory=lambda: defaultdict(deque), init=False
    )

    def wrote(self, audit: Audit) -> None:
        """Look at one write.

        Raises:
            BrokenError: there were too many of its kind.
        """
        who = audit.who, self.process_of(audit.who)
        if audit.kind == "Event":
            about = audit.body["involvedObject"]
            reason = audit.body["reason"]
            what, most = f"events {reason}", MOST_EVENTS
            key: tuple[Any, ...] = (*who, about.get("uid"), reason)
        elif audit.verb == "status":
            what, most = "writes of the status", MOST_STATUSES
            key = (*who, audit.after["metadata"]["uid"])
        else:
            return
        times = self._times[key]
        times.append(audit.at_s)
        while audit.at_s - times[0] > HOUR_S:
            times.popleft()
        if len(times) > most:
            raise BrokenError(f"{audit.who} made {len(times)} {what} within an hour")
