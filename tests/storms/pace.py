"""How much an operator writes in an hour, and asks for in a minute, whatever happens."""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from fathom.cluster.kinds import SPECULATIVE_DEPLOYMENT, Kind
from storms.invariants import BrokenError
from storms.server import Audit

HOUR_S: Final = 3600.0
MOST_EVENTS: Final = 20
"""Events of one reason, resource and process (docs/design/0004-what-is-written-when.md)."""
MOST_STATUSES: Final = 60 + 60
"""Writes of one resource and one process: 60 changes at once, and one a minute."""
MINUTE_S: Final = 60.0
MOST_REQUESTS: Final = 1200
"""Requests of one process, but for leases and the resources' own watch, which is Kopf's: 20 a
second, as many as controller-runtime allows a controller."""
MOST_LOOKS: Final = 120
"""At a resource: a pass begins a second after the one before has ended, at the soonest, and looks
twice at most."""
MOST_LISTS: Final = 10
"""Lists of a kind, besides one of each look, which lists what watches may not have told of yet. A
watch that fails is begun after 1, 2, 4, 8, 16 and then every 30 seconds; a new process lists
at once, and one that has gone well for half a minute begins with 0.2 and 1 s again."""
MOST_WATCHES: Final = 60
"""Watches of a kind: a stream that ends within a second is opened later each time."""


@dataclass
class Pace:
    """Watches the writes and requests of all operators."""

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
        made = self._lately(key, audit.at_s, HOUR_S)
        if made > most:
            raise BrokenError(f"{audit.who} made {made} {what} within an hour")

    def asked(self, at_s: float, who: str, verb: str, kind: Kind) -> None:
        """Look at one request, whatever came of it.

        Raises:
            BrokenError: there were too many of its kind.
        """
        resource = kind == SPECULATIVE_DEPLOYMENT
        if resource and verb in {"list", "watch"}:
            return
        process = who, self.process_of(who)
        requests = self._lately(process, at_s, MINUTE_S)
        this = self._lately((*process, verb, kind.kind), at_s, MINUTE_S)
        looks = (*process, "get", SPECULATIVE_DEPLOYMENT.kind)
        most = MOST_REQUESTS
        if resource and verb == "get":
            most = MOST_LOOKS
        elif verb == "list":
            most = MOST_LISTS + len(self._times[looks])
        elif verb == "watch":
            most = MOST_WATCHES
        if this > most or requests > MOST_REQUESTS:
            raise BrokenError(
                f"{who} asked to {verb} {kind.plural} {this} times within a minute, of {requests} "
                "requests"
            )

    def _lately(self, key: tuple[Any, ...], at_s: float, within_s: float) -> int:
        """Count one more, and how many there were within a time."""
        times = self._times[key]
        times.append(at_s)
        while at_s - times[0] > within_s:
            times.popleft()
        return len(times)
