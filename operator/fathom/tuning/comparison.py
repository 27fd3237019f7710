"""One pod beside the others, at the same time and at matched batch: how a canary is judged.

In every window and batch bucket, the logarithm of the pod's tokens per second and request over that
of the pods at the depth in force. Hours, prompts, contexts and neighbours are common to both and
cancel. What is left is the depth, the pod itself, and its requests. The pod itself is told by the
windows in which it runs the depth in force, as all do. Its requests, and how its draft ages, are
told by the drafted positions that both have in common: what is accepted there does not depend on
the depth, so that a difference is no merit of it.

The error comes from how much windows differ, and from what was not seen: other batches of the
bucket, and other hours of the day, as far as acceptance differs from hour to hour.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import hypot, log, log2, sqrt
from operator import or_
from typing import Final, NamedTuple

from fathom.core.measurement import (
    CellCounts,
    DraftCell,
    DraftCounts,
    PodDelta,
    pooled_cells,
    pooled_drafts,
    position_at,
)
from fathom.tuning.load import DAY_S, hour_of
from fathom.tuning.step_time import StepTimes
from fathom.tuning.value import Gain

HALF_LIFE_S: Final = 3 * 24 * 3600.0
LEAST_STEPS: Final = 30.0
"""Of a pod in a bucket, for a window to say anything of it."""
LEAST_BUSY_S: Final = 150.0
"""Busy seconds of a pod at a depth after which it counts as compared."""
MOST_CONTRASTS: Final = 64
PARTS: Final = 4
"""Into so many parts of equal ratio a bucket's batches are divided: what holds for 17 requests need
not hold for 32, as steps are padded to captured graphs."""
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
BY_HOUR: Final = 0.4
"""How much what a depth gains varies from hour to hour, of how much acceptance does. Between
published curves of two kinds of text it is 0.3 to 0.6 for depths two to four apart."""
PODS_SD: Final = 0.02
"""Spread between pods that are all well, until this one was seen at the others' depth."""


class Contrast(NamedTuple):
    """One depth beside the one in force, at some batches, over windows weighted by busy seconds.

    A tuple, and rounded: many of them are kept, and they must fit into a ConfigMap.
    """

    batch_le: int
    part: int
    """Of the bucket's batches, from the smallest."""
    depth: int
    weight: float = 0.0
    """Busy seconds, discounted."""
    weight_squares: float = 0.0
    mean: float = 0.0
    """Logarithm of the ratio of tokens per second and request."""
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
    """How much is accepted in one hour of the day (UTC) at the depth in force."""

    hour: int
    weight: float = 0.0
    """Busy seconds, discounted."""
    log_length: float = 0.0
    """Mean logarithm of tokens per step."""
    at_s: float = 0.0

    def updated(self, log_length: float, weight: float, at_s: float) -> "Hour":
        """With one more window. What an earlier day showed soon counts for little."""
        before = self.weight if at_s - self.at_s < DAY_S / 2 else EARLIER_DAYS * self.weight
        mean = self.log_length + (log_length - self.log_length) * weight / (before + weight)
        return Hour(self.hour, round(before + weight, 2), round(mean, 6), round(at_s, 1))


_ITSELF: Final = Contrast(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one pod has shown beside the others."""

    pod: str = ""
    itself: Contrast = _ITSELF
    """The pod at the others' own depth: how fast it is by itself."""
    contrasts: tuple[Contrast, ...] = ()
    loads: tuple[tuple[int, int, float], ...] = ()
    """Bucket, part, and busy seconds of all pods in it, discounted."""
    hours: tuple[Hour, ...] = ()
    at_s: float = 0.0

    def gain(self, batch_le: int, depth: int) -> Gain | None:
        """What a depth gains over the one in force, at the bucket's usual batches.

        Parts of the bucket that were not compared take after the nearest one that was.

        Returns:
            None where it was not compared at all.
        """
        found = {c.part: c for c in self._of(batch_le) if c.depth == depth and c.known}
        loads = {part: seconds for bucket, part, seconds in self.loads if bucket == batch_le}
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
        hours = reduce(or_, (each.hours for each in found.values()))
        error = hypot(sd, sqrt(variance), self._unseen(hours))
        return Gain(mean - itself, error, True, True)  # noqa: FBT003

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
        hours = {each.hour: each._replace(weight=kept * each.weight) for each in before.hours}
        hour = hour_of(at_s)
        for (bucket, depth), side in others.items():
            if depth == in_force.get(bucket) and side.tells:
                known_hour = hours.get(hour, Hour(hour))
                hours[hour] = known_hour.updated(
                    log(side.length(depth)), side.counts.step_seconds, at_s
                )
        for (bucket, _), side in (*own.items(), *others.items()):
            where = bucket, side.part(bucket)
            loads[where] = loads.get(where, 0.0) + side.counts.step_seconds
        for (bucket, depth), side in own.items():
            other = others.get((bucket, in_force.get(bucket, -1)))
            if other is None:
                continue
            common = min(depth, in_force[bucket])
            if not side.comparable(other, common):
                continue
            ratio = _log_ratio(side, other, common, slopes.get(bucket, 0.0))
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
            at_s,
        )

    def rebased(self, before: Mapping[int, int], after: Mapping[int, int]) -> "Comparison":
        """The same, beside other depths in force.

        How fast the pod is by itself is in every contrast once, and so it must be afterwards.
        """
        moved: list[Contrast] = []
        itself, _ = self._itself()
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

    def _unseen(self, seen: int) -> float:
        """Error from the hours in which a depth was not compared.

        As large as acceptance varies from hour to hour, for as much of the load as was not seen.
        """
        total = sum(each.weight for each in self.hours)
        if total <= 0:
            return 0.0
        mean = sum(each.weight * each.log_length for each in self.hours) / total
        squares = sum(each.weight * (each.log_length - mean) ** 2 for each in self.hours) / total
        unseen = sum(each.weight for each in self.hours if not seen >> each.hour & 1) / total
        return BY_HOUR * sqrt(squares * unseen)

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
        return [each for each in self.contrasts if each.batch_le == batch_le]

    def _find(self, batch_le: int, part: int, depth: int) -> Contrast | None:
        return next((c for c in self._of(batch_le) if (c.part, c.depth) == (part, depth)), None)


def _heaviest(contrasts: Iterable[Contrast]) -> tuple[Contrast, ...]:
    """As many as are kept, those that were seen most."""
    heaviest = sorted(contrasts, key=lambda each: -each.weight)[:MOST_CONTRASTS]
    return tuple(sorted(each for each in heaviest if each.weight >= 1))


@dataclass(frozen=True, slots=True)
class _Side:
    """One window of a pod, or of several, in one bucket at one depth."""

    counts: CellCounts
    drafts: DraftCounts

    @property
    def tells(self) -> bool:
        counts = self.counts
        least = min(counts.tokens, counts.step_seconds, counts.scheduled_requests)
        return counts.steps >= LEAST_STEPS and least > 0

    def comparable(self, other: "_Side", common: int) -> bool:
        """Whether both tell of speed, and of the positions that they have in common."""
        drafted = min(self.drafts.drafts, other.drafts.drafts) > 0
        return self.tells and other.tells and (drafted or not common)

    @property
    def speed(self) -> float:
        """Tokens per request and step, over seconds per step."""
        counts = self.counts
        return counts.tokens / counts.scheduled_requests * counts.steps / counts.step_seconds

    @property
    def log_batch(self) -> float:
        return log2(self.counts.scheduled_requests / self.counts.steps)

    def part(self, batch_le: int) -> int:
        """Of the bucket's batches, which lie between half its bound and its bound."""
        return min(PARTS - 1, max(0, int(PARTS * (self.log_batch - log2(batch_le) + 1))))

    def length(self, depth: int) -> float:
        """Tokens per step that the first positions alone would give."""
        if self.drafts.drafts <= 0:
            return 1.0
        accepted = sum(position_at(self.drafts.accepted, i) for i in range(depth))
        return 1.0 + accepted / self.drafts.drafts


def _sides(deltas: Sequence[PodDelta]) -> dict[tuple[int, int], _Side]:
    """By bucket and depth; steps of both kinds, for a depth serves prompts as well."""
    drafts = pooled_drafts(deltas)
    counts: dict[tuple[int, int], CellCounts] = {}
    for cell, each in pooled_cells(deltas).items():
        key = (cell.batch_le, cell.depth)
        counts[key] = counts.get(key, CellCounts()) + each
    return {
        key: _Side(each, drafts.get(DraftCell(*key), DraftCounts())) for key, each in counts.items()
    }


def _log_ratio(own: _Side, other: _Side, common: int, slope: float) -> float:
    """Of tokens per second and request, at the other's batch and with the other's requests.

    Args:
        own: the pod.
        other: the others, at the depth in force.
        common: how many drafted positions both have.
        slope: growth of log step time per factor of two in batch within the bucket.
    """
    requests = own.length(common) / other.length(common)
    return log(own.speed / other.speed / requests) + slope * (own.log_batch - other.log_batch)
