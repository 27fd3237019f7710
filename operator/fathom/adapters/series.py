"""Which series of an engine are read, and what each of them counts. No I/O.

Names are vLLM's and those of Fathom's plugin; tests/contract/test_engine_contract.py asks an engine
for them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Final, NamedTuple

from fathom.engine.report import NOTHING_TOLD, EngineReport, device_in, report_in
from fathom.measurement.counters import Cell, ContextRange, DraftCell, StepKind


class Pod(Enum):
    """Rows that a pod has one of."""

    ENGINE = auto()
    FINISHED = auto()
    TPOT = auto()
    TTFT = auto()
    POSITIONS = auto()
    """Accepted drafts by position, as vLLM itself counts them."""
    PLUGIN = auto()
    LARGEST = auto()
    """Largest value that its engines show, and not the sum."""
    TOLD = auto()
    """What it tells of itself stands in its columns: labels, whatever the value."""


_TPOT: Final = "vllm:request_time_per_output_token_seconds"
_ENGINE: Final = {
    "vllm:generation_tokens_total": "generation_tokens",
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:num_preemptions_total": "preemptions",
    "vllm:spec_decode_num_drafts_total": "drafts",
    "vllm:spec_decode_num_draft_tokens_total": "draft_tokens",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted_tokens",
    f"{_TPOT}_sum": "tpot_seconds_sum",
    f"{_TPOT}_count": "tpot_count",
    "vllm:num_requests_running": "requests_running",
    "vllm:num_requests_waiting": "requests_waiting",
}
_HISTOGRAMS: Final = {
    f"{_TPOT}_bucket": Pod.TPOT,
    "vllm:time_to_first_token_seconds_bucket": Pod.TTFT,
}
_POSITIONS: Final = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
_FINISHED: Final = "vllm:request_success_total"
FAILED: Final = frozenset({"abort", "error"})
"""Values of its label `finished_reason`; the others are stop, length and repetition."""
KV_CACHE: Final = "vllm:kv_cache_usage_perc"
CELLS: Final = {
    "fathom_steps_total": "steps",
    "fathom_step_seconds_total": "step_seconds",
    "fathom_tokens_total": "tokens",
    "fathom_scheduled_requests_total": "scheduled_requests",
}
_PREFILL: Final = "fathom_prefill_tokens_total"
"""Counter of mixed steps, in newer plugins alone."""
PREFILL_COUNT: Final = "prefill_tokens"
DRAFTS: Final = "fathom_drafts_total"
ACCEPTED: Final = "fathom_accepted_tokens_total"
CONTEXTS: Final = {
    "fathom_context_drafts_total": "drafts",
    "fathom_context_draft_tokens_total": "tokens",
    "fathom_context_accepted_tokens_total": "accepted",
    "fathom_context_first_accepted_total": "first_accepted",
}
"""Counters of newer plugins."""
TRANSITIONS: Final = "fathom_transition_steps_total"
TRANSITION_SECONDS: Final = "fathom_transition_step_seconds_total"
TRANSITION_TOKENS: Final = "fathom_transition_tokens_total"
TRANSITION_PREFILL: Final = "fathom_transition_prefill_tokens_total"
GENERATION: Final = "fathom_depth_generation"
SCHEDULE: Final = "fathom_depth_schedule_hash"
SEEN: Final = "fathom_depth_document_seen"
GONE: Final = "fathom_depth_document_gone"
NAMED: Final = "fathom_pod_named"
REJECTIONS: Final = "fathom_depth_rejections_total"
ERRORS: Final = "fathom_hook_errors_total"
LIVE: Final = "fathom_live_depth"
SHOWN: Final = "fathom_counters_shown"
BUDGET: Final = "fathom_token_budget"
INFO: Final = "fathom_engine_info"
"""Its labels are what the engine tells of itself."""
OF_A_HOOK: Final = (TRANSITIONS, GENERATION, REJECTIONS, ERRORS, LIVE)
"""Shown together, by every version of the plugin, once an engine has started."""
_SCALARS: Final = (
    *OF_A_HOOK,
    SCHEDULE,
    SEEN,
    GONE,
    NAMED,
    SHOWN,
    BUDGET,
    TRANSITION_SECONDS,
    TRANSITION_TOKENS,
    TRANSITION_PREFILL,
)
PROCESS_START: Final = "process_start_time_seconds"
CREATED: Final = "vllm:generation_tokens_created"
"""Where vLLM runs several API servers there is no process start, but counters tell their own."""
_LARGEST: Final = frozenset({KV_CACHE, PROCESS_START, CREATED})
EVERY_ENGINE: Final = "vllm:num_requests_running"
"""A gauge that every engine shows from its start on."""
FAMILIES: Final = frozenset(
    {
        *_ENGINE,
        *_LARGEST,
        *_HISTOGRAMS,
        _POSITIONS,
        _FINISHED,
        *CELLS,
        _PREFILL,
        *_SCALARS,
        DRAFTS,
        ACCEPTED,
        *CONTEXTS,
        INFO,
    }
)
"""Every series that is read."""
PAGE_LABELS: Final = (
    "engine",
    "model_name",
    "le",
    "finished_reason",
    "batch_ge",
    "batch_le",
    "depth",
    "step",
    "position",
    "context_ge",
    "context_le",
)
"""Every label that a page itself gives to what it counts; what else there is, a scraper added."""


class NotAnEngine(ValueError):  # noqa: N818 - says what is wrong, as every name here does
    """What was read is not a vLLM's metrics; the message says why, as a sentence's second half."""


@dataclass(frozen=True, slots=True)
class Point:
    """One sample of one series."""

    name: str
    labels: Mapping[str, str]
    value: float


class Told(NamedTuple):
    """What an engine tells of itself."""

    device: str = ""
    report: EngineReport = NOTHING_TOLD


Row = Cell | DraftCell | ContextRange | Pod
Column = str | float | Told


class Destination(NamedTuple):
    """Where the values of a series are added up."""

    row: Row
    column: Column
    name: str
    """Name of the series."""


_OF_A_POD: Final[Mapping[str, tuple[Row, Column]]] = {
    **{name: (Pod.ENGINE, count) for name, count in _ENGINE.items()},
    **{name: (Pod.LARGEST, name) for name in _LARGEST},
    **{name: (Pod.PLUGIN, name) for name in _SCALARS},
}
"""Series whose labels say nothing of where they go."""
NOWHERE: Final = Destination(Pod.ENGINE, "", "")
_CELLS_KEPT: Final = 4096
"""An engine has some hundreds, and all engines have the same."""
_PLACING_LABELS: Final = (
    *("le", "finished_reason", "batch_le", "depth", "step", "position"),
    "context_ge",
)
_LONGEST_PLACE: Final = 64
"""Characters of such a label's value; vLLM's and the plugin's have twenty at most. What a pod shows
is kept beyond its page, and nothing else bounds what a Prometheus has scraped of it."""
_SERIES_KEPT: Final = 8192
"""An engine that used every cell has some 1,400, and all engines have the same."""
_REPORTS_KEPT: Final = 1024
"""A resource's engines have one for each revision."""
# One object each where that is easy: a thing is compared with itself at once.
_cell: Final = lru_cache(_CELLS_KEPT)(Cell)
_draft_cell: Final = lru_cache(_CELLS_KEPT)(DraftCell)
_context_range: Final = lru_cache(_CELLS_KEPT)(ContextRange)


def destination_of(point: Point) -> Destination:
    """Where a sample's value goes.

    Raises:
        NotAnEngine: its labels are not those of such a series.
    """
    if point.name == INFO:
        return _destination_of_told(tuple(sorted(point.labels.items())))
    return _destination(point.name, *map(point.labels.get, _PLACING_LABELS))


@lru_cache(_REPORTS_KEPT)
def _destination_of_told(labels: tuple[tuple[str, str], ...]) -> Destination:
    found = dict(labels)
    return Destination(Pod.TOLD, Told(device_in(found), report_in(found)), INFO)


@lru_cache(_SERIES_KEPT)
def _destination(name: str, *values: str | None) -> Destination:
    """By what places a series: engines and models count alike."""
    labels = {
        label: value
        for label, value in zip(_PLACING_LABELS, values, strict=True)
        if value is not None
    }
    try:
        return Destination(*_row_and_column(name, labels), name)
    except (KeyError, ValueError) as error:
        raise NotAnEngine(
            f"{name} has labels, or values of them, which this version of Fathom does not know"
        ) from error


def _row_and_column(name: str, labels: Mapping[str, str]) -> tuple[Row, Column]:
    if max(map(len, labels.values()), default=0) > _LONGEST_PLACE:
        raise ValueError
    if name in _OF_A_POD:
        return _OF_A_POD[name]
    if name in _HISTOGRAMS:
        return _HISTOGRAMS[name], float(labels["le"])
    if name == _POSITIONS:
        return Pod.POSITIONS, float(int(labels["position"]))
    if name == _FINISHED:
        return Pod.FINISHED, labels["finished_reason"]
    return _counted_by(name, labels)


def _counted_by(name: str, labels: Mapping[str, str]) -> tuple[Row, Column]:
    """As `_row_and_column`, for a counter of the plugin's."""
    if name in CELLS or name == _PREFILL:
        step = StepKind(labels["step"])
        column = CELLS.get(name, PREFILL_COUNT)
        return _cell(int(labels["batch_le"]), int(labels["depth"]), step), column
    if name in CONTEXTS:
        return _context_range(int(labels["context_ge"])), CONTEXTS[name]
    drafts = _draft_cell(int(labels["batch_le"]), int(labels["depth"]))
    return drafts, name if name == DRAFTS else int(labels["position"])
