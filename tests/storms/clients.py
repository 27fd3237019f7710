"""Clients of the resource: one asks through its Service each second, and none may be let down.

What crashes, or loses its node, takes with it what it had. What is told to go, by whomever, first
leaves the Service and then ends what it has: of that no request is lost.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from storms.cluster import REQUEST_S, Container
from storms.engine import Engine
from storms.invariants import BrokenError

PROXY_LOOKS: Final = 3
"""Looks, one a second, until every node knows where a Service's requests go."""


@dataclass(frozen=True, slots=True)
class _Request:
    ends_at_s: float
    container: Container
    engine: Engine


@dataclass
class Clients:
    """Asks, and waits for what it asked for."""

    _known: deque[Sequence[Container]] = field(default_factory=deque, init=False)
    """Where requests went at the last looks, the oldest first."""
    _under_way: deque[_Request] = field(default_factory=deque, init=False)
    _turns: Iterator[int] = field(default_factory=count, init=False)
    _served: bool = field(default=False, init=False)
    """Whether somebody answered, and nothing has happened since that the operator did not do."""

    def look(self, now_s: float, chosen: Sequence[Container], *, least: int) -> None:
        """See what became of what was asked for, and ask once more.

        Args:
            now_s: simulated seconds.
            chosen: pods that the Service selects and that are ready.
            least: how many are to be there whatever the operator does; 0: none, or something else
                has happened to them.

        Raises:
            BrokenError: a request was lost, by a pod that was told to go, or for want of any.
        """
        while self._under_way and self._under_way[0].ends_at_s <= now_s:
            ended = self._under_way.popleft()
            if ended.container.engine is not ended.engine and ended.container.drained:
                self._lost(ended.container, "a request that it had taken")
        self._known.append(chosen)
        if len(self._known) > PROXY_LOOKS:
            self._ask(now_s, self._known.popleft())
        self._served = least > 0 and (self._served or bool(chosen))
        if self._served and not chosen:
            raise BrokenError(f"no pod takes a request, where {least} are to be ready")

    def _ask(self, now_s: float, known: Sequence[Container]) -> None:
        if not known:
            return
        asked = known[next(self._turns) % len(known)]
        refuses = asked.refuses_at_s is not None and now_s >= asked.refuses_at_s
        if refuses and (asked.engine is not None or asked.drained):
            self._lost(asked, f"a request that came {PROXY_LOOKS} s after it left the Service")
        elif asked.engine is not None:
            self._under_way.append(_Request(now_s + REQUEST_S, asked, asked.engine))

    def _lost(self, asked: Container, what: str) -> None:
        raise BrokenError(f"{asked.name}, which was told to go, lost {what}")
