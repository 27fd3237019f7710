"""The table of a bench. What was not measured is said so: it is not zero."""

from typing import Final

from rich.table import Table

from fathom.core.depth_bench import AcceptanceLength, BenchRow, DepthBench

NOT_MEASURED: Final = "not measured"
_NUMBERS: Final = (
    *("INPUT", "CONCURRENCY", "DEPTH", "TOK/S", "PER USER", "ACCEPTANCE"),
    *("× DEPTH 0", "× TRUE OFF"),
)


def bench_table(bench: DepthBench) -> Table:
    """A row for each run, grouped by what is compared."""
    table = Table(box=None, pad_edge=False)
    table.add_column("DATA")
    for column in _NUMBERS:
        table.add_column(column, justify="right")
    order = list(dict.fromkeys(row.data for row in bench.rows))
    for row in sorted(bench.rows, key=lambda each: _place(each, order)):
        table.add_row(row.data, *_cells(row))
    return table


def _place(row: BenchRow, order: list[str]) -> tuple[int, int, int]:
    return order.index(row.data), row.concurrency, -1 if row.depth is None else row.depth


def _cells(row: BenchRow) -> tuple[str, ...]:
    per_user = row.tokens_per_second_per_user
    return (
        str(row.input_tokens),
        str(row.concurrency),
        "off" if row.depth is None else str(row.depth),
        f"{row.tokens_per_second:,.1f}",
        NOT_MEASURED if per_user is None else f"{per_user:,.1f}",
        _acceptance(row.acceptance),
        _ratio(row.over_depth_0),
        _ratio(row.over_true_off),
    )


def _acceptance(length: AcceptanceLength | None) -> str:
    if length is None:
        return NOT_MEASURED
    return f"{length.mean:.3f} ±{(length.high - length.low) / 2:.3f}"


def _ratio(ratio: float | None) -> str:
    return NOT_MEASURED if ratio is None else f"{ratio:.2f}×"
