"""The benchmark's result: what is printed, and what `--json` writes. Pure."""

from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.gpu.figures import DepthChange, GraphCell, Model, TurnTimes
from benchmarks.gpu.records import StartUp
from local_cluster.demo.compare import Ratio, paired_ratio
from local_cluster.demo.verdict import Claim

_FEWEST_PAIRS: Final = 2


class DepthComparison(Model):
    """One depth at one batch: the live engine beside the one that knows no other depth."""

    batch: int
    depth: int
    live: tuple[TurnTimes, ...]
    """Turn by turn."""
    single: tuple[TurnTimes, ...]
    medians: Ratio | None
    """Ratio of the n-th turn of one to the n-th of the other; null: too few turns had steps."""
    fastest: Ratio | None
    """Likewise, of the times that a tenth of the steps fell below."""


class CapturedGraphs(Model):
    """What one engine captured at its start."""

    engine: str
    runner: str
    mode: str
    sizes: tuple[int, ...]
    graphs: int
    ready_seconds: float
    """From its start until it served."""
    start_up: StartUp
    """By its own log."""
    arguments: tuple[str, ...]
    """As it was started, the model apart."""


class GpuBenchReport(Model):
    """Everything."""

    machine: str
    gpu: bool
    quick: bool
    depths: tuple[int, ...]
    requests: int
    requests_wrong: int
    """Failed, cut short, or with any token but the expected one, which is the same for all."""
    requests_without_speculation: int
    """Count among all requests."""
    first_error: str
    changes: tuple[DepthChange, ...]
    hook_errors: int
    graphs: tuple[GraphCell, ...]
    """Graphs of the live engine's target, while its depth changed."""
    full_replays: int
    """That the live engine's target really made meanwhile."""
    engines: tuple[CapturedGraphs, ...]
    comparisons: tuple[DepthComparison, ...]


def comparison(
    batch: int,
    depth: int,
    live: Sequence[TurnTimes | None],
    single: Sequence[TurnTimes | None],
) -> DepthComparison:
    """Put turns side by side; a turn with too few steps of its kind takes its pair out."""
    pairs = [
        (ours, theirs)
        for ours, theirs in zip(live, single, strict=True)
        if ours is not None and theirs is not None
    ]
    enough = len(pairs) >= _FEWEST_PAIRS

    def ratio(of: Callable[[TurnTimes], float]) -> Ratio | None:
        if not enough:
            return None
        return paired_ratio([of(pair[0]) for pair in pairs], [of(pair[1]) for pair in pairs])

    return DepthComparison(
        batch=batch,
        depth=depth,
        live=tuple(pair[0] for pair in pairs),
        single=tuple(pair[1] for pair in pairs),
        medians=ratio(lambda turn: turn.median_ms),
        fastest=ratio(lambda turn: turn.fastest_ms),
    )


def claims(report: GpuBenchReport) -> tuple[Claim, ...]:
    """What the benchmark is to show, each with the number that decides it."""
    obeyed = sum(change.obeyed for change in report.changes)
    steps = sum(change.steps for change in report.changes)
    disobedient = sum(change.disobedient for change in report.changes)
    lost = f" ({report.first_error})" if report.first_error else ""
    return (
        Claim(
            f"every change of depth came into force under traffic, without a restart: {obeyed} of "
            f"{len(report.changes)}, {disobedient} of {steps} steps at another depth",
            bool(report.changes) and obeyed == len(report.changes),
        ),
        Claim(
            f"no token changed: {report.requests} requests, {report.requests_without_speculation} "
            f"of them without speculation, {report.requests_wrong} wrong{lost}",
            report.requests_without_speculation > 0 and report.requests_wrong == 0,
        ),
        Claim(f"nothing failed in the hook: {report.hook_errors} errors", report.hook_errors == 0),
        *([_graph_claim(report)] if report.gpu else []),
    )


def _graph_claim(report: GpuBenchReport) -> Claim:
    full = sum(cell.full for cell in report.graphs)
    steps = full + sum(cell.piecewise + cell.none for cell in report.graphs)
    return Claim(
        f"every step of decodes of one length replayed a full graph: {full} of {steps}, "
        f"{report.full_replays} replays counted",
        steps > 0 and full == steps,
    )
