"""The table of `fathom check --live`."""

from rich.table import Table

from fathom.api.status import QualityResult, QualityStatus
from fathom.core.reporting.reading import UNKNOWN


def result_table(found: QualityStatus) -> Table:
    """One row. What was not checked is a dash: it is not zero."""
    table = Table(box=None, pad_edge=False)
    table.add_column("RESULT", no_wrap=True)
    for column in ("PROMPTS", "TOKENS", "TIES"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("AT", no_wrap=True)
    checked = found.result is not QualityResult.NOT_CHECKED
    counts = (found.prompts, found.tokens, found.ties)
    cells = (str(count) if checked else UNKNOWN for count in counts)
    table.add_row(found.result, *cells, found.at)
    return table
