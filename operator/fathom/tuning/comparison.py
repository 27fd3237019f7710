"""One pod beside the others, at the same time and at matched batch: how a canary is judged.

A depth is worth tokens per step over seconds per step, and each is learnt where it is told best.

*Seconds* belong to the hardware. In every window and batch bucket: the logarithm of the pod's steps
per second over that of the pods at the depth in force. Hours, contexts and neighbours are common to
both and cancel. What is left is the depth and the pod itself, which is told by the windows in which
it runs the depth in force, as all do. So a few windows of an hour tell of the whole day.

*Tokens* belong to the traffic, and differ by the hour. What the others accept at each drafted
position is kept for every hour of the day, whatever the canary runs; positions that only a canary
drafts follow from the one before, by how both compare where both were drafted. A pod whose requests
are easier, or whose draft is younger, gets no credit for it.

A canary's hours are dear, so here batches are told apart by whole doublings, in parts; the buckets
of one doubling share what it shows.

The error comes from how much windows differ, and from what was not seen: other batches of the
bucket, other hours of the day, and what is accepted deeper in hours that the canary missed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import zip_longest
from math import hypot, log, log2, sqrt
from operator import or_
from typing import Final, NamedTuple

from fathom.core.measurement import (
    CellCounts,
    DraftCounts,
    PodDelta,
    pooled_cells,
    pooled_drafts,
    position_at,
)
from fathom.tuning.buckets import doubling
from fathom.tuning.load import DAY_S, HOURS, hour_of
from fathom.tuning.step_time import StepTimes
from fathom.tuning.value import Gain

HALF_LIFE_S: Final = 3 * 24 * 3600.0
LEAST_STEPS: Final = 30.0
"""Of a pod in a bucket, for a window to say anything of it."""
LEAST_BUSY_S: Final = 150.0
"""Busy seconds of a pod at a depth after which it counts as compared."""
MOST_CONTRASTS: Final = 64
PARTS: Final = 4
"""Into so many parts of equal ratio a doubling's batches are divided: what holds for 17 requests
need not hold for 32, as steps are padded to captured graphs."""
PART_SD: Final = 0.02
"""Error of taking one part's contrast for its neighbour's, at least: how far they differ is learnt
where both are known."""
LEAST_WINDOWS: Final = 2.0
WINDOWS_SD: Final = 0.03
"""Expected difference between windows …"""
WINDOWS_WORTH: Final = 3.0
"""… which counts as so many windows."""
ALIKE: Final = 2.0
"""Windows in a row resemble each other: so many are worth one."""
EARLIER_DAYS: Final = 0.2
"""Weight of what an hour showed on the days before, beside what it shows today."""
HOURS_SD: Final = 0.05
"""Expected difference between hours in what a depth gains by its tokens …"""
LENGTHS_SD: Final = 0.1
"""… and in the logarithm of tokens per step …"""
HOURS_WORTH: Final = 3.0
"""… which count as so many hours."""
LEAST_DRAFTS: Final = 200.0
"""That reached a position within an hour, to tell what is accepted there."""
PODS_SD: Final = 0.02
"""Spread between pods that are all well, until this one was seen at the others' depth."""


class Contrast(NamedTuple):
    """One depth beside the one in force, at some batches, over windows weighted by busy seconds.

    A tuple, and rounded: many of them are kept, and they must fit into a ConfigMap.
    """

    batch_le: int
    """The doubling's largest."""
    part: int
    """Of the doubling's batches, from the smallest."""
    depth: int
    weight: float = 0.0
    """Busy seconds, discounted."""
    weight_squares: float = 0.0
    mean: float = 0.0
    """Logarithm of the ratio of steps per second."""
    squares: float = 0.0
    """Weighted squared deviations from the mean."""
    hours: int = 0
    """Hours of the day (UTC) in which it was seen, a bit for each."""

    @property
    def windows(self) -> float:
        """How many windows of equal weight it is worth (Kish's effective sample size)."""
        return self.weight**2 / self.weight_squares if self.weight_squares > 0 else 0.0

    @property
    def known(self) -> bool:
        return self.weight >= LEAST_BUSY_S and self.windows >= LEAST_WINDOWS

    @property
    def variance(self) -> float:
        """Of the mean."""
        windows = self.windows
        if windows <= 0:
            return float("inf")
        between = windows * self.squares / self.weight + WINDOWS_WORTH * WINDOWS_SD**2
        return ALIKE * between / (windows + WINDOWS_WORTH) / windows

    def updated(self, ratio: float, weight: float, hour: int) -> "Contrast":
        """With one more window."""
        total = self.weight + weight
        step = (ratio - self.mean) * weight / total
        return self._replace(
            weight=round(total, 2),
            weight_squares=round(self.weight_squares + weight**2, 2),
            mean=round(self.mean + step, 6),
            squares=round(
                self.squares + weight * (ratio - self.mean) * (ratio - self.mean - step), 6
            ),
            hours=self.hours | 1 << hour,
        )

    def beside(self, other: "Contrast") -> "Contrast":
        """The difference of both, which is less certain than either."""
        if not (self.windows and other.windows):
            return Contrast(*self[:3])
        windows = 1 / (1 / self.windows + 1 / other.windows)
        weight = min(self.weight, other.weight)
        spread = max(self.squares / self.weight, other.squares / other.weight)
        return self._replace(
            weight=weight,
            weight_squares=round(weight**2 / windows, 2),
            mean=round(self.mean - other.mean, 6),
            squares=round(weight * spread, 6),
            hours=self.hours & other.hours,
        )

    def faded(self, kept: float) -> "Contrast":
        return self._replace(
            weight=round(kept * self.weight, 2),
            weight_squares=round(kept**2 * self.weight_squares, 2),
            squares=round(kept * self.squares, 6),
        )


class Hour(NamedTuple):
    """What is accepted in one hour of the day (UTC), whatever the canary runs."""

    hour: int
    trials: tuple[float, ...] = ()
    """By position from the first: drafts that reached it, discounted."""
    accepted: tuple[float, ...] = ()
    """And those accepted there."""
    at_s: float = 0.0

    def updated(self, drafts: DraftCounts, depth: int, at_s: float) -> "Hour":
        """With one more window. What an earlier day showed soon counts for little."""
        kept = 1.0 if at_s - self.at_s < DAY_S / 2 else EARLIER_DAYS
        own = tuple(position_at(drafts.accepted, i) for i in range(depth))
        reached = (drafts.drafts, *own)[:depth]
        return Hour(
            self.hour, _added(self.trials, reached, kept), _added(self.accepted, own, kept),
            round(at_s, 1),
        )  # fmt: skip

    def length(self, depth: int, ratios: Sequence[float]) -> float | None:
        """Tokens per step at a depth; None where not even the first position was drafted.

        Args:
            depth: drafted tokens.
            ratios: what is accepted at a position, relative to the one before.
        """
        length = reached = rate = 1.0
        for i in range(depth):
            if position_at(self.trials, i) >= LEAST_DRAFTS:
                rate = position_at(self.accepted, i) / self.trials[i]
            elif i == 0:
                return None
            else:
                rate = min(1.0, rate * (ratios[i] if i < len(ratios) else 1.0))
            reached *= rate
            length += reached
        return length


class Position(NamedTuple):
    """Drafts that were at least so deep, of any pod: how far they were accepted. Discounted."""

    drafts: float = 0.0
    """That reached the position before."""
    before: float = 0.0
    """Of them, accepted there …"""
    here: float = 0.0
    """… and at the position itself as well."""

    @property
    def ratio(self) -> float:
        """Share accepted here, of those that get here, over that of the position before."""
        if min(self.drafts, self.before) < LEAST_DRAFTS:
            return 1.0
        return self.here * self.drafts / self.before**2


_ITSELF: Final = Contrast(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one pod has shown beside the others."""

    pod: str = ""
    itself: Contrast = _ITSELF
    """The pod at the others' own depth: how fast it is by itself."""
    contrasts: tuple[Contrast, ...] = ()
    loads: tuple[tuple[int, int, float], ...] = ()
    """Doubling, part, and busy seconds of all pods in it, discounted."""
    hours: tuple[Hour, ...] = ()
    positions: tuple[Position, ...] = ()
    """From the second."""
    at_s: float = 0.0

    def gain(
        self, batch_le: int, depth: int, in_force: int, busy: Mapping[int, float]
    ) -> Gain | None:
        """What a depth gains over the one in force, at its doubling's usual batches and hours.

        Parts of the doubling that were not compared take after the nearest one that was.

        Args:
            batch_le: the bucket.
            depth: the depth in question.
            in_force: the others' depth.
            busy: the bucket's load by hour of the day.

        Returns:
            None where it was not compared at all, or nothing is known of what is accepted.
        """
        found = {c.part: c for c in self._of(batch_le) if c.depth == depth and c.known}
        whole = doubling(batch_le)
        loads = {part: seconds for each, part, seconds in self.loads if each == whole}
        if not found or not loads:
            return None
        itself, variance = self._itself()
        apart = self._apart()
        mean = sd = 0.0
        for part, seconds in loads.items():
            nearest = found[min(found, key=lambda other: (abs(other - part), other))]
            share = seconds / sum(loads.values())
            mean += share * nearest.mean
            sd += share * hypot(sqrt(nearest.variance), apart * (nearest.part - part))
        seen = reduce(or_, (each.hours for each in found.values()))
        tokens = self._tokens(depth, in_force, busy, seen)
        if tokens is None:
            return None
        more, unseen = tokens
        return Gain(mean - itself + more, hypot(sd, sqrt(variance), unseen), True, True)  # noqa: FBT003

    def compared(self, batch_le: int) -> tuple[int, ...]:
        """Depths that a bucket was compared at."""
        return tuple(sorted({each.depth for each in self._of(batch_le) if each.known}))

    def updated(
        self, pod: str, deltas: Sequence[PodDelta], in_force: Mapping[int, int], times: StepTimes
    ) -> "Comparison":
        """With one more window.

        Args:
            pod: which one is beside the others. Another one starts anew.
            deltas: what all pods counted.
            in_force: depth of each bucket that the others run.
            times: knows how step time grows with the batch within a bucket.
        """
        at_s = max((each.to_s for each in deltas), default=self.at_s)
        # What the load is does not depend on the pod.
        before = self if self.pod == pod else replace(self, itself=_ITSELF, contrasts=())
        kept = 0.5 ** (max(0.0, at_s - before.at_s) / HALF_LIFE_S) if before.at_s else 1.0
        known = {(c.batch_le, c.part, c.depth): c.faded(kept) for c in before.contrasts}
        loads = {(bucket, part): kept * each for bucket, part, each in before.loads}
        itself = before.itself.faded(kept)
        own = _sides([each for each in deltas if each.pod == pod])
        others = _sides([each for each in deltas if each.pod != pod])
        slopes = {each.batch_le: each.slope for each in times.elasticities}
        in_force = _by_doubling(in_force)
        hours = {each.hour: each for each in before.hours}
        hour = hour_of(at_s)
        telling = [(d, s) for (b, d), s in others.items() if d == in_force.get(b) and s.tells(d)]
        if telling and not any(depth for depth, _ in telling):
            telling = [(depth, side) for (_, depth), side in own.items() if side.tells(depth)]
        for depth, side in telling:
            hours[hour] = hours.get(hour, Hour(hour)).updated(side.drafts, depth, at_s)
        for (bucket, _), side in (*own.items(), *others.items()):
            where = bucket, side.part(bucket)
            loads[where] = loads.get(where, 0.0) + side.counts.step_seconds
        for (bucket, depth), side in own.items():
            other = others.get((bucket, in_force.get(bucket, -1)))
            if other is None:
                continue
            if not (side.tells(depth) and other.tells(in_force[bucket])):
                continue
            ratio = _log_ratio(side, other, slopes.get(bucket, 0.0))
            weight = min(side.counts.step_seconds, other.counts.step_seconds)
            if depth == in_force[bucket]:
                itself = itself.updated(ratio, weight, hour)
            else:
                key = bucket, side.part(bucket), depth
                known[key] = known.get(key, Contrast(*key)).updated(ratio, weight, hour)
        return Comparison(
            pod,
            itself,
            _heaviest(known.values()),
            tuple((*where, round(loads[where], 1)) for where in sorted(loads)),
            tuple(hours[each] for each in sorted(hours)),
            _deeper(before.positions, kept, deltas),
            at_s,
        )

    def rebased(self, before: Mapping[int, int], after: Mapping[int, int]) -> "Comparison":
        """The same, beside other depths in force.

        How fast the pod is by itself is in every contrast once, and so it must be afterwards.
        """
        moved: list[Contrast] = []
        itself, _ = self._itself()
        before, after = _by_doubling(before), _by_doubling(after)
        for each in self.contrasts:
            old, new = before.get(each.batch_le, 0), after.get(each.batch_le, 0)
            if old == new:
                moved.append(each)
            elif each.depth == new:
                moved.append(each._replace(depth=old, mean=round(2 * itself - each.mean, 6)))
            elif (reference := self._find(each.batch_le, each.part, new)) is not None:
                beside = each.beside(reference)
                moved.append(beside._replace(mean=round(beside.mean + itself, 6)))
        return replace(self, contrasts=tuple(sorted(moved)))

    def _itself(self) -> tuple[float, float]:
        """How fast the pod is by itself, and the variance: shrunk toward the others."""
        variance = self.itself.variance
        shrunk = 1 / (1 + variance / PODS_SD**2)
        return shrunk * self.itself.mean, PODS_SD**2 * (1 - shrunk)

    def _tokens(
        self, depth: int, in_force: int, busy: Mapping[int, float], seen: int
    ) -> tuple[float, float] | None:
        """How many more tokens a step has at a depth over the day (log), and the error.

        Seconds per step do not depend on the hour, so that what counts is the mean of the hours'
        tokens, and not of their logarithms.
        """
        ratios = (1.0, *(each.ratio for each in self.positions))
        rows: list[tuple[float, float, float, bool]] = []
        for each in self.hours:
            own, other = each.length(depth, ratios), each.length(in_force, ratios)
            if own is not None and other is not None:
                # An hour without load in this bucket still tells a little of it.
                share = busy.get(each.hour, 0.0) + 1e-6
                rows.append((share, own, other, bool(seen >> each.hour & 1)))
        if not rows:
            return None
        total = sum(share for share, *_ in rows)
        own = sum(share * own for share, own, _, _ in rows) / total
        other = sum(share * other for share, _, other, _ in rows) / total
        gains = [(share, log(own / other)) for share, own, other, _ in rows]
        lengths = [(share, log(other)) for share, _, other, _ in rows]
        unseen = _spread(gains, HOURS_SD) * (1 - min(1.0, len(self.hours) / HOURS))
        missed = sum(share for share, *_, was in rows if not was) / total
        deeper = max(0.0, 1 - other / own) * _spread(lengths, LENGTHS_SD) * missed
        return log(own / other), hypot(unseen, deeper)

    def _apart(self) -> float:
        """How far neighbouring parts of a bucket lie apart beyond their errors, at one depth."""
        squares, steps = 0.0, 0
        by_place = {(c.batch_le, c.depth, c.part): c for c in self.contrasts if c.known}
        for (bucket, depth, part), each in by_place.items():
            other = by_place.get((bucket, depth, part + 1))
            if other is not None:
                squares += (each.mean - other.mean) ** 2 - each.variance - other.variance
                steps += 1
        return max(PART_SD, sqrt(max(0.0, squares) / steps) if steps else 0.0)

    def _of(self, batch_le: int) -> list[Contrast]:
        return [each for each in self.contrasts if each.batch_le == doubling(batch_le)]

    def _find(self, batch_le: int, part: int, depth: int) -> Contrast | None:
        return next((c for c in self._of(batch_le) if (c.part, c.depth) == (part, depth)), None)


def _heaviest(contrasts: Iterable[Contrast]) -> tuple[Contrast, ...]:
    """As many as are kept, those that were seen most."""
    heaviest = sorted(contrasts, key=lambda each: -each.weight)[:MOST_CONTRASTS]
    return tuple(sorted(each for each in heaviest if each.weight >= 1))


@dataclass(frozen=True, slots=True)
class _Side:
    """One window of a pod, or of several, in one doubling at one depth."""

    counts: CellCounts
    drafts: DraftCounts

    def tells(self, depth: int) -> bool:
        """Steps that only prefill, say, tell nothing of a depth at which others draft."""
        counts = self.counts
        least = min(counts.step_seconds, counts.scheduled_requests)
        drafted = self.drafts.drafts > 0 or not depth
        return counts.steps >= LEAST_STEPS and least > 0 and drafted

    @property
    def speed(self) -> float:
        """Steps per second."""
        return self.counts.steps / self.counts.step_seconds

    @property
    def log_batch(self) -> float:
        return log2(self.counts.scheduled_requests / self.counts.steps)

    def part(self, batch_le: int) -> int:
        """Of the doubling's batches, which lie between half its bound and its bound."""
        return min(PARTS - 1, max(0, int(PARTS * (self.log_batch - log2(batch_le) + 1))))


def _sides(deltas: Sequence[PodDelta]) -> dict[tuple[int, int], _Side]:
    """By doubling and depth; steps of both kinds, for a depth serves prompts as well."""
    counts: dict[tuple[int, int], CellCounts] = {}
    for cell, each in pooled_cells(deltas).items():
        key = (doubling(cell.batch_le), cell.depth)
        counts[key] = counts.get(key, CellCounts()) + each
    drafts: dict[tuple[int, int], DraftCounts] = {}
    for draft, verified in pooled_drafts(deltas).items():
        key = (doubling(draft.batch_le), draft.depth)
        drafts[key] = drafts.get(key, DraftCounts()) + verified
    return {key: _Side(each, drafts.get(key, DraftCounts())) for key, each in counts.items()}


def _by_doubling(depths: Mapping[int, int]) -> dict[int, int]:
    """The depth of each doubling's largest batches."""
    return {doubling(bucket): depths[bucket] for bucket in sorted(depths)}


def _log_ratio(own: _Side, other: _Side, slope: float) -> float:
    """Of steps per second, at the other's batch.

    Args:
        own: the pod.
        other: the others, at the depth in force.
        slope: growth of log step time per factor of two in batch within the bucket.
    """
    return log(own.speed / other.speed) + slope * (own.log_batch - other.log_batch)


def _deeper(
    before: tuple[Position, ...], kept: float, deltas: Sequence[PodDelta]
) -> tuple[Position, ...]:
    """What is accepted at each position from the second, beside the one before."""
    total = [Position(*(kept * each for each in position)) for position in before]
    for cell, counts in pooled_drafts(deltas).items():
        reached = (counts.drafts, *(position_at(counts.accepted, i) for i in range(cell.depth)))
        for i in range(cell.depth - 1):
            if i == len(total):
                total.append(Position())
            pairs = zip(total[i], reached[i : i + 3], strict=True)
            total[i] = Position(*(a + b for a, b in pairs))
    return tuple(Position(*(round(each, 1) for each in position)) for position in total)


def _added(before: tuple[float, ...], more: tuple[float, ...], kept: float) -> tuple[float, ...]:
    pairs = zip_longest(before, more, fillvalue=0.0)
    return tuple(round(kept * a + b, 1) for a, b in pairs)


def _spread(values: Sequence[tuple[float, float]], expected: float) -> float:
    """Standard deviation between hours, weighted by load, beside what is expected of it."""
    total = sum(share for share, _ in values)
    mean = sum(share * each for share, each in values) / total
    squares = sum(share * (each - mean) ** 2 for share, each in values) / total
    hours = len(values)
    return sqrt((hours * squares + HOURS_WORTH * expected**2) / (hours + HOURS_WORTH))
