"""How many events leave in an hour. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from fathom.core.counted import counted
from fathom.core.reporting.events import Event
from fathom.core.times import is_over

HOUR_S: Final = 3600.0
AN_HOUR: Final = 20
"""Events of one reason: a tuner that moves every three minutes is told in full."""


@dataclass(frozen=True, slots=True)
class EventPace:
    """What was posted of each reason lately, and how much was kept back since."""

    posted_at_s: Mapping[str, tuple[float, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """By reason, Unix seconds, of the last hour."""
    kept_back: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By reason, since the last one that was posted."""

    def let_through(
        self, events: Sequence[Event], now_s: float
    ) -> tuple["EventPace", tuple[Event, ...]]:
        """Those that may be posted now; the first after a gap says how many were not.

        Args:
            events: that are to be told.
            now_s: Unix seconds.
        """
        posted = {
            reason: lately
            for reason, times in self.posted_at_s.items()
            if (lately := tuple(each for each in times if not is_over(each, HOUR_S, now_s)))
        }
        kept_back, let = dict(self.kept_back), []
        for event in events:
            before = posted.get(event.reason, ())
            if len(before) >= AN_HOUR:
                kept_back[event.reason] = kept_back.get(event.reason, 0) + 1
                continue
            posted[event.reason] = (*before, now_s)
            more = kept_back.pop(event.reason, 0)
            let.append(_with_count(event, more) if more else event)
        return EventPace(MappingProxyType(posted), MappingProxyType(kept_back)), tuple(let)


def _with_count(event: Event, more: int) -> Event:
    others = counted(more, "more event", "more events")
    message = f"{event.message} ({others} {event.reason} before it: at most {AN_HOUR} an hour.)"
    return replace(event, message=message)
