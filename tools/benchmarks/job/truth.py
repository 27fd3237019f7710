"""What a bench found, held against what is known of the pair. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table

from fathom.measurement.bench_result import BenchRow, DepthBench
from local_cluster.engine.language import TRAFFIC_CLASSES


@dataclass(frozen=True, slots=True)
class BesideTruth:
    """One row whose acceptance is known."""

    row: BenchRow
    truth: float
    """Tokens per verification step, by construction."""

    @property
    def holds(self) -> bool:
        """Whether the measured interval holds the truth."""
        found = self.row.acceptance
        return found is not None and found.low <= self.truth <= found.high


def compared(
    bench: DepthBench, classes: Mapping[str, str], output_tokens: int
) -> tuple[BesideTruth, ...]:
    """The rows of known classes at which something is drafted.

    Args:
        bench: what was found.
        classes: the traffic class of each series.
        output_tokens: of each answer.
    """
    return tuple(
        BesideTruth(
            row, 1 + sum(TRAFFIC_CLASSES[classes[row.data]].survival(row.depth, output_tokens))
        )
        for row in bench.rows
        if row.depth and row.data in classes
    )


def truth_table(rows: tuple[BesideTruth, ...]) -> Table:
    """Measured beside known."""
    table = Table(title="Acceptance length, measured and by construction", title_justify="left")
    for column in ("data", "concurrency", "depth", "drafts", "measured [95 %]", "truth", ""):
        table.add_column(column, justify="left" if column in {"data", ""} else "right")
    for each in rows:
        found = each.row.acceptance
        table.add_row(
            each.row.data,
            str(each.row.concurrency),
            str(each.row.depth),
            str(found.drafts) if found else "",
            f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]" if found else "not measured",
            f"{each.truth:.3f}",
            "✔" if each.holds else "✘",
        )
    return table
