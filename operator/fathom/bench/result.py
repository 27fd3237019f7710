"""From what a pod has said to what a bench found: rows, each with its ratios. Pure.

A depth's acceptance length is 1 + the sum of its acceptance rates by position, as vLLM counts them
between the beginning and the end of a run. Its interval takes drafts for independent draws (of so
many drafts so many were accepted up to each position): 95 % of what other prompts of the same kind
would have given. Where prompts differ much from each other it is wider in truth.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Final

from rich.table import Table

from fathom.api import names
from fathom.bench.log import Heard, LoadResult, ResultLine
from fathom.cluster.manifest import Manifest, owned_by
from fathom.measurement.bench_result import (
    COLUMNS,
    RESULT_KEY,
    AcceptanceLength,
    BenchRow,
    DepthBench,
)
from fathom.resource import SpeculativeDeployment

_TWO_SIDED_95: Final = 1.96


def found(sd: SpeculativeDeployment, told: Heard, at: str) -> DepthBench:
    """What a bench that has ended amounts to.

    Args:
        sd: what was measured.
        told: all that its pod has said.
        at: when, as status times are written.
    """
    measured = [each for each in told.results if each.result.completed]
    unanswered = tuple(
        f"{each.name}: none of {each.result.failed} requests was answered. Are prompt and answer "
        "together longer than the engine's --max-model-len?"
        for each in told.results
        if not each.result.completed
    )
    rates = {_place(each, each.depth): each.result.output_throughput for each in measured}
    return DepthBench(
        name=sd.metadata.name,
        image=sd.spec.engine.image,
        at=at,
        rows=tuple(
            _row(
                each,
                zero=rates.get(_place(each, 0)),
                off=rates.get(_place(each, None)),
            )
            for each in measured
        ),
        not_measured=(*told.failures, *unanswered),
    )


def result_config_map(sd: SpeculativeDeployment, bench: DepthBench) -> Manifest:
    """Where the result stays until the next bench; it goes with the resource."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.bench(sd.metadata.name),
            "namespace": sd.metadata.namespace,
            "labels": {names.LABEL_BENCH: sd.metadata.name},
            "ownerReferences": owned_by(
                names.API_VERSION, names.KIND, sd.metadata.name, sd.metadata.uid
            ),
        },
        "data": {RESULT_KEY: bench.to_json()},
    }


def acceptance_of(result: LoadResult) -> AcceptanceLength | None:
    """None: nothing was drafted."""
    drafts = result.spec_decode_num_drafts
    if drafts <= 0:
        return None
    return acceptance_length(drafts, result.spec_decode_per_position_acceptance_rates)


def acceptance_length(drafts: int, survival: Sequence[float]) -> AcceptanceLength:
    """With its interval.

    Args:
        drafts: that were verified, one at least.
        survival: by position, the share of them that was accepted up to it.
    """
    accepted = sum(survival)
    squared = sum((2 * index + 1) * share for index, share in enumerate(survival))
    margin = _TWO_SIDED_95 * sqrt(max(0.0, squared - accepted**2) / drafts)
    return AcceptanceLength(
        mean=round(1 + accepted, 4),
        low=round(1 + accepted - margin, 4),
        high=round(1 + accepted + margin, 4),
        drafts=drafts,
    )


def _row(line: ResultLine, *, zero: float | None, off: float | None) -> BenchRow:
    result = line.result
    rate = result.output_throughput
    return BenchRow(
        data=line.data,
        concurrency=line.concurrency,
        depth=line.depth,
        requests=result.completed,
        failed=result.failed,
        input_tokens=round(result.total_input_tokens / result.completed),
        tokens_per_second=round(rate, 2),
        tokens_per_second_per_user=(
            round(1000 / result.mean_tpot_ms, 2) if result.mean_tpot_ms else None
        ),
        first_token_seconds=round(result.mean_ttft_ms / 1000, 4),
        acceptance=acceptance_of(result),
        over_depth_0=round(rate / zero, 4) if zero else None,
        over_true_off=round(rate / off, 4) if off else None,
    )


def _place(line: ResultLine, depth: int | None) -> tuple[str, int, int | None]:
    return line.data, line.concurrency, depth


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
