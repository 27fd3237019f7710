"""The benchmark's result: what is printed, and what `--json` writes. Pure."""

from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict

from benchmarks.engine.estimates import (
    Total,
    mean_rate,
    seconds_to_reach,
    steady,
    steady_ratio,
    together,
    total,
    total_ratio,
)
from benchmarks.engine.price import Price
from benchmarks.engine.sweep import SweepCell
from benchmarks.engine.trace import PhaseRun
from fathom.engine.depth import depth_at, summary
from local_cluster.demo.compare import Ratio

REACHED: Final = 0.97
"""Share of the best static depth's rate at which the tuner counts as arrived."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class TunerDecision(_Model):
    """Something that the tuner did."""

    at_seconds: float
    """Seconds of its own time since the phase began."""
    action: str
    reason: str
    message: str
    schedule: str
    """Depths from the smallest batch to the largest."""


class PhaseReport(_Model):
    """One phase of the trace. Rates are tokens per second."""

    traffic: str
    concurrency: int
    tuner_seconds: float
    """The tuner's own time in this phase; the length the phase counts with in the whole trace."""
    static_rates: dict[int, float]
    """By depth, over all of its slices."""
    tuner_rate: float
    """Over the whole phase, learning included."""
    tuner_steady_rate: float
    best_depth: int
    """The fastest of the static depths that were measured in the steady part."""
    ratio_to_best: Ratio
    """Tuner over that depth in the steady part, paired slice by slice."""
    depth: int
    """What the tuner asks for at this batch, at the end."""
    schedule: str
    """What it asks for from the smallest batch to the largest, at the end."""
    seconds_to_97_percent: float | None
    """Seconds of the tuner's own time until it held a depth worth 97 % of the best; null: never."""
    decisions: tuple[TunerDecision, ...]


class TraceReport(_Model):
    """All phases together; the tuner's tokens include what it spent on learning."""

    seconds: float
    """Nominal length: the tuner's own time."""
    tuner_tokens: float
    static_tokens: dict[int, float]
    """By depth: its mean rate in each phase times that phase's length."""
    best_single_depth: int
    ratios: dict[int, Ratio]
    """Tuner over each static depth."""


class BenchReport(_Model):
    """Everything. The first four are what the benchmark is for."""

    worst_phase_ratio: float
    """Smallest `ratio_to_best` of any phase."""
    ratio_to_best_single_static: float
    """Tuner over the static depth that made the most tokens in the whole trace."""
    requests_lost: int
    """Failed, cut short, or with any token but the expected one."""
    hook_overhead_percent: float
    engine: str
    quick: bool
    requests: int
    first_error: str
    """Error of the first lost request; empty if there is none."""
    user_depth: int
    minutes: float
    sweep: tuple[SweepCell, ...]
    phases: tuple[PhaseReport, ...]
    trace: TraceReport
    price: Price


def phase_report(run: PhaseRun) -> PhaseReport:
    """Judge one phase.

    Raises:
        ValueError: it has fewer than two steady rounds.
    """
    rates = {depth: mean_rate(slices) for depth, slices in run.static.items()}
    best = max((depth for depth in rates if steady(run.static[depth])), key=rates.__getitem__)
    return PhaseReport(
        traffic=run.phase.traffic.name,
        concurrency=run.phase.concurrency,
        tuner_seconds=sum(each.seconds for each in run.tuner),
        static_rates=rates,
        tuner_rate=mean_rate(run.tuner),
        tuner_steady_rate=mean_rate(steady(run.tuner)),
        best_depth=best,
        ratio_to_best=steady_ratio(run.tuner, run.static[best]),
        depth=depth_at(run.schedule, run.phase.concurrency),
        schedule=summary(run.schedule),
        seconds_to_97_percent=seconds_to_reach(REACHED * rates[best], run.held, rates),
        decisions=tuple(
            TunerDecision(
                at_seconds=each.at_s,
                action=each.decision.action.value,
                reason=each.decision.reason.value,
                message=each.decision.message,
                schedule=summary(each.decision.document.schedule),
            )
            for each in run.decided
        ),
    )


def trace_report(runs: Sequence[PhaseRun]) -> TraceReport:
    """Judge the whole trace.

    Raises:
        ValueError: an arm has fewer than two slices in a phase.
    """
    seconds = [sum(each.seconds for each in run.tuner) for run in runs]
    phases = list(zip(runs, seconds, strict=True))
    tuner = together([total(run.tuner, length) for run, length in phases])
    static: dict[int, Total] = {
        depth: together([total(run.static[depth], length) for run, length in phases])
        for depth in runs[0].static
    }
    slices = sum(len(run.tuner) for run in runs)
    return TraceReport(
        seconds=sum(seconds),
        tuner_tokens=tuner.tokens,
        static_tokens={depth: each.tokens for depth, each in static.items()},
        best_single_depth=max(static, key=lambda depth: static[depth].tokens),
        ratios={depth: total_ratio(tuner, each, slices) for depth, each in static.items()},
    )
