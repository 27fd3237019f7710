"""From metric samples to `PodCounters`: the same for a pod's own page and for Prometheus. Pure.

Names are vLLM's and those of Fathom's plugin; tests/contract/test_engine_contract.py asks an engine
for them. vLLM's are summed over all label sets, that is, over the engines of one pod.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from types import MappingProxyType
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from fathom.core.measurement import (
    Cell,
    CellCounts,
    DraftCell,
    DraftCounts,
    EngineCounts,
    PodCounters,
    StepKind,
)

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
    f"{_TPOT}_bucket": "tpot",
    "vllm:time_to_first_token_seconds_bucket": "ttft",
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

FAMILIES: Final = frozenset(
    {
        *_ENGINE,
        _KV_CACHE,
        *_HISTOGRAMS,
        _FINISHED,
        *_CELLS,
        *_SCALARS,
        _DRAFTS,
        _ACCEPTED,
        _PROCESS_START,
        _CREATED,
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
series each takes 30 µs, later 5."""
LONGEST_LINE: Final = 4096
"""Characters. The time to read a line grows with the square of its length."""

_READ_LINES: Final = re.compile(
    rf"^(?:{'|'.join(re.escape(name) for name in sorted(FAMILIES))})[ {{\t].*$", re.MULTILINE
)
_SERIES: Final = re.compile(r"[^\s{]+(?:\{[^{}#]*\})?(?=[ \t])")
"""A series as vLLM shows it, up to its value; of a stranger one the whole line is parsed."""
_SERIES_KEPT: Final = 16_384
"""Series whose names and labels are remembered, about 10 MiB; a page shows a few hundred. The
plugin's carry no model's name, so that the pods of all resources share them."""
_SAMPLE: Final = re.compile(r"^[a-zA-Z_:][a-zA-Z0-9_:]*[ {\t]", re.MULTILINE)


class NotAnEngine(ValueError):  # noqa: N818 - says what is wrong, as every name here does
    """What was read is not a vLLM's metrics; the message says why, as a sentence's second half."""


@dataclass(frozen=True, slots=True)
class Point:
    """One sample of one series."""

    name: str
    labels: Mapping[str, str]
    value: float


def parse(text: str, *, pod: str, at_s: float) -> PodCounters:
    """Read one /metrics page.

    Args:
        text: the page, in Prometheus's text format.
        pod: whose page it is.
        at_s: when it was read (Unix seconds).

    Raises:
        NotAnEngine: it is malformed, or not vLLM's.
    """
    lines = _READ_LINES.findall(text)
    if not lines and text.strip() and _SAMPLE.search(text) is None:
        raise NotAnEngine("it is not in Prometheus's text format")
    if len(lines) > MOST_SAMPLES:
        raise NotAnEngine(f"it shows more than {MOST_SAMPLES} samples of what is read")
    if any(len(line) > LONGEST_LINE for line in lines):
        raise NotAnEngine(f"a line is longer than {LONGEST_LINE} characters")
    try:
        points = [point(line) for line in lines]
    except (ValueError, KeyError, IndexError) as error:
        raise NotAnEngine("it is not in Prometheus's text format") from error
    return counters(points, pod=pod, at_s=at_s)


def point(line: str) -> Point:
    """Read one line; of a series that was met before, only its value.

    Raises:
        ValueError: the line is not in the format; also KeyError and IndexError.
    """
    series = _SERIES.match(line)
    value = line[series.end() :].split() if series else []
    if series is None or len(value) != 1 or "_" in value[0]:
        return _parsed(line)
    name, labels = _name_and_labels(series[0])
    return Point(name, labels, float(value[0]))


@lru_cache(_SERIES_KEPT)
def _name_and_labels(series: str) -> tuple[str, Mapping[str, str]]:
    read = _parsed(f"{series} 0")
    return read.name, MappingProxyType(read.labels)


def _parsed(line: str) -> Point:
    # Without its type, a sample keeps its name, so nothing is lost with the other lines.
    (family,) = text_string_to_metric_families(f"{line}\n")
    (sample,) = family.samples
    return Point(sample.name, sample.labels, float(sample.value))


def counters(points: Iterable[Point], *, pod: str, at_s: float) -> PodCounters:
    """Sum samples of one scrape into counters.

    Raises:
        NotAnEngine: no sample is vLLM's, one is not a number where a count must be, or some are
            missing without which the others would say something else.
    """
    reading = _Reading()
    for point in points:
        reading.add(point)
    if not reading.engine:
        raise NotAnEngine("it shows no vllm: metrics")
    if (missing := reading.missing()) is not None:
        raise NotAnEngine(f"it shows only a part of Fathom's counters: {missing} is missing")
    return PodCounters(
        pod=pod,
        at_s=at_s,
        started_at_s=reading.started_at_s or reading.created_at_s,
        engine=EngineCounts(**reading.engine),
        live_depth=reading.scalars[_LIVE] > 0,
        depth_generation=int(reading.scalars[_GENERATION]),
        depth_rejections=reading.scalars[_REJECTIONS],
        hook_errors=reading.scalars[_ERRORS],
        counters_shown=reading.scalars.get(_SHOWN, 1.0) > 0,
        transition_steps=reading.scalars[_TRANSITIONS],
        cells={cell: CellCounts(**sums) for cell, sums in reading.cells.items()},
        drafts={
            cell: DraftCounts(drafts, tuple(reading.accepted[cell][at] for at in range(cell.depth)))
            for cell, drafts in reading.drafts.items()
        },
        tpot=tuple(sorted(reading.histograms["tpot"].items())),
        ttft=tuple(sorted(reading.histograms["ttft"].items())),
    )


def _sums() -> defaultdict[str, float]:
    return defaultdict(float)


@dataclass(slots=True)
class _Reading:
    """Sums in the making."""

    engine: defaultdict[str, float] = field(default_factory=_sums)
    scalars: defaultdict[str, float] = field(default_factory=_sums)
    histograms: defaultdict[str, defaultdict[float, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )
    started_at_s: float = 0.0
    created_at_s: float = 0.0
    cells: defaultdict[Cell, defaultdict[str, float]] = field(
        default_factory=lambda: defaultdict(_sums)
    )
    drafts: defaultdict[DraftCell, float] = field(default_factory=lambda: defaultdict(float))
    accepted: defaultdict[DraftCell, defaultdict[int, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )

    def add(self, point: Point) -> None:
        if point.name not in FAMILIES:
            return
        if not isfinite(point.value):
            raise NotAnEngine(f"{point.name} is {point.value}, not a count")
        try:
            self._add(point)
        except (KeyError, ValueError) as error:
            raise NotAnEngine(
                f"{point.name} has labels, or values of them, which this version of Fathom does "
                "not know"
            ) from error

    def missing(self) -> str | None:
        """A counter of the plugin's that has to be there; None: all are.

        Read as 0 it would be steps without requests, or drafts none of which was accepted.
        """
        shown = self.scalars.keys() & set(_OF_A_HOOK)
        if self.cells or self.drafts or shown - {_LIVE} or self.scalars.get(_LIVE, 0.0) > 0:
            for name in _OF_A_HOOK:
                if name not in shown:
                    return name
        for sums in self.cells.values():
            for name, count in _CELLS.items():
                if count not in sums:
                    return name
        for cell in self.drafts.keys() | self.accepted.keys():
            if cell not in self.drafts:
                return _DRAFTS
            if self.accepted.get(cell, {}).keys() != set(range(cell.depth)):
                return _ACCEPTED
        return None

    def _add(self, point: Point) -> None:
        name, labels, value = point.name, point.labels, point.value
        if name in _ENGINE:
            self.engine[_ENGINE[name]] += value
        elif name == _KV_CACHE:
            # A share cannot be summed; the fullest engine is the one that preempts.
            self.engine["kv_cache_usage"] = max(self.engine["kv_cache_usage"], value)
        elif name in _HISTOGRAMS:
            self.histograms[_HISTOGRAMS[name]][float(labels["le"])] += value
        elif name == _FINISHED:
            failed = labels["finished_reason"] in _FAILED
            self.engine["finished_requests"] += value
            self.engine["failed_requests"] += value if failed else 0.0
        elif name in _CELLS:
            cell = Cell(int(labels["batch_le"]), int(labels["depth"]), StepKind(labels["step"]))
            self.cells[cell][_CELLS[name]] += value
        elif name == _DRAFTS:
            self.drafts[_draft_cell(labels)] += value
        elif name == _ACCEPTED:
            self.accepted[_draft_cell(labels)][int(labels["position"])] += value
        elif name == _PROCESS_START:
            self.started_at_s = max(self.started_at_s, value)
        elif name == _CREATED:
            self.created_at_s = max(self.created_at_s, value)
        else:
            self.scalars[name] += value


def _draft_cell(labels: Mapping[str, str]) -> DraftCell:
    return DraftCell(int(labels["batch_le"]), int(labels["depth"]))
