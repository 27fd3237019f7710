"""From metric samples to `PodCounters`: the same for a pod's own page and for Prometheus. No I/O.

Names are vLLM's and those of Fathom's plugin; tests/contract/test_engine_contract.py asks an engine
for them. vLLM's are summed over all label sets, that is, over the engines of one pod.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum, auto
from functools import lru_cache
from math import isfinite
from operator import itemgetter
from typing import Final, NamedTuple, TypeVar

from prometheus_client.parser import text_string_to_metric_families

from fathom.adapters.remembered import Remembered
from fathom.core.measurement import (
    Cell,
    CellCounts,
    DraftCell,
    DraftCounts,
    EngineCounts,
    Histogram,
    PodCounters,
    StepKind,
)


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
MOST_SAMPLES: Final = 20_000
"""Of one page. Eight engines in a pod that have used every cell show less. At first sight of its
series each takes 20 µs, later one."""
LONGEST_LINE: Final = 4096
"""Characters. The time to read a line grows with the square of its length."""

_READ_NAMES: Final = frozenset(name.encode() for name in FAMILIES)
_NAME: Final = re.compile(rb"[^ \t{]+(?=[ \t{])")
_SERIES: Final = re.compile(rb"[^\s{]+(?:\{[^{}#]*\})?")
"""A series as vLLM shows it. What stands before a line's last space and is not one may hold another
space, and a value before it: such a line is parsed each time."""
_REMEMBERED_BYTES: Final = 64 * 1024 * 1024
"""Of series and where they go, as much as 1,200 models' in each half. The plugin's carry no model's
name, so that the pods of all resources share them; of vLLM's there are 60, 26 KB, per model."""
_SAMPLE: Final = re.compile(rb"^[a-zA-Z_:][a-zA-Z0-9_:]*[ {\t]", re.MULTILINE)


class NotAnEngine(ValueError):  # noqa: N818 - says what is wrong, as every name here does
    """What was read is not a vLLM's metrics; the message says why, as a sentence's second half."""


@dataclass(frozen=True, slots=True)
class Point:
    """One sample of one series."""

    name: str
    labels: Mapping[str, str]
    value: float


_Key = TypeVar("_Key")
_Counts = TypeVar("_Counts")
_Row = Cell | DraftCell | _Pod
_Column = str | float


class _Place(NamedTuple):
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
_NOWHERE: Final = _Place(_Pod.ENGINE, "", "")
_OF_A_CELL: Final = itemgetter(*(each.name for each in fields(CellCounts)))
_CELLS_KEPT: Final = 4096
"""An engine has some hundreds, and all engines have the same."""
# One object each where that is easy: a thing is compared with itself at once.
_cell: Final = lru_cache(_CELLS_KEPT)(Cell)
_draft_cell: Final = lru_cache(_CELLS_KEPT)(DraftCell)


class PageReader:
    """Reads /metrics pages. The library reads each series once; then its bytes are known."""

    def __init__(self, remembered_bytes: int = _REMEMBERED_BYTES) -> None:
        """Know no series yet.

        Args:
            remembered_bytes: that those which are known may take, about.
        """
        self._known: Remembered[_Place] = Remembered(remembered_bytes)

    def read(
        self, page: bytes, *, pod: str, at_s: float, before: PodCounters | None = None
    ) -> PodCounters:
        """Read one page.

        Args:
            page: in Prometheus's text format.
            pod: whose page it is.
            at_s: when it was read (Unix seconds).
            before: an earlier look at this pod: what has not moved since is the very same object.

        Raises:
            NotAnEngine: it is malformed, or not vLLM's.
        """
        try:
            places, values = self._samples(page)
        except NotAnEngine:
            raise
        except UnicodeDecodeError as error:
            raise NotAnEngine("it is not UTF-8 text") from error
        except (ValueError, KeyError, IndexError, OverflowError) as error:
            raise NotAnEngine("it is not in Prometheus's text format") from error
        return _counted(places, values, before, pod=pod, at_s=at_s)

    def _samples(self, page: bytes) -> tuple[list[_Place], list[float]]:
        # Thousands of pods show more than a thousand samples each: this loop is what they cost.
        younger = self._known.younger
        places: list[_Place] = []
        values: list[bytes] = []
        unknown: list[tuple[int, bytes]] = []
        for line in page.split(b"\n"):
            series, _, value = line.rpartition(b" ")
            place = younger.get(series)
            if place is None:
                name = _NAME.match(line)
                if name is None or name[0] not in _READ_NAMES:
                    continue
                unknown.append((len(places), line))
                place, value = _NOWHERE, b"0"
            places.append(place)
            values.append(value)
        if not places and page.strip() and _SAMPLE.search(page) is None:
            raise NotAnEngine("it is not in Prometheus's text format")
        if len(places) > MOST_SAMPLES:
            raise NotAnEngine(f"it shows more than {MOST_SAMPLES} samples of what is read")
        if max(map(len, (*values, *(line for _, line in unknown))), default=0) > LONGEST_LINE:
            raise NotAnEngine(f"a line is longer than {LONGEST_LINE} characters")
        numbers = _numbers(values)
        for at, line in unknown:
            places[at], numbers[at] = self._meet(line)
        return places, numbers

    def _meet(self, line: bytes) -> tuple[_Place, float]:
        series, _, value = line.rpartition(b" ")
        place = self._known.find(series)
        if place is not None:
            (number,) = _numbers([value])
            return place, number
        found = point(line.decode())
        place = _place_of(found)
        if _SERIES.fullmatch(series):
            self._known.keep(series, place)
        return place, found.value


_READER: Final = PageReader()


def parse(text: str, *, pod: str, at_s: float) -> PodCounters:
    """As `PageReader.read`, of text: one reader for all that call it."""
    return _READER.read(text.encode(errors="surrogatepass"), pod=pod, at_s=at_s)


def point(line: str) -> Point:
    """Read one line with the library.

    Raises:
        ValueError: the line is not in the format; also KeyError, IndexError and OverflowError.
    """
    # Without its type, a sample keeps its name, so nothing is lost with the other lines.
    (family,) = text_string_to_metric_families(f"{line}\n")
    (sample,) = family.samples
    return Point(sample.name, sample.labels, float(sample.value))


def _numbers(values: Sequence[bytes]) -> list[float]:
    """As the library reads them, which takes twenty times as long."""
    try:
        if b"_" not in b" ".join(values):
            return list(map(float, values))
    except ValueError:
        pass
    return [point(f"any {value.decode()}").value for value in values]


def counters(points: Iterable[Point], *, pod: str, at_s: float) -> PodCounters:
    """Sum samples of one scrape into counters.

    Raises:
        NotAnEngine: no sample is vLLM's, one is not a number where a count must be, or some are
            missing without which the others would say something else.
    """
    read = [each for each in points if each.name in FAMILIES]
    places = [_place_of(each) for each in read]
    return _counted(places, [each.value for each in read], None, pod=pod, at_s=at_s)


def _place_of(point: Point) -> _Place:
    try:
        return _Place(*_row_and_column(point.name, point.labels), point.name)
    except (KeyError, ValueError) as error:
        raise NotAnEngine(
            f"{point.name} has labels, or values of them, which this version of Fathom does "
            "not know"
        ) from error


def _row_and_column(name: str, labels: Mapping[str, str]) -> tuple[_Row, _Column]:
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


def _counted(
    places: Sequence[_Place],
    values: Sequence[float],
    before: PodCounters | None,
    *,
    pod: str,
    at_s: float,
) -> PodCounters:
    sums: defaultdict[_Row, dict[_Column, float]] = defaultdict(dict)
    for (row, column, name), value in zip(places, values, strict=True):
        told, total = sums[row], value
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
        cells=_at_rest(
            {} if before is None else before.cells,
            (
                (row, CellCounts(*_OF_A_CELL(told)))
                for row, told in sums.items()
                if isinstance(row, Cell)
            ),
        ),
        drafts=_at_rest(
            {} if before is None else before.drafts,
            (
                (row, DraftCounts(told[_DRAFTS], tuple([told[at] for at in range(row.depth)])))
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


def _at_rest(
    before: Mapping[_Key, _Counts], after: Iterable[tuple[_Key, _Counts]]
) -> dict[_Key, _Counts]:
    """What is counted now, by the objects of before where nothing was."""
    told = {}
    for key, counts in after:
        known = before.get(key)
        told[key] = known if known is not None and known == counts else counts
    return told


def _histogram(told: Mapping[_Column, float]) -> Histogram:
    return tuple(sorted((float(bound), count) for bound, count in told.items()))
