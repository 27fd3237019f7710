"""The benchmark's result for a person."""

from typing import Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from benchmarks.engine.report import REACHED, BenchReport, PhaseReport, TraceReport
from benchmarks.engine.sweep import show
from local_cluster.demo.compare import Ratio
from local_cluster.demo.verdict import Claim
from local_cluster.demo.view import claim_lines

MOST_HOOK_PERCENT: Final = 0.5


def result_tables(report: BenchReport) -> Group:
    """Everything that was measured, and what follows from it."""
    depths = sorted(report.trace.static_tokens)
    return Group(
        show(report.sweep, depths),
        Text(),
        phase_table(report),
        Text(),
        trace_table(report.trace, report.user_depth),
        Text(),
        price_table(report),
        Text(),
        claim_lines(claims(report)),
    )


def phase_table(report: BenchReport) -> Table:
    """The trace phase by phase; the best static depth of each stands out."""
    table = Table(title="The trace: tokens/s of each static depth and of the tuner")
    table.add_column("traffic", no_wrap=True)
    for depth in sorted(report.trace.static_tokens):
        table.add_column(str(depth), justify="right")
    for column in ("tuner", "steady", "its depth", "steady / best [95 %]", f"to {REACHED:.0%}"):
        table.add_column(column, justify="right", no_wrap=True)
    for phase in report.phases:
        table.add_row(
            f"{phase.traffic} × {phase.concurrency}",
            *(_rate(phase, depth) for depth in sorted(phase.static_rates)),
            f"{phase.tuner_rate:.0f}",
            f"{phase.tuner_steady_rate:.0f}",
            str(phase.depth),
            _percent(phase.ratio_to_best),
            "never" if (at := phase.seconds_to_97_percent) is None else f"{at:.0f} s",
        )
    return table


def trace_table(trace: TraceReport, user_depth: int) -> Table:
    """The whole trace, arm by arm."""
    table = Table(title=f"The whole trace, {trace.seconds:.0f} s of each arm")
    table.add_column("arm", no_wrap=True)
    for column in ("tokens", "tuner / it [95 %]"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_row("tuner, learning included", f"{trace.tuner_tokens:.0f}", "")
    for depth, tokens in sorted(trace.static_tokens.items()):
        name = f"static {depth}" + (" (the user's guess)" if depth == user_depth else "")
        best = depth == trace.best_single_depth
        table.add_row(
            f"[bold green]{name}" if best else name,
            f"{tokens:.0f}",
            _percent(trace.ratios[depth]),
        )
    return table


def price_table(report: BenchReport) -> Table:
    """What being tunable costs."""
    price = report.price
    table = Table(title=f"The price: static command / tunable engine held at {report.user_depth}")
    table.add_column("measure", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_row(
        "steps, static and tunable", f"{price.static_steps:.0f}, {price.tunable_steps:.0f}"
    )
    table.add_row("steps/s, tunable / static [95 %]", _percent(price.steps_ratio))
    table.add_row("tokens/s, tunable / static [95 %]", _percent(price.tokens_ratio))
    table.add_row("time inside the hooks / step time", f"{price.hook_overhead_percent:.2f} %")
    table.add_row("processor time of the idle engine", f"{price.idle_cpu_percent:.1f} %")
    return table


def claims(report: BenchReport) -> tuple[Claim, ...]:
    """What the benchmark is to show, each with the number that decides it."""
    trace = report.trace
    single = trace.ratios[trace.best_single_depth]
    lost = f" ({report.first_error})" if report.first_error else ""
    return (
        Claim(
            f"near the best: ≥ {REACHED:.0%} of the best static depth in every phase's steady "
            f"part (worst {report.worst_phase_ratio:.1%})",
            report.worst_phase_ratio >= REACHED,
        ),
        Claim(
            "ahead of every single static depth over the whole trace "
            f"(of the best, {trace.best_single_depth}: {_percent(single)})",
            report.ratio_to_best_single_static > 1,
        ),
        Claim(
            f"no request lost: {report.requests} requests, {report.requests_lost} lost{lost}",
            report.requests > 0 and report.requests_lost == 0,
        ),
        Claim(
            f"the hooks cost less than {MOST_HOOK_PERCENT} % of step time "
            f"({report.hook_overhead_percent:.2f} %)",
            report.hook_overhead_percent < MOST_HOOK_PERCENT,
        ),
    )


def _rate(phase: PhaseReport, depth: int) -> str:
    rate = f"{phase.static_rates[depth]:.0f}"
    return f"[bold green]{rate}[/bold green]" if depth == phase.best_depth else rate


def _percent(ratio: Ratio) -> str:
    return f"{ratio.estimate:.1%} [{ratio.low:.1%}, {ratio.high:.1%}]"
