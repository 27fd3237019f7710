"""What a canary has shown beside the stable replicas, in sums that fit into a few hundred bytes.

Speed is compared window by window: both sides have the same minute, the same traffic and, cell by
cell, the same batch and, where both draft, the same depth. Where an engine does not count by batch
(it runs without `fathom_vllm`), a window compares the time per output token of the requests that
finished in it, if both sides were about as full. Everything else is summed over the whole bake.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log, log2, sqrt
from typing import Final

from fathom.measurement.counters import CellCounts, Histogram, PodCounters
from fathom.measurement.deltas import PodDelta, delta
from fathom.rollout.input import CanaryWindow

LEAST_STEPS: Final = 30.0
"""Steps of one cell and side, to compare its speed in a window."""
LEAST_REQUESTS: Final = 3.0
"""That finished on one side, to compare time per output token in a window."""
AS_FULL: Final = 1.25
"""Factor between the requests per replica of two sides that are about as full."""
BATCH_COST: Final = 0.15
"""Growth of log step time per factor of two in batch, to even out what is left of a difference
within one bucket. From the published curves at 1, 4 and 16 requests; only a few percent of batch
are ever left, so that its error does not matter."""
MOSTLY_ELSEWHERE: Final = 2.0
"""Times the seconds at one depth, that are at any: then one side does not draft."""
WINDOWS_WORTH_ONE: Final = 2.0
"""Windows in a row resemble each other: so many are worth one."""
SLOWEST_SHARE: Final = 0.05
"""The stable replicas' slowest requests, by count."""
WINDOW_S: Final = 60.0
"""A scrape a minute is common."""
SHORTEST_S: Final = 5.0
WINDOWS: Final = 20
"""That a short bake is cut into."""
LONGEST_WINDOW: Final = 3
"""Times a window's length, after which a pod without a new sample is taken for unreadable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryContrast:
    """A difference between the canary and the stable replicas, over windows."""

    windows: float = 0.0
    weight: float = 0.0
    weight2: float = 0.0
    total: float = 0.0
    """Sum of weight × difference."""
    squares: float = 0.0
    """Sum of weight × difference²."""

    def updated(self, difference: float, weight: float) -> "CanaryContrast":
        """With one more window."""
        return CanaryContrast(
            windows=self.windows + 1,
            weight=self.weight + weight,
            weight2=self.weight2 + weight**2,
            total=self.total + weight * difference,
            squares=self.squares + weight * difference**2,
        )

    @property
    def mean(self) -> float:
        """0 without windows."""
        return self.total / self.weight if self.weight else 0.0

    @property
    def error(self) -> float:
        """Standard error of the mean from the spread between windows; infinite below two."""
        independent = self.weight**2 / self.weight2 / WINDOWS_WORTH_ONE if self.weight2 else 0.0
        if independent <= 1:
            return inf
        spread = max(0.0, self.squares / self.weight - self.mean**2)
        return sqrt(spread / (independent - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class BakeTotals:
    """Sums over the bake, of one pod or of several."""

    tokens: float = 0.0
    finished: float = 0.0
    failed: float = 0.0
    preemptions: float = 0.0
    tpot: Histogram = ()
    ttft: Histogram = ()

    def updated(self, deltas: Iterable[PodDelta]) -> "BakeTotals":
        """With one more window."""
        side = self
        for each in deltas:
            side = BakeTotals(
                tokens=side.tokens + each.engine.generation_tokens,
                finished=side.finished + each.engine.finished_requests,
                failed=side.failed + each.engine.failed_requests,
                preemptions=side.preemptions + each.engine.preemptions,
                tpot=_added(side.tpot, each.tpot),
                ttft=_added(side.ttft, each.ttft),
            )
        return side


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryEvidence:
    """Evidence on one canary."""

    canary: BakeTotals = field(default_factory=BakeTotals)
    stable: BakeTotals = field(default_factory=BakeTotals)
    speed: CanaryContrast = field(default_factory=CanaryContrast)
    """Log ratio of the canary's speed to the stable replicas'."""
    tpot_tail: CanaryContrast = field(default_factory=CanaryContrast)
    """Share of requests with a time per output token that at most `SLOWEST_SHARE` of the stable
    replicas' requests exceed, canary minus stable."""
    ttft_tail: CanaryContrast = field(default_factory=CanaryContrast)
    """The same of the time to first token."""
    looks: float = 0.0
    """Windows that were looked at."""
    blind: float = 0.0
    """Those windows in which a side's metrics could not be read."""

    def updated(
        self,
        canary: Sequence[PodDelta],
        stable: Sequence[PodDelta],
        *,
        at_own_depth: bool = False,
    ) -> "CanaryEvidence":
        """With one more window.

        Args:
            canary: what its pod counted; empty: unreadable.
            stable: what the stable replicas counted in the same minute; empty: unreadable.
            at_own_depth: whether each side has a depth of its own, as with another draft.
        """
        if not canary or not stable:
            return replace(self, looks=self.looks + 1, blind=self.blind + 1)
        speed = self.speed
        by_cells = _at_any_depth if at_own_depth else _by_cells
        found = by_cells(canary, stable) or _by_requests(canary, stable)
        if found is not None:
            speed = speed.updated(*found)
        all_stable = self.stable.updated(stable)
        own, other = BakeTotals().updated(canary), BakeTotals().updated(stable)
        return CanaryEvidence(
            canary=self.canary.updated(canary),
            stable=all_stable,
            speed=speed,
            tpot_tail=_with_tail(self.tpot_tail, own.tpot, other.tpot, all_stable.tpot),
            ttft_tail=_with_tail(self.ttft_tail, own.ttft, other.ttft, all_stable.ttft),
            looks=self.looks + 1,
            blind=self.blind,
        )


def slow_share(histogram: Histogram, above_s: float) -> float:
    """Share of requests above a bound of the histogram; 0 without requests."""
    total = requests_in(histogram)
    within = next((count for le, count in histogram if le >= above_s), total)
    return (total - within) / total if total else 0.0


def requests_in(histogram: Histogram) -> float:
    """Requests that it counts."""
    return histogram[-1][1] if histogram else 0.0


def tail_bound(histogram: Histogram, share: float) -> float | None:
    """The lowest bound that at most this share of requests exceeds; None: no finite one is."""
    bounds = (le for le, _ in histogram if le < inf and slow_share(histogram, le) <= share)
    return next(bounds, None) if requests_in(histogram) else None


def _with_tail(
    tail: CanaryContrast, canary: Histogram, stable: Histogram, all_stable: Histogram
) -> CanaryContrast:
    """With one more window, by what the stable replicas have shown up to its end."""
    bound = tail_bound(all_stable, SLOWEST_SHARE)
    requests = requests_in(canary)
    if bound is None or not requests or not requests_in(stable):
        return tail
    return tail.updated(slow_share(canary, bound) - slow_share(stable, bound), requests)


def _by_cells(canary: Sequence[PodDelta], stable: Sequence[PodDelta]) -> tuple[float, float] | None:
    """Log ratio of tokens per second per request at equal batch and depth, and busy seconds."""
    own, other = _cells(canary), _cells(stable)
    found = _compared(own, other)
    if {depth for _, depth in own} == {0} or {depth for _, depth in other} == {0}:
        # Where one side does not draft, most of the other's time is at other depths.
        at_any = _compared(_of_any_depth(own), _of_any_depth(other))
        if at_any is not None and (found is None or at_any[1] > MOSTLY_ELSEWHERE * found[1]):
            return at_any
    return found


def _at_any_depth(
    canary: Sequence[PodDelta], stable: Sequence[PodDelta]
) -> tuple[float, float] | None:
    """The same at equal batch alone."""
    return _compared(_of_any_depth(_cells(canary)), _of_any_depth(_cells(stable)))


def _compared(
    own: Mapping[tuple[int, int], CellCounts], other: Mapping[tuple[int, int], CellCounts]
) -> tuple[float, float] | None:
    total = weight = 0.0
    for cell in own.keys() & other.keys():
        left, right = own[cell], other[cell]
        if not (_tells(left) and _tells(right)):
            continue
        seconds = min(left.step_seconds, right.step_seconds)
        apart = log2(_batch(left) / _batch(right))
        total += seconds * (log(_speed(left) / _speed(right)) + BATCH_COST * apart)
        weight += seconds
    return (total / weight, weight) if weight else None


def _by_requests(
    canary: Sequence[PodDelta], stable: Sequence[PodDelta]
) -> tuple[float, float] | None:
    """Log ratio of 1 / time per output token, and the requests it rests on."""
    own, other = _tpot(canary), _tpot(stable)
    if own is None or other is None:
        return None
    fullness = sorted((_running(canary), _running(stable)))
    if fullness[1] > max(fullness[0] * AS_FULL, fullness[0] + 1):
        return None
    return log(other[0] / own[0]), min(own[1], other[1])


def _cells(deltas: Iterable[PodDelta]) -> Mapping[tuple[int, int], CellCounts]:
    """By bucket and depth; steps of both kinds, as a depth serves prompts as well."""
    sums: dict[tuple[int, int], CellCounts] = {}
    for each in deltas:
        for cell, counts in each.cells.items():
            key = (cell.batch_le, cell.depth)
            sums[key] = sums.get(key, CellCounts()) + counts
    return sums


def _of_any_depth(
    cells: Mapping[tuple[int, int], CellCounts],
) -> Mapping[tuple[int, int], CellCounts]:
    sums: dict[tuple[int, int], CellCounts] = {}
    for (bucket, _), counts in cells.items():
        sums[bucket, 0] = sums.get((bucket, 0), CellCounts()) + counts
    return sums


def _tells(counts: CellCounts) -> bool:
    least = min(counts.tokens, counts.step_seconds, counts.scheduled_requests)
    return counts.steps >= LEAST_STEPS and least > 0


def _speed(counts: CellCounts) -> float:
    """Tokens per request and step, over seconds per step."""
    return counts.tokens / counts.scheduled_requests * counts.steps / counts.step_seconds


def _batch(counts: CellCounts) -> float:
    return counts.scheduled_requests / counts.steps


def _tpot(deltas: Iterable[PodDelta]) -> tuple[float, float] | None:
    """Seconds per output token and the requests that finished; None: too few."""
    engines = [each.engine for each in deltas]
    seconds = sum(each.tpot_seconds_sum for each in engines)
    requests = sum(each.tpot_count for each in engines)
    if requests < LEAST_REQUESTS or seconds <= 0:
        return None
    return seconds / requests, requests


def _running(deltas: Sequence[PodDelta]) -> float:
    """Requests per replica, at the window's end."""
    return sum(each.engine.requests_running for each in deltas) / len(deltas)


def _added(before: Histogram, more: Histogram) -> Histogram:
    if not more or not before:
        return before or more
    if [le for le, _ in before] != [le for le, _ in more]:
        return before
    return tuple((le, n + m) for (le, n), (_, m) in zip(before, more, strict=True))


@dataclass(frozen=True, slots=True)
class CanaryWindows:
    """Windows of one rollout. Losing it costs the window that is open."""

    since: Mapping[str, PodCounters] = field(default_factory=dict)
    """What each pod had counted when the open window began."""
    began_s: float | None = None
    """Unix seconds; None: none is open."""

    def next(
        self,
        canary: Collection[str],
        stable: Collection[str],
        counters: Mapping[str, PodCounters],
        now_s: float,
        length_s: float,
    ) -> "tuple[CanaryWindows, CanaryWindow | None]":
        """What comes next, and the window that ends now; None: it is not over.

        Args:
            canary: names of the canary's pod, or of none.
            stable: names of the pods it is compared with.
            counters: latest look at each pod; what could not be read is absent.
            now_s: Unix seconds.
            length_s: of a window.
        """
        # One that began later than now began before a clock was set back.
        begun = CanaryWindows(dict(counters), now_s)
        if self.began_s is None or self.began_s > now_s or not canary:
            return begun, None
        if now_s - self.began_s < length_s:
            return self, None
        window = CanaryWindow(self._deltas(canary, counters), self._deltas(stable, counters))
        complete = window.canary and window.stable
        if not complete and now_s - self.began_s < LONGEST_WINDOW * length_s:
            return self, None
        return begun, window

    def _deltas(
        self, pods: Collection[str], counters: Mapping[str, PodCounters]
    ) -> tuple[PodDelta, ...]:
        pairs = ((self.since.get(pod), counters.get(pod)) for pod in sorted(pods))
        found = (delta(before, after) for before, after in pairs if before and after)
        return tuple(each for each in found if each is not None)


def window_length_s(bake_s: float) -> float:
    """Seconds."""
    return min(WINDOW_S, max(SHORTEST_S, bake_s / WINDOWS))
