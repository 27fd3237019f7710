"""What one engine has counted, and what it counted between two looks.

Counters are cumulative since the engine started, exactly as its /metrics shows them. Everything
that is computed from them is computed from deltas, summed over pods before any division.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class StepKind(StrEnum):
    """What an engine step held: decodes only, or some prefill as well."""

    DECODE = "decode"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """Steps of one kind at one depth whose batch lies in one bucket.

    `batch_le` is the bucket's upper bound, a power of two: the bucket 8 holds batches 5 to 8.
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
    """Tokens emitted: accepted drafts and the one the target adds."""
    scheduled_requests: float = 0.0
    """Sum of the batch over the steps."""


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
    requests_running: float = 0.0
    requests_waiting: float = 0.0
    kv_cache_usage: float = 0.0
    """Share of the KV cache in use, 0 to 1."""


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
    depth_rejections: float = 0.0
    hook_errors: float = 0.0
    cells: Mapping[Cell, CellCounts] = field(default_factory=lambda: MappingProxyType({}))
    drafts: Mapping[DraftCell, DraftCounts] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class PodDelta:
    """What one pod counted between two looks, without a restart in between."""

    pod: str
    from_s: float
    to_s: float
    engine: EngineCounts
    """Counters as differences; gauges as they are at the end."""
    cells: Mapping[Cell, CellCounts]
    """Only the cells that moved."""
    drafts: Mapping[DraftCell, DraftCounts]

    @property
    def seconds(self) -> float:
        return self.to_s - self.from_s
