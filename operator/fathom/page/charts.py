"""The lines that charts draw of a history, and which charts there are. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from math import isfinite
from typing import Final

from fathom.page.history import HistoryPoint
from fathom_vllm.buckets import first_batch, last_batch


@dataclass(frozen=True, slots=True)
class DepthRow:
    """The depth of a range of batches over time."""

    batches: str
    """Such as `5-8`, `9+` for 9 and more, or `all`."""
    depths: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Charts:
    """Columns of equal length, in order of time. None: not measured."""

    at_s: tuple[int, ...]
    """Unix seconds."""
    depths: tuple[DepthRow, ...]
    tokens_per_second: tuple[float | None, ...]
    mean_batch: tuple[float | None, ...]
    acceptance_length: tuple[float | None, ...]
    gain_percent: tuple[float | None, ...]
    gained_percent: tuple[float | None, ...]
    gained_error_percent: tuple[float | None, ...]


def charts_of(points: Sequence[HistoryPoint]) -> Charts:
    """Columns from points, which are in order of time."""
    return Charts(
        at_s=tuple(round(each.at_s) for each in points),
        depths=tuple(_depth_rows(points)),
        tokens_per_second=_known((each.tokens_per_second for each in points), 0),
        mean_batch=_known((each.mean_batch for each in points), 1),
        acceptance_length=_known((each.acceptance_length for each in points), 2),
        gain_percent=_known((each.gain_percent for each in points), 1),
        gained_percent=_known((each.gained_percent for each in points), 1),
        gained_error_percent=_known((each.gained_error_percent for each in points), 1),
    )


def _depth_rows(points: Sequence[HistoryPoint]) -> Iterator[DepthRow]:
    """A row for each run of buckets that had the same depth at all times."""
    columns = list(enumerate(zip_longest(*(each.depths for each in points))))
    for depths, run in groupby(columns, key=lambda column: column[1]):
        indices = [index for index, _ in run]
        last = last_batch(indices[-1]) if indices[-1] + 1 < len(columns) else None
        yield DepthRow(_label(first_batch(indices[0]), last), depths)


def _label(first: int, last: int | None) -> str:
    """Batches in short; the last depth of a schedule carries on, wherever that ends."""
    if last is None:
        return "all" if first == 1 else f"{first}+"
    return f"{first}" if first == last else f"{first}-{last}"


def _known(values: Iterable[float], digits: int) -> tuple[float | None, ...]:
    return tuple(round(each, digits) + 0.0 if isfinite(each) else None for each in values)


@dataclass(frozen=True, slots=True)
class EmptyPanels:
    """Charts that have nothing to draw, for one reason."""

    names: tuple[str, ...]
    missing: str
    """What is missing, in a sentence."""


_PANELS: Final = ("depth", "tokens_per_second", "mean_batch", "acceptance_length", "gain_percent")
"""Charts by the names by which the template and the script know them."""


def panels_of(
    charts: Charts, tokens: int, why_fixed: str = "", *, uncounted: str = ""
) -> tuple[tuple[str, ...], tuple[EmptyPanels, ...]]:
    """Charts that have something to draw, and those that have not, with what is missing.

    Args:
        charts: all columns.
        tokens: the user's own depth.
        why_fixed: why depth does not change while the engines run; empty: it may.
        uncounted: why batches are not known, and nothing that depends on them; empty: they may be.
    """
    fixed = f"It does not change while the engines run: {why_fixed}" if why_fixed else ""
    gain = (
        f"It needs the speeds at {own_depth(tokens)} and at the depth in force, both measured in "
        "the same range of batches."
    )
    nothing = "They begin with the first window that has requests and readable metrics."
    whys = dict.fromkeys(_PANELS, nothing)
    whys["depth"] = fixed or "No depth was set yet."
    if _any(charts.tokens_per_second):
        whys |= {"acceptance_length": "No window verified a draft.", "gain_percent": gain}
    if uncounted:
        whys |= dict.fromkeys(("mean_batch", "gain_percent"), uncounted)
    drawn = {
        "depth": bool(charts.depths),
        "tokens_per_second": _any(charts.tokens_per_second),
        "mean_batch": _any(charts.mean_batch),
        "acceptance_length": _any(charts.acceptance_length),
        "gain_percent": _any((*charts.gain_percent, *charts.gained_percent)),
    }
    alike: dict[str, list[str]] = {}
    for each in _PANELS:
        if not drawn[each]:
            alike.setdefault(whys[each], []).append(each)
    return (
        tuple(each for each in _PANELS if drawn[each]),
        tuple(EmptyPanels(tuple(names), why) for why, names in alike.items()),
    )


def _any(values: Iterable[float | None]) -> bool:
    return any(each is not None for each in values)


def own_depth(tokens: int) -> str:
    """The user's own depth; 0: it is not known."""
    return f"depth {tokens}" if tokens else "your own depth"
