"""Acceptance: when it has changed, what is normal here, and which pods differ. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Final

from fathom.measurement.counters import PodCounters, position_at
from fathom.measurement.deltas import CLOCK_TOLERANCE_S, PodDelta
from fathom.tuning.estimate.acceptance_length import NO_TRIALS, Trials, decay, trials
from fathom.tuning.estimate.settled import Settled, at_depth, joined, most_tried

LEVELS: Final = 40
"""Bins of the histogram of acceptance, from 0 to 1."""
LEVELS_HALF_LIFE_S: Final = 24 * 3600.0
"""What is normal is remembered for a day or two: traffic has a time of day."""
LEVEL_WEIGHT: Final = 0.5
"""Weight of the newest window in the present level: the last few count."""
LOW_QUANTILE: Final = 0.1
"""Quantile of the levels of the last day: its low end, below which a cliff is searched for."""
LEAST_DRAFTS: Final = 200.0
"""Windows with fewer say nothing."""
RESTORED_SHARE: Final = 0.85
"""Above this share of the low end of the day before it, a cliff is over."""
RESTORED_S: Final = 3600.0
"""Seconds of that, once a cliff was learned as normal: as long as that took at least."""
HEALED_S: Final = 7 * 24 * 3600.0
"""How long a cliff is remembered from which acceptance came back."""
HEALED_SHARE: Final = 0.85
"""Share of the lowest level from which acceptance came back: above it, it is the same again."""
POD_HALF_LIFE_S: Final = 240.0
"""Half-life of a pod's acceptance: a few windows; a restart with another draft shows in minutes."""
MOST_PODS: Final = 40
"""Whose acceptance is kept, the latest: the state must fit into a ConfigMap."""
CHANGE_Z: Final = 4.0
"""A difference that is more certain than this is a change of traffic: many windows are tested."""
CHANGE_SHARE: Final = 0.03
"""Differences in acceptance below this are no change worth forgetting for."""
UNSETTLED_CHANGE_SHARE: Final = 0.2
"""The same just after a change of depth, which by itself changes the mix of requests."""
TESTED_POSITIONS: Final = 3
"""From the first on: deeper ones are reached by few drafts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAcceptance:
    """One pod's acceptance relative to all pods' in the same windows."""

    pod: str
    started_at_s: float
    """When its engine started (Unix seconds); 0: unknown."""
    drafts: float
    expected: float
    """First drafts that would have been accepted at all pods' rate."""
    accepted: float
    at_s: float

    @property
    def ratio(self) -> float | None:
        """Accepted over expected; None: unknown."""
        return self.accepted / self.expected if self.expected > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cliff:
    """A time of low acceptance, for which an alarm stands."""

    lowest: float
    since_s: float
    """When the alarm was raised (Unix seconds)."""
    normal: float = 0.0
    """What was normal before; 0: not known, as an earlier release began it."""
    restored_s: float = 0.0
    """For so many seconds of windows acceptance has been back without a break."""

    def is_over_at(self, level: float) -> bool:
        """Whether such acceptance is what it was before."""
        return level >= RESTORED_SHARE * self.normal

    def after(self, level: float, seconds: float) -> "Cliff":
        """After one more window."""
        restored_s = self.restored_s + seconds if self.is_over_at(level) else 0.0
        return replace(self, lowest=min(self.lowest, level), restored_s=restored_s)


@dataclass(frozen=True, slots=True)
class HealedCliff:
    """A time of low acceptance that ended though no engine restarted.

    A wrong draft stays wrong until then, so this was traffic.
    """

    lowest: float
    over_at_s: float
    """When the alarm was over (Unix seconds)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The present level, the levels seen before, and each pod's part."""

    levels: tuple[float, ...] = ()
    """Seconds spent at each level, discounted over a day."""
    level: float | None = None
    """First position's conditional acceptance over the last minute or so; None: unknown."""
    pods: tuple[PodAcceptance, ...] = ()
    at_s: float = 0.0
    cliff: Cliff | None = None
    """That an alarm stands for."""
    healed: HealedCliff | None = None
    """The lowest of the last days."""

    def updated(
        self,
        deltas: Iterable[PodDelta],
        looks: Mapping[str, PodCounters],
        *,
        normal: bool,
        alarmed: bool = False,
        lasts: bool = False,
    ) -> "Acceptance":
        """With one more window.

        Args:
            deltas: what each pod counted.
            looks: each pod's latest counters, for when its engine started.
            normal: False while the draft is suspected: then this window is no part of what is
                normal.
            alarmed: whether the alarm of a cliff stands.
            lasts: whether another one took over, so that what began as a cliff lasts.
        """
        deltas = tuple(deltas)
        windows = {each.pod: (each.to_s, trials(each.drafts)) for each in deltas}
        pooled = sum((window for _, window in windows.values()), Trials())
        if not pooled.reached or pooled.reached[0] < LEAST_DRAFTS:
            return self
        rate = pooled.accepted[0] / pooled.reached[0]
        at_s = max(to_s for to_s, _ in windows.values())
        passed_s = max(0.0, at_s - self.at_s) if self.at_s else 0.0
        before = rate if self.level is None else self.level
        level = LEVEL_WEIGHT * rate + (1 - LEVEL_WEIGHT) * before
        # Not what passed: after a night without requests the first window would be normal at once.
        watched_s = min(passed_s, max(each.seconds for each in deltas))
        cliff, healed = self._cliffs(level, at_s, watched_s, looks, alarmed=alarmed, lasts=lasts)
        return Acceptance(
            levels=self._levels(rate, watched_s, passed_s) if normal else self.levels,
            level=level,
            pods=self._pods(windows, looks, rate),
            at_s=at_s,
            cliff=cliff,
            healed=healed,
        )

    @property
    def normal(self) -> float | None:
        """The low end of what was seen over the last day; None: too little was seen."""
        total = sum(self.levels)
        if total <= 0:
            return None
        seen = 0.0
        for i, seconds in enumerate(self.levels):
            seen += seconds
            if seen >= LOW_QUANTILE * total:
                return (i + 0.5) / LEVELS
        return None

    @property
    def known_s(self) -> float:
        """Seconds that `normal` rests on."""
        return sum(self.levels)

    @property
    def is_known_traffic(self) -> bool:
        """Whether acceptance came back by itself from as low a level before."""
        low = self.level
        return (
            low is not None and self.healed is not None and low >= HEALED_SHARE * self.healed.lowest
        )

    def _cliffs(
        self,
        level: float,
        at_s: float,
        watched_s: float,
        looks: Mapping[str, PodCounters],
        *,
        alarmed: bool,
        lasts: bool,
    ) -> tuple[Cliff | None, HealedCliff | None]:
        """The cliff that an alarm stands for, and the lowest that has healed."""
        cliff, healed = self.cliff, self.healed
        if healed is not None and at_s - healed.over_at_s > HEALED_S:
            healed = None
        if alarmed:
            cliff = cliff or Cliff(lowest=level, since_s=at_s, normal=self.normal or 0.0)
        if cliff is not None and (alarmed or lasts):
            cliff = cliff.after(level, watched_s)
            if alarmed or cliff.restored_s < RESTORED_S:
                return cliff, healed
        if cliff is None or any(each.started_at_s > cliff.since_s for each in looks.values()):
            return None, healed
        lowest = min(cliff.lowest, healed.lowest if healed is not None else cliff.lowest)
        return None, HealedCliff(lowest, at_s)

    def _levels(self, rate: float, watched_s: float, passed_s: float) -> tuple[float, ...]:
        kept = decay(passed_s, LEVELS_HALF_LIFE_S)
        levels = [kept * each for each in self.levels or (0.0,) * LEVELS]
        levels[min(LEVELS - 1, int(rate * LEVELS))] += watched_s
        return tuple(levels)

    def _pods(
        self,
        windows: Mapping[str, tuple[float, Trials]],
        looks: Mapping[str, PodCounters],
        rate: float,
    ) -> tuple[PodAcceptance, ...]:
        known = {each.pod: each for each in self.pods}
        for pod, (to_s, window) in windows.items():
            if not window.reached:
                continue
            look = looks.get(pod)
            started_at_s = look.started_at_s if look else 0.0
            before = known.get(pod)
            if before is None or abs(before.started_at_s - started_at_s) > CLOCK_TOLERANCE_S:
                before = PodAcceptance(
                    pod=pod,
                    started_at_s=started_at_s,
                    drafts=0.0,
                    expected=0.0,
                    accepted=0.0,
                    at_s=to_s,
                )
            kept = decay(to_s - before.at_s, POD_HALF_LIFE_S)
            known[pod] = replace(
                before,
                drafts=kept * before.drafts + window.reached[0],
                expected=kept * before.expected + window.reached[0] * rate,
                accepted=kept * before.accepted + window.accepted[0],
                at_s=to_s,
            )
        newest = sorted(known.values(), key=lambda each: -each.at_s)[:MOST_PODS]
        return tuple(sorted(newest, key=lambda each: each.pod))


@dataclass(frozen=True, slots=True)
class Change:
    windows: int
    """The newest ones."""
    rises: bool
    """Whether more is accepted than before."""


def newest_change(
    horizon: Trials,
    fresh: tuple[Trials, ...],
    older: Settled,
    newest: tuple[Settled, ...],
    *,
    design_effect: float,
) -> Change | None:
    """The newest windows that differ from all before them; None: none do.

    At the depth that they have most of, once any window was settled.
    """
    known = any((older, *newest))
    for count in range(1, len(fresh) + 1):
        of_recent = joined(*newest[-count:])
        if of_recent:
            main = most_tried(of_recent)
            recent = main.trials
            before = at_depth(joined(older, *newest[:-count]), main.depth)
        else:
            recent, before = sum(fresh[-count:], NO_TRIALS), sum(fresh[:-count], horizon)
        least = UNSETTLED_CHANGE_SHARE if known and not of_recent else CHANGE_SHARE
        difference = _difference(recent, before, design_effect, least)
        if difference:
            return Change(count, rises=difference > 0)
    return None


def _difference(recent: Trials, older: Trials, design_effect: float, least: float) -> float:
    """By how much acceptance differs at the first position where it surely does; 0: nowhere."""
    for i in range(TESTED_POSITIONS):
        n, m = position_at(recent.reached, i), position_at(older.reached, i)
        if n <= 0 or m <= 0:
            return 0.0
        a, b = position_at(recent.accepted, i), position_at(older.accepted, i)
        # What was kept may say anything, also that more was accepted than reached the position.
        pooled = min(1.0, (a + b + 1) / (n + m + 2))
        error = sqrt(design_effect * pooled * (1 - pooled) * (1 / n + 1 / m))
        difference = a / n - b / m
        if abs(difference) > max(least, CHANGE_Z * error):
            return difference
    return 0.0
