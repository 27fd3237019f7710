"""From metric samples to `PodCounters`: the same for a pod's own page and for Prometheus. No I/O.

Names are vLLM's and those of Fathom's plugin; tests/contract/test_engine_contract.py asks an engine
for them. vLLM's are summed over all label sets, that is, over the engines of one pod.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from operator import itemgetter
from typing import Final

from fathom.adapters.series import (
    ACCEPTED,
    BUDGET,
    CELLS,
    CONTEXTS,
    CREATED,
    DRAFTS,
    ERRORS,
    FAILED,
    FAMILIES,
    GENERATION,
    GONE,
    KV_CACHE,
    LIVE,
    NAMED,
    OF_A_HOOK,
    PREFILL_COUNT,
    PROCESS_START,
    REJECTIONS,
    SCHEDULE,
    SEEN,
    SHOWN,
    TRANSITION_PREFILL,
    TRANSITION_SECONDS,
    TRANSITION_TOKENS,
    TRANSITIONS,
    Column,
    Destination,
    NotAnEngine,
    Pod,
    Point,
    Row,
    Told,
    destination_of,
)
from fathom.measurement.counters import (
    Cell,
    ContextRange,
    DraftCell,
    EngineCounts,
    PodCounters,
    StepKind,
)
from fathom.measurement.packed_counts import (
    CONTEXTS_FORM,
    DRAFTS_FORM,
    OLD_STEPS_FORM,
    STEPS_FORM,
    PackedCounts,
)

_OF_A_CELL: Final = itemgetter(*CELLS.values())
_OF_A_MIXED_CELL: Final = itemgetter(*CELLS.values(), PREFILL_COUNT)
_OF_A_RANGE: Final = itemgetter(*CONTEXTS.values())


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


class Layout:
    """Where each value of a page goes: the same for all pages that show the same series in turn."""

    __slots__ = (
        "_added",
        "_cells",
        "_context_numbers",
        "_contexts",
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
        "_positions",
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
        self._engine = tuple((str(name), slot) for name, slot in rows[Pod.ENGINE].items())
        self._finished = dict(rows[Pod.FINISHED])
        self._largest = dict(rows[Pod.LARGEST])
        self._plugin = dict(rows[Pod.PLUGIN])
        self._told = _only(rows[Pod.TOLD])
        self._tpot, self._ttft = _bounds(rows[Pod.TPOT]), _bounds(rows[Pod.TTFT])
        self._positions = _bounds(rows[Pod.POSITIONS])
        self._missing = _missing(rows)
        self._missing_where_live = self._missing or _missing_of_hook(rows)
        self._cells = tuple(row for row in rows if isinstance(row, Cell))
        self._drafts = tuple(row for row in rows if isinstance(row, DraftCell))
        self._contexts = tuple(row for row in rows if isinstance(row, ContextRange))
        self._counts_prompts = all(
            PREFILL_COUNT in rows[row] for row in self._cells if row.step is StepKind.MIXED
        )
        steps: list[int] = []
        drafts: list[int] = []
        contexts: list[int] = []
        if self._missing is None:
            for cell in self._cells:
                whole = self._counts_prompts and cell.step is StepKind.MIXED
                steps += (_OF_A_MIXED_CELL if whole else _OF_A_CELL)(rows[cell])
            for row in self._drafts:
                told = rows[row]
                drafts += (told[DRAFTS], *(told[at] for at in range(row.depth)))
            for each in self._contexts:
                contexts += _OF_A_RANGE(rows[each])
        self._step_numbers, self._draft_numbers = array("I", steps), array("I", drafts)
        self._context_numbers = array("I", contexts)

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
        if not self._engine and not self._finished and KV_CACHE not in self._largest:
            raise NotAnEngine("it shows no vllm: metrics")
        at = totals.__getitem__
        plugin = defaultdict(float, {name: at(slot) for name, slot in self._plugin.items()})
        largest = {name: at(slot) for name, slot in self._largest.items()}
        live = plugin[LIVE] > 0
        if (missing := self._missing_where_live if live else self._missing) is not None:
            raise NotAnEngine(f"it shows only a part of Fathom's counters: {missing} is missing")
        finished = {reason: at(slot) for reason, slot in self._finished.items()}
        return PodCounters(
            pod=pod,
            at_s=at_s,
            started_at_s=largest.get(PROCESS_START) or largest.get(CREATED, 0.0),
            engine=EngineCounts(
                **{name: at(slot) for name, slot in self._engine},
                # A share cannot be summed; the fullest engine is the one that preempts.
                kv_cache_usage=largest.get(KV_CACHE, 0.0),
                finished_requests=sum(finished.values()),
                failed_requests=sum(finished.get(reason, 0.0) for reason in FAILED),
            ),
            has_plugin=LIVE in self._plugin,
            live_depth=live,
            depth_generation=int(plugin[GENERATION]),
            schedule_hash=int(plugin[SCHEDULE]),
            document_seen=plugin.get(SEEN, 1.0) > 0,
            document_gone=plugin[GONE] > 0,
            named=plugin.get(NAMED, 1.0) > 0,
            depth_rejections=plugin[REJECTIONS],
            hook_errors=plugin[ERRORS],
            counters_shown=plugin.get(SHOWN, 1.0) > 0,
            counts_prompts=self._counts_prompts,
            token_budget=int(plugin[BUDGET]),
            device=self._told.device,
            report=self._told.report,
            transition_steps=plugin[TRANSITIONS],
            transition_seconds=plugin[TRANSITION_SECONDS],
            transition_tokens=plugin[TRANSITION_TOKENS],
            transition_prefill=plugin[TRANSITION_PREFILL],
            cells=PackedCounts(
                STEPS_FORM if self._counts_prompts else OLD_STEPS_FORM,
                self._cells,
                map(at, self._step_numbers),
            ),
            drafts=PackedCounts(DRAFTS_FORM, self._drafts, map(at, self._draft_numbers)),
            contexts=PackedCounts(CONTEXTS_FORM, self._contexts, map(at, self._context_numbers)),
            tpot=tuple((bound, at(slot)) for bound, slot in self._tpot),
            ttft=tuple((bound, at(slot)) for bound, slot in self._ttft),
            positions=tuple((position, at(slot)) for position, slot in self._positions),
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
    sums = defaultdict[tuple[Row, Column], float](float)
    for (row, column, name), value in zip(places, values, strict=True):
        sums[row, column] = value if row is Pod.LARGEST else sums[row, column] + value
        if not isfinite(sums[row, column]):
            return f"{name} is {sums[row, column]}, not a count"
    raise AssertionError("all are counts")


_Rows = defaultdict[Row, dict[Column, int]]
_Slots = list[tuple[int, int]]
"""Pairs: a total's index, and the index of a value that goes there."""


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
    known: dict[int, dict[Column, int]] = {}
    for at, (row, column, _) in enumerate(places):
        told = known.get(id(row))
        if told is None:
            told = known[id(row)] = rows[row]
        if column in told:
            (larger if row is Pod.LARGEST else added).append((told[column], at))
        else:
            told[column] = len(firsts)
            firsts.append(at)
    return rows, firsts, added, larger


def _pairs(slots: _Slots) -> tuple["array[int]", "array[int]"]:
    """As small as can be: of each page that is known there is one."""
    return array("I", (slot for slot, _ in slots)), array("I", (at for _, at in slots))


def _missing_of_hook(rows: Mapping[Row, Mapping[Column, int]]) -> str | None:
    """The first that the hook does not show, of what it shows everywhere."""
    shown = rows.get(Pod.PLUGIN, {})
    return next((name for name in OF_A_HOOK if name not in shown), None)


def _missing(rows: Mapping[Row, Mapping[Column, int]]) -> str | None:
    """A counter of the plugin's that has to be there, also where depth is not live; None: all are.

    Read as 0 it would be steps without requests, or drafts none of which was accepted.
    """
    shown = rows.get(Pod.PLUGIN, {}).keys() & set(OF_A_HOOK)
    cells = [row for row in rows if not isinstance(row, Pod)]
    if (cells or shown - {LIVE}) and (name := _missing_of_hook(rows)) is not None:
        return name
    for row in cells:
        told = rows[row]
        if isinstance(row, Cell | ContextRange):
            columns = CELLS if isinstance(row, Cell) else CONTEXTS
            absent = (name for name, count in columns.items() if count not in told)
            if (name := next(absent, None)) is not None:
                return name
        elif DRAFTS not in told:
            return DRAFTS
        # Not a set of all positions: a page may speak of a depth of a thousand millions.
        elif len(told) != 1 + row.depth or not all(at in told for at in range(row.depth)):
            return ACCEPTED
    return None


def _only(columns: Iterable[Column]) -> Told:
    """What is told, if it is one thing: engines that contradict each other tell nothing."""
    told = [each for each in columns if isinstance(each, Told)]
    return told[0] if len(told) == 1 else Told()


def _bounds(told: Mapping[Column, int]) -> tuple[tuple[float, int], ...]:
    """Bounds of a histogram, ascending, with where the counts up to them are."""
    slots = ((bound, slot) for bound, slot in told.items() if isinstance(bound, float))
    return tuple(sorted(slots))
