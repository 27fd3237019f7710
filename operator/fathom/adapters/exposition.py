"""From metric samples to `PodCounters`: the same for a pod's own page and for Prometheus. No I/O.

Names are vLLM's and those of Fathom's plugin; tests/contract/test_engine_contract.py asks an engine
for them. vLLM's are summed over all label sets, that is, over the engines of one pod.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum, auto
from functools import lru_cache
from math import isfinite
from operator import itemgetter
from typing import Final, NamedTuple

from fathom.core.measurement import (
    DRAFTS_FORM,
    STEPS_FORM,
    Cell,
    CellCounts,
    DraftCell,
    EngineCounts,
    Histogram,
    PodCounters,
    StepKind,
)
from fathom.core.packed_counts import PackedCounts


class _Pod(Enum):
    """Rows that a pod has one of."""

    ENGINE = auto()
    FINISHED = auto()
    TPOT = auto()
    TTFT = auto()
    PLUGIN = auto()
    LARGEST = auto()
    """Of what its engines show, and not the sum."""


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
    f"{_TPOT}_bucket": _Pod.TPOT,
    "vllm:time_to_first_token_seconds_bucket": _Pod.TTFT,
}
_FINISHED: Final = "vllm:request_success_total"
_FAILED: Final = frozenset({"abort", "error"})
"""Values of its label `finished_reason`; the others are stop, length and repetition."""
_KV_CACHE: Final = "vllm:kv_cache_usage_perc"
_CELLS: Final = {
    "fathom_steps_total": "steps",
    "fathom_step_seconds_total": "step_seconds",
    "fathom_tokens_total": "tokens",
    "fathom_scheduled_requests_total": "scheduled_requests",
}
_DRAFTS: Final = "fathom_drafts_total"
_ACCEPTED: Final = "fathom_accepted_tokens_total"
_TRANSITIONS: Final = "fathom_transition_steps_total"
_GENERATION: Final = "fathom_depth_generation"
_REJECTIONS: Final = "fathom_depth_rejections_total"
_ERRORS: Final = "fathom_hook_errors_total"
_LIVE: Final = "fathom_live_depth"
_SHOWN: Final = "fathom_counters_shown"
_OF_A_HOOK: Final = (_TRANSITIONS, _GENERATION, _REJECTIONS, _ERRORS, _LIVE)
"""Shown together, by every version of the plugin, once an engine has started."""
_SCALARS: Final = (*_OF_A_HOOK, _SHOWN)
_PROCESS_START: Final = "process_start_time_seconds"
_CREATED: Final = "vllm:generation_tokens_created"
"""Where vLLM runs several API servers there is no process start, but counters tell their own."""
_LARGEST: Final = frozenset({_KV_CACHE, _PROCESS_START, _CREATED})

EVERY_ENGINE: Final = "vllm:num_requests_running"
"""A gauge that every engine shows from its start on."""
FAMILIES: Final = frozenset(
    {
        *_ENGINE,
        *_LARGEST,
        *_HISTOGRAMS,
        _FINISHED,
        *_CELLS,
        *_SCALARS,
        _DRAFTS,
        _ACCEPTED,
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
)
"""Every label that a page itself gives to one of them; what else there is, a scraper added."""


class NotAnEngine(ValueError):  # noqa: N818 - says what is wrong, as every name here does
    """What was read is not a vLLM's metrics; the message says why, as a sentence's second half."""


@dataclass(frozen=True, slots=True)
class Point:
    """One sample of one series."""

    name: str
    labels: Mapping[str, str]
    value: float


_Row = Cell | DraftCell | _Pod
_Column = str | float


class Destination(NamedTuple):
    """Where the values of a series are added up."""

    row: _Row
    column: _Column
    name: str
    """Of the series."""


_OF_A_POD: Final[Mapping[str, tuple[_Row, _Column]]] = {
    **{name: (_Pod.ENGINE, count) for name, count in _ENGINE.items()},
    **{name: (_Pod.LARGEST, name) for name in _LARGEST},
    **{name: (_Pod.PLUGIN, name) for name in _SCALARS},
}
"""Series whose labels say nothing of where they go."""
NOWHERE: Final = Destination(_Pod.ENGINE, "", "")
_OF_A_CELL: Final = itemgetter(*(each.name for each in fields(CellCounts)))
_CELLS_KEPT: Final = 4096
"""An engine has some hundreds, and all engines have the same."""
_PLACING_LABELS: Final = ("le", "finished_reason", "batch_le", "depth", "step", "position")
_LONGEST_PLACE: Final = 64
"""Characters of such a label's value; vLLM's and the plugin's have twenty at most. What a pod shows
is kept beyond its page, and nothing else bounds what a Prometheus has scraped of it."""
_SERIES_KEPT: Final = 8192
"""An engine that used every cell has some 1,400, and all engines have the same."""
# One object each where that is easy: a thing is compared with itself at once.
_cell: Final = lru_cache(_CELLS_KEPT)(Cell)
_draft_cell: Final = lru_cache(_CELLS_KEPT)(DraftCell)


def counters(points: Iterable[Point], *, pod: str, at_s: float) -> PodCounters:
    """Sum samples of one scrape into counters.

    Raises:
        NotAnEngine: no sample is vLLM's, one is not a number where a count must be, or some are
            missing without which the others would say something else.
    """
    read = [each for each in points if each.name in FAMILIES]
    places = [destination_of(each) for each in read]
    return counted(places, [each.value for each in read], pod=pod, at_s=at_s)


def destination_of(point: Point) -> Destination:
    return _destination(point.name, *map(point.labels.get, _PLACING_LABELS))


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


def _row_and_column(name: str, labels: Mapping[str, str]) -> tuple[_Row, _Column]:
    if max(map(len, labels.values()), default=0) > _LONGEST_PLACE:
        raise ValueError
    if name in _OF_A_POD:
        return _OF_A_POD[name]
    if name in _HISTOGRAMS:
        return _HISTOGRAMS[name], float(labels["le"])
    if name == _FINISHED:
        return _Pod.FINISHED, labels["finished_reason"]
    if name in _CELLS:
        step = StepKind(labels["step"])
        return _cell(int(labels["batch_le"]), int(labels["depth"]), step), _CELLS[name]
    drafts = _draft_cell(int(labels["batch_le"]), int(labels["depth"]))
    return drafts, name if name == _DRAFTS else int(labels["position"])


def counted(
    places: Sequence[Destination],
    values: Sequence[float],
    *,
    pod: str,
    at_s: float,
) -> PodCounters:
    sums: defaultdict[_Row, dict[_Column, float]] = defaultdict(dict)
    # A row comes several times, most often as the same object, and to hash it takes long.
    known: dict[int, dict[_Column, float]] = {}
    for (row, column, name), value in zip(places, values, strict=True):
        told, total = known.get(id(row)), value
        if told is None:
            told = known[id(row)] = sums[row]
        if column in told:
            # Nothing is larger than NaN, so it must come first to come out.
            total = max(value, told[column]) if row is _Pod.LARGEST else told[column] + value
        if not isfinite(total):
            raise NotAnEngine(f"{name} is {total}, not a count")
        told[column] = total
    engine, finished, largest = sums[_Pod.ENGINE], sums[_Pod.FINISHED], sums[_Pod.LARGEST]
    if not engine and not finished and _KV_CACHE not in largest:
        raise NotAnEngine("it shows no vllm: metrics")
    if (missing := _missing(sums)) is not None:
        raise NotAnEngine(f"it shows only a part of Fathom's counters: {missing} is missing")
    plugin = defaultdict(float, sums[_Pod.PLUGIN])
    return PodCounters(
        pod=pod,
        at_s=at_s,
        started_at_s=largest.get(_PROCESS_START) or largest.get(_CREATED, 0.0),
        engine=EngineCounts(
            **{str(name): value for name, value in engine.items()},
            # A share cannot be summed; the fullest engine is the one that preempts.
            kv_cache_usage=largest.get(_KV_CACHE, 0.0),
            finished_requests=sum(finished.values()),
            failed_requests=sum(finished.get(reason, 0.0) for reason in _FAILED),
        ),
        live_depth=plugin[_LIVE] > 0,
        depth_generation=int(plugin[_GENERATION]),
        depth_rejections=plugin[_REJECTIONS],
        hook_errors=plugin[_ERRORS],
        counters_shown=plugin.get(_SHOWN, 1.0) > 0,
        transition_steps=plugin[_TRANSITIONS],
        cells=PackedCounts(
            STEPS_FORM,
            ((row, _OF_A_CELL(told)) for row, told in sums.items() if isinstance(row, Cell)),
        ),
        drafts=PackedCounts(
            DRAFTS_FORM,
            (
                (row, (told[_DRAFTS], *[told[at] for at in range(row.depth)]))
                for row, told in sums.items()
                if isinstance(row, DraftCell)
            ),
        ),
        tpot=_histogram(sums[_Pod.TPOT]),
        ttft=_histogram(sums[_Pod.TTFT]),
    )


def _missing(sums: Mapping[_Row, Mapping[_Column, float]]) -> str | None:
    """A counter of the plugin's that has to be there; None: all are.

    Read as 0 it would be steps without requests, or drafts none of which was accepted.
    """
    plugin = sums.get(_Pod.PLUGIN, {})
    shown = plugin.keys() & set(_OF_A_HOOK)
    cells = [row for row in sums if not isinstance(row, _Pod)]
    if cells or shown - {_LIVE} or plugin.get(_LIVE, 0.0) > 0:
        for name in _OF_A_HOOK:
            if name not in shown:
                return name
    for row in cells:
        told = sums[row]
        if isinstance(row, Cell):
            if len(told) < len(_CELLS):
                return next(name for name, count in _CELLS.items() if count not in told)
        elif _DRAFTS not in told:
            return _DRAFTS
        # Not a set of all positions: a page may speak of a depth of a thousand millions.
        elif len(told) != 1 + row.depth or not all(at in told for at in range(row.depth)):
            return _ACCEPTED
    return None


def _histogram(told: Mapping[_Column, float]) -> Histogram:
    return tuple(sorted((float(bound), count) for bound, count in told.items()))
