"""The table of a bench on a terminal."""

from rich.table import Table

from fathom.core.depth_bench import COLUMNS, DepthBench


def bench_table(bench: DepthBench) -> Table:
    """A row for each run, grouped by what is compared."""
    table = Table(box=None, pad_edge=False)
    data, *numbers = COLUMNS
    table.add_column(data.upper())
    for column in numbers:
        table.add_column(column.upper(), justify="right")
    for cells in bench.table():
        table.add_row(*cells)
    return table
