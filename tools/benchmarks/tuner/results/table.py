"""The report as tables for people."""

from rich.table import Table

from benchmarks.tuner.results.graph_study import GraphReport, Spread
from benchmarks.tuner.results.report import PolicySummary, TunerBenchReport
from benchmarks.tuner.simulate import LIVE

_COLUMNS = (
    "mean",
    "p5",
    "worst",
    "vs user %",
    "to 97 %",
    "probes",
    "moves",
    "SLO kept",
    "worst in",
)


def policy_table(report: TunerBenchReport) -> Table:
    """All policies over all worlds."""
    policies = report.__pydantic_extra__
    ordered = sorted(policies, key=lambda name: policies[name].mean_oracle_fraction)
    return _table(
        f"All policies: {len(report.worlds)} worlds, {len(report.seeds)} seeds; "
        "share of the clairvoyant's tokens",
        "policy",
        {name: policies[name] for name in ordered},
    )


def live_table(report: TunerBenchReport) -> Table:
    """Our tuner in each world."""
    rows = {
        world: policies[LIVE] for world, policies in report.per_world.items() if LIVE in policies
    }
    return _table("live in each world", "world", rows)


def alarm_line(report: TunerBenchReport) -> str:
    """How the live tuner's mismatch alarm did."""
    of = report.alarms
    minutes = of.mismatch_minutes_max
    soon = f", at the latest after {minutes:.1f} min" if minutes is not None else ""
    return (
        f"DraftMismatch: {of.mismatches - of.missed} of {of.mismatches} noticed{soon}; "
        f"{of.false_per_month:.2f} false alarms a month over {of.simulated_days:.0f} days, "
        f"{of.false_per_month_where_drafts_fit:.2f} in worlds whose drafts go on fitting."
    )


def false_alarm_table(report: TunerBenchReport) -> Table:
    """Alarms of any kind without a cause, and the worlds they were raised in."""
    of = report.alarms
    table = Table(title="False alarms", title_justify="left")
    for column in ("world", "reason", "alarms", "world-days", "drafts"):
        table.add_column(column, justify="right" if column in {"alarms", "world-days"} else "left")
    for world, reasons in of.false_alarms.items():
        stop = world in of.worlds_where_drafts_stop_fitting
        days = report.per_world[world][LIVE].world_days
        for reason, count in reasons.items():
            table.add_row(world, reason, str(count), str(days), "stop fitting" if stop else "")
    return table


def graph_table(report: GraphReport) -> Table:
    """Arrangements of CUDA graphs over all worlds."""
    worlds = {run.world for run in report.runs}
    seeds = {run.seed for run in report.runs}
    table = Table(
        title=f"Arrangements of CUDA graphs: {len(worlds)} worlds, {len(seeds)} seeds; share of "
        "what every depth makes on an engine of its own, and of a static engine's at depth 3",
        title_justify="left",
    )
    table.add_column("depths, and sizes")
    for column in ("allowed", "worst", "tuned", "worst", "worst in", "at depth 3", "worst"):
        table.add_column(column, justify="left" if column == "worst in" else "right")
    for row in report.rows:
        table.add_row(
            row.arrangement,
            *_spread(row.allowed),
            *_spread(row.tuned),
            row.worst_world,
            *_spread(row.at_tokens),
        )
    return table


def _spread(of: Spread) -> tuple[str, str]:
    return f"{100 * of.mean:.2f}", f"{100 * of.worst:.2f}"


def _table(title: str, first: str, rows: dict[str, PolicySummary]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first, no_wrap=True)
    for column in _COLUMNS:
        left = column == "worst in"
        table.add_column(column, justify="left" if left else "right", overflow="fold")
    for name, summary in rows.items():
        table.add_row(name, *_cells(summary), style="bold" if name == LIVE else None)
    return table


def _cells(of: PolicySummary) -> tuple[str, ...]:
    minutes = of.minutes_to_97_percent_max
    return (
        f"{100 * of.mean_oracle_fraction:.2f}",
        f"{100 * of.p5_oracle_fraction:.2f}",
        f"{100 * of.worst_oracle_fraction:.2f}",
        f"{of.worst_vs_user_percent:+.2f}",
        "never" if minutes is None else f"{minutes:.0f} min",
        f"{of.probes_per_day:.0f}",
        f"{of.moves_per_day:.0f}",
        "" if of.slo_kept_fraction is None else f"{100 * of.slo_kept_fraction:.1f}",
        f"{of.worst_world} {of.worst_seed}",
    )
