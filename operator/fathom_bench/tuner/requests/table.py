"""The scores as a table for people."""

from collections.abc import Iterable, Sequence
from statistics import mean

from rich.table import Table

from fathom_bench.tuner.requests.score import RequestScore, by_world

_COLUMNS = (
    "tokens %",
    "of best %",
    "first token",
    "at tokens",
    "p99",
    "at tokens",
    "waiting",
    "at tokens",
    "gain said",
    "true",
    "GPU h said",
    "true",
)


def request_table(scores: Iterable[RequestScore]) -> Table:
    """Means over seeds, a row for each world."""
    table = Table(
        title="Whole requests: tuned, at the depth the user wrote (`tokens`), and at the best one",
        title_justify="left",
    )
    table.add_column("world", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for world, of in by_world(scores).items():
        table.add_row(world, *_cells(of))
    return table


def _cells(of: Sequence[RequestScore]) -> tuple[str, ...]:
    return (
        f"{100 * mean(each.vs_tokens for each in of):+.2f}",
        f"{100 * mean(each.vs_best for each in of):+.2f}",
        _seconds(each.tuned.first_token_p50_s for each in of),
        _seconds(each.own.first_token_p50_s for each in of),
        _seconds(each.tuned.first_token_p99_s for each in of),
        _seconds(each.own.first_token_p99_s for each in of),
        f"{mean(each.tuned.waiting_at_end for each in of):.0f}",
        f"{mean(each.own.waiting_at_end for each in of):.0f}",
        _said([each.gain_said for each in of]),
        f"{100 * mean(each.gain_true for each in of):+.1f}",
        _said([each.gpu_share_said for each in of]),
        f"{100 * mean(each.gpu_share_true for each in of):+.1f}",
    )


def _seconds(values: Iterable[float]) -> str:
    seconds = mean(values)
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def _said(values: Sequence[float | None]) -> str:
    known = [each for each in values if each is not None]
    return f"{100 * mean(known):+.1f}" if known else "unknown"
