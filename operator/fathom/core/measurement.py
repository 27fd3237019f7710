"""What one engine has counted, and what it counted between two looks.

Counters are cumulative since the engine started, exactly as its /metrics shows them. Everything
that is computed from them is computed from deltas, summed over pods before any division.

Older plugins count by whole doublings of the batch, newer ones by parts of them, and a fleet may
hold both for weeks. A look has its cells as its page names them; a delta has them all by the parts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from itertools import accumulate, zip_longest
from types import MappingProxyType
from typing import Final, TypeVar

from fathom.core.packed_counts import CountsForm, changed
from fathom.engine.report import NOTHING_TOLD, EngineReport
from fathom_vllm.buckets import bucket_index, last_batch

CLOCK_TOLERANCE_S: Final = 1.0
"""Two readings of one start time may differ by rounding, never by this much."""


class StepKind(StrEnum):
    """What an engine step held: decodes only, or some prefill as well."""

    DECODE = "decode"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """Steps of one kind at one depth whose batch lies in one bucket.

    `batch_le` is the bucket's largest batch, by which it is named.
    """

    batch_le: int
    depth: int
    step: StepKind


@dataclass(frozen=True, slots=True)
class CellCounts:
    """Sums over the steps of one cell."""

    steps: float = 0.0
    step_seconds: float = 0.0
    """Busy seconds; time without work is not step time."""
    tokens: float = 0.0
    """Tokens that reached requests; older plugins count accepted ones beyond an end, too."""
    scheduled_requests: float = 0.0
    """Sum of the batch over the steps."""
    prefill_tokens: float = 0.0
    """Tokens of prompts that mixed steps computed, where `PodDelta.counts_prompts`."""

    def __add__(self, other: "CellCounts") -> "CellCounts":
        return CellCounts(
            self.steps + other.steps,
            self.step_seconds + other.step_seconds,
            self.tokens + other.tokens,
            self.scheduled_requests + other.scheduled_requests,
            self.prefill_tokens + other.prefill_tokens,
        )

    def __sub__(self, other: "CellCounts") -> "CellCounts":
        return CellCounts(
            self.steps - other.steps,
            self.step_seconds - other.step_seconds,
            self.tokens - other.tokens,
            self.scheduled_requests - other.scheduled_requests,
            self.prefill_tokens - other.prefill_tokens,
        )


@dataclass(frozen=True, slots=True, order=True)
class DraftCell:
    """Drafts of one length made at batches of one bucket."""

    batch_le: int
    depth: int


@dataclass(frozen=True, slots=True)
class DraftCounts:
    drafts: float = 0.0
    accepted: tuple[float, ...] = ()
    """Drafts whose first i + 1 tokens were all accepted, i = 0 .. depth - 1."""

    def __add__(self, other: "DraftCounts") -> "DraftCounts":
        pairs = zip_longest(self.accepted, other.accepted, fillvalue=0.0)
        return DraftCounts(self.drafts + other.drafts, tuple([a + b for a, b in pairs]))

    def __sub__(self, other: "DraftCounts") -> "DraftCounts":
        pairs = zip_longest(self.accepted, other.accepted, fillvalue=0.0)
        return DraftCounts(self.drafts - other.drafts, tuple([a - b for a, b in pairs]))


def position_at(accepted: tuple[float, ...], position: int) -> float:
    """Accepted drafts at a position; 0 beyond the last one."""
    return accepted[position] if position < len(accepted) else 0.0


@dataclass(frozen=True, slots=True)
class EngineCounts:
    """vLLM's own counters and gauges, summed over its engines."""

    generation_tokens: float = 0.0
    prompt_tokens: float = 0.0
    preemptions: float = 0.0
    drafts: float = 0.0
    draft_tokens: float = 0.0
    accepted_tokens: float = 0.0
    tpot_seconds_sum: float = 0.0
    """Sum of vllm:request_time_per_output_token_seconds over finished requests."""
    tpot_count: float = 0.0
    finished_requests: float = 0.0
    """Requests that ended, however they did."""
    failed_requests: float = 0.0
    """Of those, the ones that the engine or the client gave up: `error`, `abort`."""
    requests_running: float = 0.0
    requests_waiting: float = 0.0
    kv_cache_usage: float = 0.0
    """Share of the KV cache in use, 0 to 1."""


Histogram = tuple[tuple[float, float], ...]
"""Prometheus's: pairs of upper bound, ascending, the last infinite, and count up to it."""


@dataclass(frozen=True, slots=True)
class PodCounters:
    """One look at one pod's /metrics."""

    pod: str
    at_s: float
    """When the values were true (Unix seconds): the scrape's own time, not the query's."""
    started_at_s: float
    """When the engine's counters began (Unix seconds); a change means a restart. 0: unknown."""
    engine: EngineCounts
    live_depth: bool
    """Whether the plugin is loaded and can change depth."""
    depth_generation: int
    """Generation of the depth document in force; 0: none yet."""
    schedule_hash: int = 0
    """Hash of the schedule that this document has for the pod; 0: it is not told."""
    depth_rejections: float = 0.0
    hook_errors: float = 0.0
    counters_shown: bool = True
    """False: the plugin says that its counters do not reach the page. Older ones do not tell."""
    counts_prompts: bool = True
    """Whether mixed steps tell how many tokens of prompts they computed. Older plugins do not."""
    token_budget: int = 0
    """Tokens that a step may hold, as the engine says; 0: it does not."""
    device: str = ""
    """Name of its accelerator, such as `NVIDIA GB200`; empty: it does not tell."""
    report: EngineReport = NOTHING_TOLD
    """What it says that it runs with."""
    transition_steps: float = 0.0
    """Steps that mixed depths, which no cell holds."""
    transition_seconds: float = 0.0
    """Their busy seconds."""
    transition_tokens: float = 0.0
    """Tokens that reached requests in them."""
    transition_prefill: float = 0.0
    """Tokens of prompts that they computed."""
    cells: Mapping[Cell, CellCounts] = field(default_factory=lambda: MappingProxyType({}))
    """By the buckets of this engine's own plugin."""
    drafts: Mapping[DraftCell, DraftCounts] = field(default_factory=lambda: MappingProxyType({}))
    tpot: Histogram = ()
    """Time per output token of finished requests, seconds."""
    ttft: Histogram = ()
    """Time to first token, seconds."""


@dataclass(frozen=True, slots=True)
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
    transition_steps: float = 0.0
    transition_seconds: float = 0.0
    transition_tokens: float = 0.0
    transition_prefill: float = 0.0
    tpot: Histogram = ()
    ttft: Histogram = ()
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


_Key = TypeVar("_Key")
_Sums = TypeVar("_Sums", CellCounts, DraftCounts)
_NO_STEPS: Final = CellCounts()
_NO_DRAFTS: Final = DraftCounts()
_NUMBERS_OF_STEPS: Final = len(fields(CellCounts))
_WITHOUT_PROMPTS: Final = _NUMBERS_OF_STEPS - 1
_GAUGES: Final = frozenset({"requests_running", "requests_waiting", "kv_cache_usage"})
_ENGINE_COUNTERS: Final = tuple(
    item.name for item in fields(EngineCounts) if item.name not in _GAUGES
)


def _numbers_of_steps(cell: Cell) -> int:
    return _NUMBERS_OF_STEPS if cell.step is StepKind.MIXED else _WITHOUT_PROMPTS


def _numbers_without_prompts(_: Cell) -> int:
    return _WITHOUT_PROMPTS


def _steps_of(numbers: Sequence[float]) -> CellCounts:
    return CellCounts(*numbers)


def _numbers_of_drafts(cell: DraftCell) -> int:
    return 1 + cell.depth


def _drafts_of(numbers: Sequence[float]) -> DraftCounts:
    return DraftCounts(numbers[0], tuple(numbers[1:]))


STEPS_FORM: Final = CountsForm(_numbers_of_steps, _steps_of, _NO_STEPS)
"""As many numbers as `CellCounts` has, in its order; steps of decodes have no prompts."""
OLD_STEPS_FORM: Final = CountsForm(_numbers_without_prompts, _steps_of, _NO_STEPS)
"""Of pages that do not count tokens of prompts."""
DRAFTS_FORM: Final = CountsForm(_numbers_of_drafts, _drafts_of, _NO_DRAFTS)
"""Drafts, and then as many accepted ones as the cell is deep."""


def delta(before: PodCounters, after: PodCounters) -> PodDelta | None:
    """What one pod counted from one look to the next.

    Returns:
        None when the two cannot be subtracted: another pod, no newer sample, or a restart, that
        is, another start time or any counter that went back. What was counted across a restart is
        lost, which is right: nobody knows how much it was.
    """
    if before.pod != after.pod or after.at_s <= before.at_s:
        return None
    cells_moved = tuple(changed(before.cells, after.cells, _NO_STEPS))
    drafts_moved = tuple(changed(before.drafts, after.drafts, _NO_DRAFTS))
    if (
        _restarted(before, after)
        # A cell that was not there cannot go back, whatever a page shows of it.
        or any(_went_back(then, now) for _, then, now in cells_moved if then is not _NO_STEPS)
        or any(_drafts_went_back(then, now) for _, then, now in drafts_moved)
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
        transition_steps=after.transition_steps - before.transition_steps,
        transition_seconds=after.transition_seconds - before.transition_seconds,
        transition_tokens=after.transition_tokens - before.transition_tokens,
        transition_prefill=after.transition_prefill - before.transition_prefill,
        tpot=_histogram_delta(before.tpot, after.tpot),
        ttft=_histogram_delta(before.ttft, after.ttft),
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
        total[key] = total.get(key, _NO_STEPS) + counts
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
