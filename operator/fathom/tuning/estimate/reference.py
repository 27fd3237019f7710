"""The reference: what of its drafts was accepted while the pair of target and draft was new. Pure.

An alarm that compares with the last day follows what falls slowly, and learns what lasts. So the
first day of a pair is kept as long as target and draft stay, with the lowest day of its first week:
traffic has a rhythm of the week, which one day does not show. Whole days are compared, since
traffic has one of the day as well; and the first position alone, which exists at each depth.
"""

from dataclasses import dataclass, replace
from typing import Final

from fathom.engine.report import ServedPair
from fathom.measurement.counters import position_at
from fathom.tuning.estimate.acceptance_length import NO_TRIALS, Trials

DAY_S: Final = 24 * 3600.0
"""The shortest stretch that is compared."""
DAY_DRAFTS: Final = 20_000.0
"""Drafts without which a day is not over: at a design effect of 40, 500 independent trials, which
know an acceptance of 0.5 to within 4.5 %."""
WEEK_DAYS: Final = 7
"""Days, the first among them, of which the lowest is looked for."""
BELOW_SHARE: Final = 0.85
"""Acceptance of a day below this share of that of the lowest day is below the reference, …"""
BELOW_DAYS: Final = 3
"""… and lasts once so many days in a row were: a bad day is none."""
FAR_BELOW_SHARE: Final = 0.65
"""Below this share of it one day will do, and within the first week of the first day's: a rhythm of
±20 % makes 0.67 of its best day at worst."""
MOST_POSITIONS: Final = 16
"""Whose trials are kept: the state must fit into a ConfigMap, and few drafts reach deeper ones."""
_SHOWN_DRAFTS: Final = 1000.0
"""Drafts that reached a position, without which it is not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The first days of a pair, and the day that runs."""

    pair: ServedPair
    """As it was when the reference was begun."""
    asked: str = ""
    """The newest request of a person for a new one."""
    began_at_s: float = 0.0
    """With the first drafts (Unix seconds); 0: there were none."""
    first: Trials = NO_TRIALS
    """The first day, by position; none: it is not over."""
    lowest: float = 1.0
    """The lowest acceptance of the first position on a day of the first week."""
    days: int = 0
    """That are over."""
    day: Trials = NO_TRIALS
    """The one that runs, …"""
    day_began_at_s: float = 0.0
    """… and since when."""
    last: Trials = NO_TRIALS
    """The last one that is over."""
    days_below: int = 0
    """In a row, up to the last one."""

    @property
    def is_taken(self) -> bool:
        return self.days > 0

    @property
    def is_below(self) -> bool:
        """Whether acceptance is below it, and that lasts."""
        return self.days_below >= BELOW_DAYS

    @property
    def ratio(self) -> float | None:
        """Acceptance of the last day over that of the first; None: there is one day at most."""
        first = first_position(self.first)
        return first_position(self.last) / first if self.days > 1 and first > 0 else None

    def updated(self, window: Trials, from_s: float, to_s: float, *, alarmed: bool) -> "Reference":
        """With one more window.

        Args:
            window: trials of all pods.
            from_s: its begin (Unix seconds).
            to_s: its end.
            alarmed: whether an alarm stands that acceptance is lower than before: what is so low
                is no part of a reference.
        """
        if not any(window.reached) or (alarmed and not self.is_taken):
            return self
        shallow = Trials(window.reached[:MOST_POSITIONS], window.accepted[:MOST_POSITIONS])
        running = replace(
            self,
            began_at_s=self.began_at_s or from_s,
            day=self.day + shallow,
            day_began_at_s=self.day_began_at_s or from_s,
        )
        short = running.day.reached[0] < DAY_DRAFTS
        is_over = not short and to_s - running.day_began_at_s >= DAY_S
        return running._ended(alarmed=alarmed) if is_over else running  # noqa: SLF001 - its own

    def _ended(self, *, alarmed: bool) -> "Reference":
        """With the day that runs over."""
        day, accepted = self.day, first_position(self.day)
        lowest, days_below = accepted, 0
        if self.is_taken:
            is_week_known = self.days >= WEEK_DAYS
            expected = self.lowest if is_week_known else first_position(self.first)
            far = accepted < FAR_BELOW_SHARE * expected
            belongs = not (is_week_known or far or alarmed)
            lowest = min(self.lowest, accepted) if belongs else self.lowest
            if far:
                days_below = BELOW_DAYS
            elif accepted < BELOW_SHARE * lowest and (is_week_known or self.is_below):
                days_below = min(BELOW_DAYS, self.days_below + 1)
        return replace(
            self,
            first=self.first if self.is_taken else day,
            lowest=lowest,
            days=self.days + 1,
            day=NO_TRIALS,
            day_began_at_s=0.0,
            last=day,
            days_below=days_below,
        )


def first_position(day: Trials) -> float:
    """Acceptance of the first draft token on a day that is over."""
    # What was kept may say anything.
    return position_at(day.accepted, 0) / max(1.0, position_at(day.reached, 0))


def survival(day: Trials) -> tuple[float, ...]:
    """P(this and all before it accepted), by position, as far as drafts reached it."""
    found, product = list[float](), 1.0
    for reached, accepted in zip(day.reached, day.accepted, strict=False):
        if reached < _SHOWN_DRAFTS:
            break
        product *= accepted / reached
        found.append(product)
    return tuple(found)
