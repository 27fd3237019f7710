"""Where the load is: busy seconds and steps per batch bucket, remembered for a minute or so."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import log2
from typing import Final

from fathom.measurement.counters import Cell, CellCounts, StepKind
from fathom.tuning.estimate.acceptance_length import decay

HALF_LIFE_WINDOWS: Final = 2.0
"""Half-life of the load of a bucket: the present is the last few windows."""
DECODE_SHARE: Final = 0.05
"""With a smaller share of decode steps, mixed ones must do: they scatter three times as much, as
prompts differ in length, so ten of them show as much as one. Decode steps are better until then: a
prompt is prefilled once whatever the depth, so only they show what depth costs."""
IDLE_S: Final = 1e-6
"""Busy seconds that are none: a bucket with less is forgotten."""
PRESENT_S: Final = 5.0
"""Reads of a probe are short, and in a short one a bucket may be missing by chance."""
LEAST_SHARE: Final = 0.05
"""Buckets with less of the busy time decide nothing …"""
DECIDING_SHARE: Final = 0.9
"""… as long as the others have this much of it together: batches may spread over many buckets."""
HOURS: Final = 24
"""Hours of a day, each with a load of its own."""
HALF_LIFE_S: Final = 7 * 24 * 3600.0
"""Half-life of what an hour of the day had: it comes once a day, so several days count."""
EVEN_FACTOR: Final = 1.1
"""Hours whose loads differ by no more are alike: none of them is worth waiting for."""
_HOUR_S: Final = 3600.0
DAY_S: Final = HOURS * _HOUR_S
"""Before so much was seen, no hour is known to be quieter than this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketLoad:
    batch_le: int
    busy_seconds: float
    decode_steps: float
    mixed_steps: float
    requests: float
    """Requests scheduled, summed over the steps."""
    at_s: float = 0.0
    """End of the last window with steps in it (Unix seconds)."""
    tokens: float = 0.0
    """Emitted."""
    prefill_tokens: float = 0.0

    def scaled(self, factor: float) -> "BucketLoad":
        return replace(
            self,
            busy_seconds=self.busy_seconds * factor,
            decode_steps=self.decode_steps * factor,
            mixed_steps=self.mixed_steps * factor,
            requests=self.requests * factor,
            tokens=self.tokens * factor,
            prefill_tokens=self.prefill_tokens * factor,
        )


@dataclass(frozen=True, slots=True)
class Traffic:
    """Discounted sums over the recent windows."""

    loads: tuple[BucketLoad, ...] = ()
    at_s: float = 0.0

    def updated(
        self, cells: Mapping[Cell, CellCounts], at_s: float, window_seconds: float
    ) -> "Traffic":
        """With the cells of one more window; at rest nothing changes, so nothing is written."""
        if not cells:
            return self
        kept = decay(at_s - self.at_s, HALF_LIFE_WINDOWS * window_seconds)
        loads = {
            load.batch_le: load.scaled(kept) for load in self.loads if load.busy_seconds > IDLE_S
        }
        for cell, counts in cells.items():
            load = loads.get(
                cell.batch_le,
                BucketLoad(
                    batch_le=cell.batch_le,
                    busy_seconds=0.0,
                    decode_steps=0.0,
                    mixed_steps=0.0,
                    requests=0.0,
                ),
            )
            decode = cell.step is StepKind.DECODE
            loads[cell.batch_le] = BucketLoad(
                batch_le=cell.batch_le,
                busy_seconds=load.busy_seconds + counts.step_seconds,
                decode_steps=load.decode_steps + (counts.steps if decode else 0.0),
                mixed_steps=load.mixed_steps + (0.0 if decode else counts.steps),
                requests=load.requests + counts.scheduled_requests,
                at_s=at_s,
                tokens=load.tokens + counts.tokens,
                prefill_tokens=load.prefill_tokens + counts.prefill_tokens,
            )
        return Traffic(tuple(loads[key] for key in sorted(loads)), at_s)

    def shares(self) -> dict[int, float]:
        """Share of the busy time per bucket, those with too little left out."""
        total = sum(load.busy_seconds for load in self.loads)
        if total <= 0:
            return {}
        shares = {load.batch_le: load.busy_seconds / total for load in self.loads}
        deciding, covered = set[int](), 0.0
        for bucket in sorted(shares, key=lambda each: -shares[each]):
            if shares[bucket] < LEAST_SHARE and covered >= DECIDING_SHARE:
                break
            deciding.add(bucket)
            covered += shares[bucket]
        return {bucket: share for bucket, share in shares.items() if bucket in deciding}

    def present(self) -> frozenset[int]:
        """Buckets that had steps just now: only there can anything be measured.

        Shares tell where the load has been for some windows, and will probably be again.
        """
        since_s = self.at_s - PRESENT_S
        return frozenset(load.batch_le for load in self.loads if load.at_s >= since_s)

    def log_batches(self) -> dict[int, float]:
        """Logarithm to base 2 of each bucket's mean batch."""
        return {
            load.batch_le: log2(load.requests / steps)
            for load in self.loads
            if (steps := load.decode_steps + load.mixed_steps) > 0 and load.requests > 0
        }

    def prefill_per_token(self, batch_le: int) -> float | None:
        """Prompt tokens for each that is emitted, in the steps of a bucket; None: no load."""
        load = next((each for each in self.loads if each.batch_le == batch_le), None)
        return load.prefill_tokens / load.tokens if load is not None and load.tokens > 0 else None

    def mixed_share(self, batch_le: int) -> float:
        """Share of a bucket's steps that had prompts; few of either kind are none."""
        load = next((each for each in self.loads if each.batch_le == batch_le), None)
        if load is None:
            return 0.0
        share = load.mixed_steps / (load.decode_steps + load.mixed_steps)
        return 0.0 if share < DECODE_SHARE else 1.0 if share > 1 - DECODE_SHARE else share

    def kind(self, batch_le: int) -> StepKind:
        """The kind of step that a bucket's speed is judged by."""
        load = next((each for each in self.loads if each.batch_le == batch_le), None)
        if load is None:
            return StepKind.DECODE
        share = load.decode_steps / (load.decode_steps + load.mixed_steps)
        return StepKind.DECODE if share >= DECODE_SHARE else StepKind.MIXED


def steps_in(cells: Mapping[Cell, CellCounts], wanted: Iterable[tuple[int, int]]) -> float:
    """Steps in these (bucket, depth) pairs."""
    pairs = set(wanted)
    return sum(c.steps for cell, c in cells.items() if (cell.batch_le, cell.depth) in pairs)


@dataclass(frozen=True, slots=True)
class HourLoad:
    """One hour of the day (UTC)."""

    hour: int
    busy_seconds: tuple[tuple[int, float], ...]
    """Pairs of bucket and busy seconds, discounted over a week."""
    watched_s: float = 0.0
    """Seconds that they were counted in, discounted alike: some hours were seen more often."""

    @property
    def busy(self) -> dict[int, float]:
        """Busy seconds per second and bucket; of all pods together, so they may exceed 1."""
        if self.watched_s <= 0:
            return {}
        return {bucket: each / self.watched_s for bucket, each in self.busy_seconds}

    @property
    def total(self) -> float:
        return sum(self.busy.values())


@dataclass(frozen=True, slots=True)
class Load:
    """The days so far."""

    hours: tuple[HourLoad, ...] = ()
    since_s: float = 0.0
    at_s: float = 0.0

    def updated(self, cells: Mapping[Cell, CellCounts], at_s: float, window_s: float) -> "Load":
        """With one more window of so many seconds, whose counts are of all pods together."""
        if not cells or window_s <= 0:
            return self
        hour = hour_of(at_s)
        before = next((each for each in self.hours if each.hour == hour), HourLoad(hour, ()))
        kept = decay(at_s - self.at_s, HALF_LIFE_S) if self.at_s else 1.0
        # Only this hour is discounted, by what passed since the last window: the others are when
        # their hour comes. So an hour that is looked at seldom fades as one looked at often.
        seconds = {bucket: kept * each for bucket, each in before.busy_seconds}
        for cell, counts in cells.items():
            seconds[cell.batch_le] = seconds.get(cell.batch_le, 0.0) + counts.step_seconds
        entry = HourLoad(
            hour,
            tuple(sorted((b, round(each, 3)) for b, each in seconds.items())),
            round(kept * before.watched_s + window_s, 3),
        )
        others = [each for each in self.hours if each.hour != hour]
        return Load(
            tuple(sorted((*others, entry), key=lambda each: each.hour)),
            self.since_s or at_s,
            at_s,
        )

    def is_trough(self, now_s: float) -> bool:
        """Whether this hour has hardly more than the median hour's load.

        Before a whole day was seen, every hour will do: nobody knows of a better one. After it, an
        hour that is not known had no requests.
        """
        if len(self.hours) < HOURS and self.at_s - self.since_s < DAY_S:
            return True
        known = {each.hour: each.total for each in self.hours}
        totals = sorted(known.get(hour, 0.0) for hour in range(HOURS))
        return known.get(hour_of(now_s), 0.0) <= EVEN_FACTOR * totals[HOURS // 2 - 1]


def hour_of(at_s: float) -> int:
    """Hour of the day, UTC."""
    return int(at_s // _HOUR_S) % HOURS
