"""What one engine counted between two reads of its counters, and sums of that over pods. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from typing import Final, TypeVar

from fathom.measurement.counters import (
    NO_CONTEXT,
    NO_DRAFTS,
    NO_STEPS,
    Cell,
    CellCounts,
    ContextCounts,
    ContextRange,
    DraftCell,
    DraftCounts,
    EngineCounts,
    Histogram,
    PodCounters,
    position_at,
)
from fathom.measurement.packed_counts import changed
from fathom_vllm.buckets import bucket_index, last_batch

CLOCK_TOLERANCE_S: Final = 1.0
"""Two readings of one start time may differ by rounding, never by this much."""
_Key = TypeVar("_Key")
_Sums = TypeVar("_Sums", CellCounts, DraftCounts)
_GAUGES: Final = frozenset({"requests_running", "requests_waiting", "kv_cache_usage"})
_ENGINE_COUNTERS: Final = tuple(
    item.name for item in fields(EngineCounts) if item.name not in _GAUGES
)
_CONTEXT_COUNTERS: Final = tuple(item.name for item in fields(ContextCounts))


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDelta:
    """What one pod counted between two looks, without a restart in between."""

    pod: str
    from_s: float
    to_s: float
    engine: EngineCounts
    """Counters as differences; gauges as they are at the end."""
    cells: Mapping[Cell, CellCounts]
    """Only the cells that moved, each in the bucket where its mean batch lies."""
    drafts: Mapping[DraftCell, DraftCounts]
    contexts: Mapping[ContextRange, ContextCounts] = field(default_factory=dict)
    """Only the ranges that moved; nothing where the plugin is older."""
    transition_steps: float = 0.0
    transition_seconds: float = 0.0
    transition_tokens: float = 0.0
    transition_prefill: float = 0.0
    tpot: Histogram = ()
    ttft: Histogram = ()
    positions: Histogram = ()
    counts_prompts: bool = True
    token_budget: int = 0
    device: str = ""

    @property
    def seconds(self) -> float:
        return self.to_s - self.from_s

    @property
    def steps(self) -> float:
        """Engine steps of any kind."""
        return self.transition_steps + sum(counts.steps for counts in self.cells.values())


def delta(before: PodCounters, after: PodCounters) -> PodDelta | None:
    """What one pod counted from one look to the next.

    Returns:
        None when the two cannot be subtracted: another pod, no newer sample, or a restart, that
        is, another start time or any counter that went back. What was counted across a restart is
        lost, which is right: nobody knows how much it was.
    """
    if before.pod != after.pod or after.at_s <= before.at_s:
        return None
    cells_moved = tuple(changed(before.cells, after.cells, NO_STEPS))
    drafts_moved = tuple(changed(before.drafts, after.drafts, NO_DRAFTS))
    contexts_moved = tuple(changed(before.contexts, after.contexts, NO_CONTEXT))
    if (
        _restarted(before, after)
        # A cell that was not there cannot go back, whatever a page shows of it.
        or any(_went_back(then, now) for _, then, now in cells_moved if then is not NO_STEPS)
        or any(_drafts_went_back(then, now) for _, then, now in drafts_moved)
        or any(_context_went_back(then, now) for _, then, now in contexts_moved)
    ):
        return None
    cells = {cell: now - then for cell, then, now in cells_moved if now.steps > then.steps}
    drafts = {
        cell: _possible(now - then) for cell, then, now in drafts_moved if now.drafts > then.drafts
    }
    buckets = _buckets(cells)
    return PodDelta(
        pod=after.pod,
        from_s=before.at_s,
        to_s=after.at_s,
        engine=replace(
            after.engine,
            **{
                name: getattr(after.engine, name) - getattr(before.engine, name)
                for name in _ENGINE_COUNTERS
            },
        ),
        cells=_summed(
            (replace(cell, batch_le=buckets[cell.batch_le, cell.depth]), counts)
            for cell, counts in cells.items()
        ),
        drafts=_summed(
            (replace(cell, batch_le=_bucket_of_drafts(cell, buckets)), counts)
            for cell, counts in drafts.items()
        ),
        contexts={
            each: _possible_context(now - then)
            for each, then, now in contexts_moved
            if now.drafts > then.drafts
        },
        transition_steps=after.transition_steps - before.transition_steps,
        transition_seconds=after.transition_seconds - before.transition_seconds,
        transition_tokens=after.transition_tokens - before.transition_tokens,
        transition_prefill=after.transition_prefill - before.transition_prefill,
        tpot=_histogram_delta(before.tpot, after.tpot),
        ttft=_histogram_delta(before.ttft, after.ttft),
        positions=_histogram_delta(before.positions, after.positions),
        counts_prompts=after.counts_prompts,
        token_budget=after.token_budget,
        device=after.device,
    )


def _buckets(cells: Mapping[Cell, CellCounts]) -> dict[tuple[int, int], int]:
    """The bucket in which the mean batch lies, for each bucket of the plugin's and depth.

    What was counted by these buckets stays where it is. What was counted over a doubling goes to
    one part of it as a whole: within a window the batch stays near its mean.
    """
    total: dict[tuple[int, int], CellCounts] = {}
    for cell, counts in cells.items():
        key = (cell.batch_le, cell.depth)
        total[key] = total.get(key, NO_STEPS) + counts
    return {
        # A page may show anything, such as steps without requests.
        key: bucket_of(min(key[0], max(1, round(counts.scheduled_requests / counts.steps))))
        for key, counts in total.items()
    }


def _bucket_of_drafts(cell: DraftCell, buckets: Mapping[tuple[int, int], int]) -> int:
    """That of the steps in which they were verified."""
    return buckets.get((cell.batch_le, cell.depth)) or bucket_of(cell.batch_le)


def bucket_of(batch: int) -> int:
    """The bucket of a batch, by its name: its largest batch."""
    return last_batch(bucket_index(batch))


def _histogram_delta(before: Histogram, after: Histogram) -> Histogram:
    """Empty where the two have other bounds, or one went back."""
    if not before:
        return after
    if [le for le, _ in before] != [le for le, _ in after]:
        return ()
    counts = tuple((le, n - m) for (le, n), (_, m) in zip(after, before, strict=True))
    return counts if all(count >= 0 for _, count in counts) else ()


def _restarted(before: PodCounters, after: PodCounters) -> bool:
    known = before.started_at_s > 0 and after.started_at_s > 0
    if known and abs(before.started_at_s - after.started_at_s) > CLOCK_TOLERANCE_S:
        return True
    return after.transition_steps < before.transition_steps or any(
        getattr(after.engine, name) < getattr(before.engine, name) for name in _ENGINE_COUNTERS
    )


def _went_back(before: CellCounts, after: CellCounts) -> bool:
    return (
        after.steps < before.steps
        or after.step_seconds < before.step_seconds
        or after.tokens < before.tokens
        or after.scheduled_requests < before.scheduled_requests
    )


def _drafts_went_back(before: DraftCounts, after: DraftCounts) -> bool:
    return after.drafts < before.drafts or any(
        position_at(after.accepted, i) < count for i, count in enumerate(before.accepted)
    )


def _context_went_back(before: ContextCounts, after: ContextCounts) -> bool:
    return any(getattr(after, name) < getattr(before, name) for name in _CONTEXT_COUNTERS)


def _possible_context(counts: ContextCounts) -> ContextCounts:
    """With no more accepted than was drafted, whatever a page shows."""
    return replace(
        counts,
        accepted=min(counts.accepted, counts.tokens),
        first_accepted=min(counts.first_accepted, counts.drafts),
    )


def _possible(counts: DraftCounts) -> DraftCounts:
    """With no more accepted at a position than reached it, whatever a page shows."""
    reached = accumulate((counts.drafts, *counts.accepted), min)
    return replace(counts, accepted=tuple(reached)[1:])


def pooled_cells(deltas: Iterable[PodDelta]) -> dict[Cell, CellCounts]:
    """Sums over pods, cell by cell: always before any division."""
    return _summed(item for each in deltas for item in each.cells.items())


def pooled_drafts(deltas: Iterable[PodDelta]) -> dict[DraftCell, DraftCounts]:
    """Sums over pods, cell by cell: always before any division."""
    return _summed(item for each in deltas for item in each.drafts.items())


def _summed(items: Iterable[tuple[_Key, _Sums]]) -> dict[_Key, _Sums]:
    total: dict[_Key, _Sums] = {}
    for key, counts in items:
        total[key] = total[key] + counts if key in total else counts
    return total
