"""From metric samples to `PodCounters`: the same for a pod's own page and for Prometheus. No I/O.

Names are vLLM's and those of Fathom's plugin; tests/contract/test_engine_contract.py asks an engine
for them. vLLM's are summed over all label sets, that is, over the engines of one pod.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from math import isfinite
from operator import itemgetter
from typing import Final, NamedTuple

from fathom.core.measurement import (
    DRAFTS_FORM,
    OLD_STEPS_FORM,
    STEPS_FORM,
    Cell,
    DraftCell,
    EngineCounts,
    PodCounters,
    StepKind,
)
from fathom.core.packed_counts import PackedCounts
from fathom.engine.report import NOTHING_TOLD, EngineReport, device_in, report_in


class _Pod(Enum):
    """Rows that a pod has one of."""

    ENGINE = auto()
    FINISHED = auto()
    TPOT = auto()
    TTFT = auto()
    PLUGIN = auto()
    LARGEST = auto()
    """Of what its engines show, and not the sum."""
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
_PREFILL: Final = "fathom_prefill_tokens_total"
"""Of mixed steps, and in newer plugins alone."""
_PREFILL_COUNT: Final = "prefill_tokens"
_DRAFTS: Final = "fathom_drafts_total"
_ACCEPTED: Final = "fathom_accepted_tokens_total"
_TRANSITIONS: Final = "fathom_transition_steps_total"
_TRANSITION_SECONDS: Final = "fathom_transition_step_seconds_total"
_TRANSITION_TOKENS: Final = "fathom_transition_tokens_total"
_TRANSITION_PREFILL: Final = "fathom_transition_prefill_tokens_total"
_GENERATION: Final = "fathom_depth_generation"
_SCHEDULE: Final = "fathom_depth_schedule_hash"
_REJECTIONS: Final = "fathom_depth_rejections_total"
_ERRORS: Final = "fathom_hook_errors_total"
_LIVE: Final = "fathom_live_depth"
_SHOWN: Final = "fathom_counters_shown"
_BUDGET: Final = "fathom_token_budget"
INFO: Final = "fathom_engine_info"
"""Its labels are what the engine tells of itself."""
_OF_A_HOOK: Final = (_TRANSITIONS, _GENERATION, _REJECTIONS, _ERRORS, _LIVE)
"""Shown together, by every version of the plugin, once an engine has started."""
_SCALARS: Final = (
    *_OF_A_HOOK,
    _SCHEDULE,
    _SHOWN,
    _BUDGET,
    _TRANSITION_SECONDS,
    _TRANSITION_TOKENS,
    _TRANSITION_PREFILL,
)
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
        _PREFILL,
        *_SCALARS,
        _DRAFTS,
        _ACCEPTED,
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


class _Told(NamedTuple):
    """What an engine tells of itself."""

    device: str = ""
    report: EngineReport = NOTHING_TOLD


_Row = Cell | DraftCell | _Pod
_Column = str | float | _Told


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
_OF_A_CELL: Final = itemgetter(*_CELLS.values())
_OF_A_MIXED_CELL: Final = itemgetter(*_CELLS.values(), _PREFILL_COUNT)
_CELLS_KEPT: Final = 4096
"""An engine has some hundreds, and all engines have the same."""
_PLACING_LABELS: Final = ("le", "finished_reason", "batch_le", "depth", "step", "position")
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


def counters(points: Iterable[Point], *, pod: str, at_s: float) -> PodCounters:
    """Sum samples of one scrape into counters.

    Raises:
        NotAnEngine: no sample is vLLM's, one is not a number where a count must be, or some are
            missing without which the others would say something else.
    """
    read = [each for each in points if each.name in FAMILIES]
    places = [destination_of(each) for each in read]
    found, _ = counted(places, [each.value for each in read], pod=pod, at_s=at_s)
    return found


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
    return Destination(_Pod.TOLD, _Told(device_in(found), report_in(found)), INFO)


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
    if name in _CELLS or name == _PREFILL:
        step = StepKind(labels["step"])
        column = _CELLS.get(name, _PREFILL_COUNT)
        return _cell(int(labels["batch_le"]), int(labels["depth"]), step), column
    drafts = _draft_cell(int(labels["batch_le"]), int(labels["depth"]))
    return drafts, name if name == _DRAFTS else int(labels["position"])


class Layout:
    """Where each value of a page goes: the same for all pages that show the same series in turn."""

    __slots__ = (
        "_added",
        "_cells",
        "_counts_prompts",
        "_draft_numbers",
        "_drafts",
        "_engine",
        "_finished",
        "_firsts",
        "_larger",
        "_largest",
        "_missing",
        "_missing_where_live",
        "_plugin",
        "_step_numbers",
        "_told",
        "_tpot",
        "_ttft",
    )

    def __init__(self, places: Sequence[Destination]) -> None:
        """Lay out.

        Args:
            places: where each of the page's values is added.
        """
        rows, firsts, added, larger = _slots(places)
        self._firsts = array("I", firsts) if added or larger else None
        self._added, self._larger = _pairs(added), _pairs(larger)
        self._engine = tuple((str(name), slot) for name, slot in rows[_Pod.ENGINE].items())
        self._finished = dict(rows[_Pod.FINISHED])
        self._largest = dict(rows[_Pod.LARGEST])
        self._plugin = dict(rows[_Pod.PLUGIN])
        self._told = _only(rows[_Pod.TOLD])
        self._tpot, self._ttft = _bounds(rows[_Pod.TPOT]), _bounds(rows[_Pod.TTFT])
        self._missing = _missing(rows)
        self._missing_where_live = self._missing or _missing_of_hook(rows)
        self._cells = tuple(row for row in rows if isinstance(row, Cell))
        self._drafts = tuple(row for row in rows if isinstance(row, DraftCell))
        self._counts_prompts = all(
            _PREFILL_COUNT in rows[row] for row in self._cells if row.step is StepKind.MIXED
        )
        steps: list[int] = []
        drafts: list[int] = []
        if self._missing is None:
            for cell in self._cells:
                whole = self._counts_prompts and cell.step is StepKind.MIXED
                steps += (_OF_A_MIXED_CELL if whole else _OF_A_CELL)(rows[cell])
            for row in self._drafts:
                told = rows[row]
                drafts += (told[_DRAFTS], *(told[at] for at in range(row.depth)))
        self._step_numbers, self._draft_numbers = array("I", steps), array("I", drafts)

    def totals(self, values: Sequence[float]) -> Sequence[float] | None:
        """Sums of a page's values, and of some the largest; None: not all values are finite."""
        # A NaN or an infinity that is not the largest would not be seen in what comes out.
        if not all(map(isfinite, values)):
            return None
        if self._firsts is None:
            return values
        totals = [values[at] for at in self._firsts]
        for slot, at in zip(*self._added, strict=True):
            totals[slot] += values[at]
        for slot, at in zip(*self._larger, strict=True):
            totals[slot] = max(totals[slot], values[at])
        return totals if all(map(isfinite, totals)) else None

    def counters(self, totals: Sequence[float], *, pod: str, at_s: float) -> PodCounters:
        """What these totals say of a pod.

        Raises:
            NotAnEngine: no sample is vLLM's, or some are missing without which the others would say
                something else.
        """
        if not self._engine and not self._finished and _KV_CACHE not in self._largest:
            raise NotAnEngine("it shows no vllm: metrics")
        at = totals.__getitem__
        plugin = defaultdict(float, {name: at(slot) for name, slot in self._plugin.items()})
        largest = {name: at(slot) for name, slot in self._largest.items()}
        live = plugin[_LIVE] > 0
        if (missing := self._missing_where_live if live else self._missing) is not None:
            raise NotAnEngine(f"it shows only a part of Fathom's counters: {missing} is missing")
        finished = {reason: at(slot) for reason, slot in self._finished.items()}
        return PodCounters(
            pod=pod,
            at_s=at_s,
            started_at_s=largest.get(_PROCESS_START) or largest.get(_CREATED, 0.0),
            engine=EngineCounts(
                **{name: at(slot) for name, slot in self._engine},
                # A share cannot be summed; the fullest engine is the one that preempts.
                kv_cache_usage=largest.get(_KV_CACHE, 0.0),
                finished_requests=sum(finished.values()),
                failed_requests=sum(finished.get(reason, 0.0) for reason in _FAILED),
            ),
            live_depth=live,
            depth_generation=int(plugin[_GENERATION]),
            schedule_hash=int(plugin[_SCHEDULE]),
            depth_rejections=plugin[_REJECTIONS],
            hook_errors=plugin[_ERRORS],
            counters_shown=plugin.get(_SHOWN, 1.0) > 0,
            counts_prompts=self._counts_prompts,
            token_budget=int(plugin[_BUDGET]),
            device=self._told.device,
            report=self._told.report,
            transition_steps=plugin[_TRANSITIONS],
            transition_seconds=plugin[_TRANSITION_SECONDS],
            transition_tokens=plugin[_TRANSITION_TOKENS],
            transition_prefill=plugin[_TRANSITION_PREFILL],
            cells=PackedCounts(
                STEPS_FORM if self._counts_prompts else OLD_STEPS_FORM,
                self._cells,
                map(at, self._step_numbers),
            ),
            drafts=PackedCounts(DRAFTS_FORM, self._drafts, map(at, self._draft_numbers)),
            tpot=tuple((bound, at(slot)) for bound, slot in self._tpot),
            ttft=tuple((bound, at(slot)) for bound, slot in self._ttft),
        )


def counted(
    places: Sequence[Destination], values: Sequence[float], *, pod: str, at_s: float
) -> tuple[PodCounters, Layout]:
    """What values say of a pod that go to these places, and how they lie.

    Raises:
        NotAnEngine: as `counters`.
    """
    layout = Layout(places)
    totals = layout.totals(values)
    if totals is None:
        raise NotAnEngine(_no_count(places, values))
    return layout.counters(totals, pod=pod, at_s=at_s), layout


def _no_count(places: Sequence[Destination], values: Sequence[float]) -> str:
    """The first value that is none, or that makes a sum which is none."""
    sums = defaultdict[tuple[_Row, _Column], float](float)
    for (row, column, name), value in zip(places, values, strict=True):
        sums[row, column] = value if row is _Pod.LARGEST else sums[row, column] + value
        if not isfinite(sums[row, column]):
            return f"{name} is {sums[row, column]}, not a count"
    raise AssertionError("all are counts")


_Rows = defaultdict[_Row, dict[_Column, int]]
_Slots = list[tuple[int, int]]
"""Of totals, each with a value that goes there."""


def _slots(places: Sequence[Destination]) -> tuple[_Rows, list[int], _Slots, _Slots]:
    """Which total each value goes to.

    Returns:
        The totals by row and column; of each the first value; those of the other values that are
        added, and of those of which the largest counts.
    """
    rows: _Rows = defaultdict(dict)
    firsts: list[int] = []
    added: _Slots = []
    larger: _Slots = []
    # A row comes several times, most often as the same object, and to hash it takes long.
    known: dict[int, dict[_Column, int]] = {}
    for at, (row, column, _) in enumerate(places):
        told = known.get(id(row))
        if told is None:
            told = known[id(row)] = rows[row]
        if column in told:
            (larger if row is _Pod.LARGEST else added).append((told[column], at))
        else:
            told[column] = len(firsts)
            firsts.append(at)
    return rows, firsts, added, larger


def _pairs(slots: _Slots) -> tuple["array[int]", "array[int]"]:
    """As small as can be: of each page that is known there is one."""
    return array("I", (slot for slot, _ in slots)), array("I", (at for _, at in slots))


def _missing_of_hook(rows: Mapping[_Row, Mapping[_Column, int]]) -> str | None:
    """The first that the hook does not show, of what it shows everywhere."""
    shown = rows.get(_Pod.PLUGIN, {})
    return next((name for name in _OF_A_HOOK if name not in shown), None)


def _missing(rows: Mapping[_Row, Mapping[_Column, int]]) -> str | None:
    """A counter of the plugin's that has to be there, also where depth is not live; None: all are.

    Read as 0 it would be steps without requests, or drafts none of which was accepted.
    """
    shown = rows.get(_Pod.PLUGIN, {}).keys() & set(_OF_A_HOOK)
    cells = [row for row in rows if not isinstance(row, _Pod)]
    if (cells or shown - {_LIVE}) and (name := _missing_of_hook(rows)) is not None:
        return name
    for row in cells:
        told = rows[row]
        if isinstance(row, Cell):
            absent = (name for name, count in _CELLS.items() if count not in told)
            if (name := next(absent, None)) is not None:
                return name
        elif _DRAFTS not in told:
            return _DRAFTS
        # Not a set of all positions: a page may speak of a depth of a thousand millions.
        elif len(told) != 1 + row.depth or not all(at in told for at in range(row.depth)):
            return _ACCEPTED
    return None


def _only(columns: Iterable[_Column]) -> _Told:
    """What is told, if it is one thing: engines that contradict each other tell nothing."""
    told = [each for each in columns if isinstance(each, _Told)]
    return told[0] if len(told) == 1 else _Told()


def _bounds(told: Mapping[_Column, int]) -> tuple[tuple[float, int], ...]:
    """Of a histogram, ascending, with where the counts up to them are."""
    slots = ((bound, slot) for bound, slot in told.items() if isinstance(bound, float))
    return tuple(sorted(slots))
