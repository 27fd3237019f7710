"""A history as lines over time. Pure. None is what was not measured."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from math import isfinite
from typing import Final

from fathom.page.history import HistoryPoint
from fathom_vllm.buckets import first_batch, last_batch

MOST_LINES: Final = 6
"""Of depth: more cannot be told apart."""


@dataclass(frozen=True, slots=True)
class DepthLine:
    """The depth of some batches over time."""

    batches: str
    """Such as `batch 5-8`."""
    depths: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Charts:
    """Columns of equal length, in order of time."""

    at_s: tuple[int, ...]
    """Unix seconds."""
    depths: tuple[DepthLine, ...]
    left_out: int
    """Lines of depth beyond the most that are shown."""
    tokens_per_second: tuple[float | None, ...]
    mean_batch: tuple[float | None, ...]
    acceptance_length: tuple[float | None, ...]
    gain_percent: tuple[float | None, ...]


def charts_of(points: Sequence[HistoryPoint], busy: Iterable[int]) -> Charts:
    """Lines from points.

    Args:
        points: in order of time.
        busy: buckets with load, by their largest batch; of too many lines theirs are shown.
    """
    lines = _depth_lines(points)
    loaded = set(busy)
    # What has load first, then what comes first; shown in the order of the batch.
    chosen = sorted(range(len(lines)), key=lambda i: (not loaded & lines[i][0], i))[:MOST_LINES]
    return Charts(
        at_s=tuple(round(each.at_s) for each in points),
        depths=tuple(lines[i][1] for i in sorted(chosen)),
        left_out=len(lines) - len(chosen),
        tokens_per_second=_known((each.tokens_per_second for each in points), 0),
        mean_batch=_known((each.mean_batch for each in points), 1),
        acceptance_length=_known((each.acceptance_length for each in points), 2),
        gain_percent=_known((each.gain_percent for each in points), 1),
    )


def _depth_lines(points: Sequence[HistoryPoint]) -> list[tuple[set[int], DepthLine]]:
    """A line for each run of buckets that had the same depth at all times, with its buckets."""
    columns = list(enumerate(zip_longest(*(each.depths for each in points))))
    found = []
    for depths, run in groupby(columns, key=lambda column: column[1]):
        indices = [index for index, _ in run]
        last = last_batch(indices[-1]) if indices[-1] + 1 < len(columns) else None
        label = _label(first_batch(indices[0]), last)
        found.append((set(map(last_batch, indices)), DepthLine(label, depths)))
    return found


def _label(first: int, last: int | None) -> str:
    """Batches in words; the last depth of a schedule carries on, wherever that ends."""
    if last is None:
        return "every batch" if first == 1 else f"batch {first} and more"
    return f"batch {first}" if first == last else f"batch {first}-{last}"


def _known(values: Iterable[float], digits: int) -> tuple[float | None, ...]:
    return tuple(round(each, digits) if isfinite(each) else None for each in values)
