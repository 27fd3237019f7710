"""Survival: a property of the traffic, so it is remembered for minutes.

Estimated as conditional acceptance, position by position: a_i = P(draft i accepted | all before it
were), over drafts that were deep enough. Unlike plain survival this may pool drafts of different
depths and times. Survival is its running product, S_i = a_1 … a_i.

Two horizons. The *fast* one decides: minutes long, and dropped as soon as the newest windows differ
from it by more than chance, so that a new class of requests is answered within one window. Where
text turns to and fro so fast that no answer lasts, it is kept: the mixture is what there is to
decide by. The *slow* one, hours long, is what is normal here: alarms compare with it, and where
nothing has been drafted so deep lately, a position is expected to relate to the one before it as it
did over those hours, with a wide error. That prior fades as trials arrive.

Traffic has changed only where drafts differ from earlier ones at the same depth: by itself, the mix
of requests in a batch follows the depth (`estimate.settled`).

Drafts of one request resemble each other, so n drafts are worth n / design effect independent
trials. The design effect is learned: it is the mean of (accepted - n·a)² / (n·a·(1 - a)) over
windows, which is 1 for independent drafts (Kish, Survey Sampling, 1965, gives the name).
"""

from dataclasses import dataclass, replace
from itertools import permutations, zip_longest
from math import inf, log
from typing import Final

from fathom.measurement.counters import position_at
from fathom.tuning.estimate.acceptance_changes import newest_change
from fathom.tuning.estimate.acceptance_length import NO_TRIALS, Lengths, Position, Trials, decay
from fathom.tuning.estimate.settled import (
    MOST_DEPTHS,
    AtDepth,
    Settled,
    Shift,
    at_depth,
    beyond,
    joined,
    most_tried,
)

HALF_LIFE_S: Final = 600.0
"""Half-life of the fast horizon, which decides: traffic drifts within minutes."""
SLOW_HALF_LIFE_S: Final = 6 * 3600.0
"""Half-life of the slow horizon, which is what is normal: a part of the day."""
DESIGN_EFFECT: Final = 10.0
"""Until it is learned. Windows of real engines showed 10 to 19."""
DESIGN_EFFECTS: Final = (2.0, 40.0)
"""Bounds of what is learned: above the upper one no change of traffic would ever be noticed."""
SURPRISE_FACTOR: Final = 6.0
"""One window counts as at most so many times the design effect."""
DESIGN_EFFECT_WINDOWS: Final = 30.0
"""Windows over which the design effect is learned."""
FADE_FACTOR: Final = 0.98
"""Expected ratio of one position's conditional acceptance to that of the position before, until the
slow horizon knows."""
FIRST_PRIOR: Final = (0.6, 2.0)
"""Acceptance at the first position, and the weight of that belief in independent trials."""
PRIOR_TRIALS: Final = 10.0
"""Weight, in independent trials, of the belief that a position resembles the one before."""
SLOW_TRIALS: Final = 50.0
"""Independent trials at which the slow horizon is believed about how positions relate."""
LEAST_DOUBT_SHARE: Final = 0.0005
"""No conditional acceptance is nearer to 0 or 1: there its logarithm and its error would end."""
MOST_EXPECTED_SHARE: Final = 0.999
"""What is expected of a position from the one before it, at most."""
TURN_S: Final = 900.0
"""Seconds in which traffic is expected to turn once, until it was watched for longer."""
RECENT_TURNS_HALF_LIFE_WINDOWS: Final = 30.0
"""Half-life of the count of turns that says how restless traffic is."""
MOST_RECENT_TURNS: Final = 4.5
"""So discounted, beyond which turns are not followed: one in eleven windows for long, or five in
a row. To follow one takes a probe, a move and some windows, and must pay until the next."""
FRESH_WINDOWS: Final = 3
"""The newest, in which a change may still lie: it is found within so many."""
FRESH_DRAFTS: Final = 200.0
"""Windows with fewer drafts are joined to the next: a test on a handful has no power."""
SETTLED_TRIALS: Final = 30.0
"""Independent trials at a depth before it is reported what it makes."""
MAIN_SHARE: Final = 0.5
"""Share of all drafts at one depth, beyond which these alone are what is promised: else all are, as
of a pod whose batch wanders between depths."""
SURE_SHIFT_SD: Final = 0.03
"""A shift that is seen with this error, or less, replaces one that was seen earlier: other kinds
of requests may have come since."""
SHIFT_SD: Final = 0.15
"""Error of the logarithm of a ratio of lengths that one mix of requests promised, as a share of it,
before it was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """What is known of the present traffic."""

    horizon: Trials = NO_TRIALS
    """Older windows, discounted."""
    fresh: tuple[Trials, ...] = ()
    """The newest windows, oldest first, not yet discounted."""
    slow: Trials = NO_TRIALS
    """What is normal here: discounted over hours."""
    design_effect: float = DESIGN_EFFECT
    at_s: float = 0.0
    epoch: int = 0
    """Counts the changes of traffic that were noticed."""
    turns: float = 0.0
    """The same, discounted over hours …"""
    watched_s: float = 0.0
    """… and the seconds in which they would have been noticed: of a longer gap, a half-life."""
    recent_turns: float = 0.0
    """Followed or not, discounted over some windows."""
    rising: bool = False
    """Whether acceptance rose at the last one."""
    settled: Settled = ()
    """The part of the horizon that is settled at one depth …"""
    fresh_settled: tuple[Settled, ...] = ()
    """… and that of each of the newest windows."""
    shifts: tuple[Shift, ...] = ()
    main: int | None = None
    """The depth with most settled trials, and after a turn the last one that was; None: none."""

    def updated(
        self, window: Trials, at_s: float, *, normal: bool = True, settled: Settled = ()
    ) -> "Survival":
        """With one more window; tells a change from chance.

        Args:
            window: trials of all pods in the window.
            at_s: its end (Unix seconds).
            normal: False keeps the window out of the slow horizon, which an alarm compares with.
            settled: the trials of pods to whose depth the mix of requests had settled.
        """
        if not any(window.reached):
            return self
        seconds = max(0.0, at_s - self.at_s) if self.at_s else 0.0
        faded = decay(seconds, HALF_LIFE_S)
        horizon = self.horizon.scaled(faded)
        older = tuple(AtDepth(each.depth, each.trials.scaled(faded)) for each in self.settled)
        kept = decay(seconds, SLOW_HALF_LIFE_S)
        slow = self.slow.scaled(kept) + window if normal else self.slow
        watched_s = kept * self.watched_s + min(seconds, HALF_LIFE_S)
        fresh, newest = self.fresh, self._fresh_settled()
        if fresh and fresh[-1].reached[0] < FRESH_DRAFTS:
            fresh = (*fresh[:-1], fresh[-1] + window)
            newest = (*newest[:-1], joined(newest[-1], settled))
        else:
            fresh, newest = (*fresh, window), (*newest, settled)
        if len(fresh) > FRESH_WINDOWS:
            horizon, fresh = horizon + fresh[0], fresh[1:]
            older, newest = joined(older, newest[0]), newest[1:]
        recent = decay(1.0, RECENT_TURNS_HALF_LIFE_WINDOWS) * self.recent_turns
        rising = self.rising
        if (
            change := newest_change(horizon, fresh, older, newest, design_effect=self.design_effect)
        ) is not None:
            followed = recent < MOST_RECENT_TURNS
            if followed or change.rises != rising:
                recent, rising = recent + 1, change.rises
            if followed:
                return replace(
                    self,
                    horizon=NO_TRIALS,
                    fresh=fresh[-change.windows :],
                    settled=(),
                    fresh_settled=newest[-change.windows :],
                    slow=slow,
                    at_s=at_s,
                    epoch=self.epoch + 1,
                    turns=kept * self.turns + 1,
                    watched_s=watched_s,
                    recent_turns=recent,
                    rising=rising,
                )
        told = self._told(joined(older, *newest)) if settled else ()
        return replace(
            self,
            recent_turns=recent,
            rising=rising,
            horizon=horizon,
            fresh=fresh,
            settled=older,
            fresh_settled=newest,
            slow=slow,
            design_effect=self._design_effect(window),
            at_s=at_s,
            turns=kept * self.turns,
            watched_s=watched_s,
            shifts=self._shifts(told, at_s) if recent < MOST_RECENT_TURNS else self.shifts,
            main=most_tried(told).depth if told else self.main,
        )

    def _fresh_settled(self) -> tuple[Settled, ...]:
        """One for each of the newest windows; an earlier release kept none."""
        known = len(self.fresh_settled) == len(self.fresh)
        return self.fresh_settled if known else ((),) * len(self.fresh)

    @property
    def turns_per_s(self) -> float:
        """How often traffic turns: as of a Poisson process, with TURN_S watched beforehand."""
        return (1 + self.turns) / (TURN_S + self.watched_s)

    def normal(self, now_s: float) -> "Survival":
        """As if the present traffic were what is normal here."""
        return replace(self, horizon=self.slow, fresh=(), settled=(), fresh_settled=(), at_s=now_s)

    def turned(self) -> "Survival":
        """As if traffic had just turned."""
        return Survival(
            slow=self.slow,
            design_effect=self.design_effect,
            at_s=self.at_s,
            epoch=self.epoch + 1,
            turns=self.turns,
            watched_s=self.watched_s,
        )

    def lengths(self, deepest: int, now_s: float) -> Lengths:
        """E[L] at depths 0 … `deepest`, as it is believed now; in all buckets alike.

        Without drafts, as at depth 0, what is known gets old: the error grows until it is worth a
        probe.
        """
        age = decay(now_s - self.at_s, HALF_LIFE_S) if self.at_s else 1.0
        pooled = self.pooled()
        # Where text turns all the time, depths that ran at different times saw different text.
        if self.main is None or self.recent_turns >= MOST_RECENT_TURNS:
            return self._lengths(pooled, deepest, age)
        main = at_depth(joined(self.settled, *self._fresh_settled()), self.main)
        promise = pooled
        if position_at(main.reached, 0) > MAIN_SHARE * position_at(pooled.reached, 0):
            promise = main + beyond(pooled, self.main)
        return self._shifted(self._lengths(promise, deepest, age), self.main, now_s)

    def _shifted(self, promised: Lengths, promised_at: int, now_s: float) -> Lengths:
        """With what each depth is known to make of such a promise, once it is in force."""
        deepest = len(promised.positions)
        at_main = promised.at(min(promised_at, deepest))
        doubts = {
            depth: (SHIFT_SD * log(promised.at(depth) / at_main)) ** 2
            for depth in range(deepest + 1)
        }
        shifts = {depth: (0.0, doubt) for depth, doubt in doubts.items()}
        for each in self.shifts:
            if each.promised_at == promised_at and (doubt := doubts.get(each.depth, 0.0)) > 0:
                variance = each.variance_at(now_s)
                # A mix promises a deeper depth too much, a shallower one too little, and none is so
                # far off that the deeper one would make less.
                most = -log(promised.at(each.depth) / at_main)
                shift = min(max(each.shift, min(0.0, most)), max(0.0, most))
                # The larger it is seen to be, the less it is held against what was expected.
                doubt = max(doubt, shift**2 - variance)
                weight = doubt / (doubt + variance)
                shifts[each.depth] = (weight * shift, weight * variance)
        return replace(promised, shifts=shifts)

    def _told(self, settled: Settled) -> Settled:
        """Those depths whose trials are enough to say what they make."""
        least = SETTLED_TRIALS * self.design_effect
        return tuple(
            each
            for each in settled
            if each.depth > 0 and position_at(each.trials.reached, 0) >= least
        )

    def _shifts(self, told: Settled, at_s: float) -> tuple[Shift, ...]:
        """With what is seen now, where that is sure enough, or surer than what is remembered."""
        known = {(each.depth, each.promised_at): each for each in self.shifts}
        for made, promise in permutations(told, 2):
            key = made.depth, promise.depth
            seen = self._shift(made, promise, at_s)
            remembered = known[key].variance_at(at_s) if key in known else inf
            if seen.variance <= max(SURE_SHIFT_SD**2, remembered):
                known[key] = seen
        newest = sorted(known.values(), key=lambda each: -each.at_s)[: MOST_DEPTHS**2]
        return tuple(sorted(newest, key=lambda each: (each.depth, each.promised_at)))

    def _shift(self, made: AtDepth, promise: AtDepth, at_s: float) -> Shift:
        depth = made.depth
        # At positions that the promise does not reach, the depth itself is taken at its word.
        reaching = promise.trials + beyond(made.trials, promise.depth)
        length, variance = self._lengths(made.trials, depth, 1.0).log_ratio(depth, 0)
        promised, doubt = self._lengths(reaching, depth, 1.0).log_ratio(depth, 0)
        return Shift(
            depth=depth,
            promised_at=promise.depth,
            shift=length - promised,
            variance=variance + doubt,
            at_s=at_s,
        )

    def _lengths(self, pooled: Trials, deepest: int, age: float) -> Lengths:
        worth = age / self.design_effect
        positions: list[Position] = []
        expected, weight, carry = *FIRST_PRIOR, 0.0
        for i in range(deepest):
            n = position_at(pooled.reached, i) * worth
            accepted = position_at(pooled.accepted, i) * worth
            mean = (accepted + weight * expected) / (n + weight)
            mean = min(1 - LEAST_DOUBT_SHARE, max(LEAST_DOUBT_SHARE, mean))
            positions.append(
                Position(mean, mean * (1 - mean) / (n + weight + 1), carry * weight / (n + weight))
            )
            fade = self._fade(i + 1)
            expected, weight, carry = min(MOST_EXPECTED_SHARE, fade * mean), PRIOR_TRIALS, fade
        return Lengths(tuple(positions))

    def is_drafted(self, bucket: int, depth: int) -> bool:  # noqa: ARG002
        """Whether drafts of such a depth were made lately, in whichever bucket."""
        return depth <= self.drafted()

    def drafted(self) -> int:
        """The deepest that drafts were made lately; beyond it acceptance is extrapolated."""
        # Few drafts reach a deep position where acceptance is low; the drafts were made.
        positions = tuple(zip_longest(self.horizon.reached, *(each.reached for each in self.fresh)))
        return next((i for i, reached in enumerate(positions) if not any(reached)), len(positions))

    def pooled(self) -> Trials:
        """All trials of the fast horizon."""
        return sum(self.fresh, self.horizon)

    def _fade(self, i: int) -> float:
        """Conditional acceptance at position `i` over that at the position before."""
        trials = position_at(self.slow.reached, i)
        if trials < SLOW_TRIALS * self.design_effect:
            return FADE_FACTOR
        before = self.slow.accepted[i - 1] / self.slow.reached[i - 1]
        return (self.slow.accepted[i] / trials) / before if before > 0 else FADE_FACTOR

    def _design_effect(self, window: Trials) -> float:
        """Learnt from one more window: how far it lies from what was expected of it."""
        pooled = self.pooled()
        n, m = position_at(window.reached, 0), position_at(pooled.reached, 0)
        if n < FRESH_DRAFTS or m < FRESH_DRAFTS:
            return self.design_effect
        expected = pooled.accepted[0] / m
        chance = expected * (1 - expected) * (1 / n + 1 / m)
        if chance <= 0:
            return self.design_effect
        seen = (window.accepted[0] / n - expected) ** 2 / chance
        low, high = DESIGN_EFFECTS
        # A change of traffic that is too small to be noticed must not pass for dispersion.
        seen = min(seen, SURPRISE_FACTOR * self.design_effect)
        learnt = self.design_effect + (seen - self.design_effect) / DESIGN_EFFECT_WINDOWS
        return min(high, max(low, learnt))
