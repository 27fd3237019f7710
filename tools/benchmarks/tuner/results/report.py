"""What `--json` writes: every policy's summary at the top level, and again for each world."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict

from benchmarks.tuner.results.score import AlarmScore, RunScore
from fathom.api.conditions import AlarmKind

MONTH_DAYS: Final = 30


class PolicySummary(BaseModel):
    """One policy over world-days; each day of each world and seed is one sample."""

    model_config = ConfigDict(frozen=True)

    mean_oracle_fraction: float
    p5_oracle_fraction: float
    worst_oracle_fraction: float
    worst_vs_user_percent: float
    worst_world: str
    worst_seed: int
    minutes_to_97_percent_max: float | None
    """None: in some world never."""
    probes_per_day: float
    moves_per_day: float
    slo_kept_fraction: float | None
    """Fraction of the windows in which the oracle keeps it; None: no world with an SLO."""
    worst_speed_fraction: float | None
    """Open traffic: tokens per second of requests' time, over the clairvoyant's."""
    world_days: int


class AlarmSummary(BaseModel):
    """Draft mismatches, as the live tuner noticed them; and its false alarms of any kind."""

    model_config = ConfigDict(frozen=True)

    mismatch_minutes_max: float | None
    """From a mismatch to its alarm; None: no mismatch, or one that was missed."""
    mismatches: int
    missed: int
    false_per_month: float
    """DraftMismatch where there was no mismatch, in all worlds."""
    false_per_month_where_drafts_fit: float
    """The same without the worlds whose traffic turns to requests that drafts do not fit."""
    worlds_where_drafts_stop_fitting: tuple[str, ...]
    false_alarms: dict[str, dict[str, int]]
    """Number of false alarms of all kinds, by world and reason. Worlds without any are left out."""
    simulated_days: float


class TunerBenchReport(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, PolicySummary]

    seeds: tuple[int, ...]
    worlds: tuple[str, ...]
    alarms: AlarmSummary
    per_world: dict[str, dict[str, PolicySummary]]
    per_batch_ceiling: dict[str, float]
    """By closed world without an SLO: what a depth for each exact batch would make, over the
    clairvoyant's."""
    fractions: dict[str, dict[str, tuple[float, ...]]]
    """By policy and world: the oracle fraction of every world-day."""


def report(runs: Iterable[RunScore]) -> TunerBenchReport:
    runs = tuple(runs)
    worlds = tuple(dict.fromkeys(run.world for run in runs))
    return TunerBenchReport(
        seeds=tuple(sorted({run.seed for run in runs})),
        worlds=worlds,
        alarms=_alarms(runs),
        per_world={world: _summaries([r for r in runs if r.world == world]) for world in worlds},
        per_batch_ceiling={
            world: float(np.mean(ceilings))
            for world in worlds
            if (
                ceilings := [
                    r.ceiling_fraction for r in runs if r.world == world and r.ceiling_fraction
                ]
            )
        },
        fractions={
            policy: {
                world: tuple(day.oracle_fraction for run in own for day in run.days)
                for world in worlds
                if (own := [r for r in runs if (r.policy, r.world) == (policy, world)])
            }
            for policy in dict.fromkeys(run.policy for run in runs)
        },
        **_summaries(runs),
    )


def _summaries(runs: Sequence[RunScore]) -> dict[str, PolicySummary]:
    policies = dict.fromkeys(run.policy for run in runs)
    return {policy: summary([run for run in runs if run.policy == policy]) for policy in policies}


def summary(runs: Sequence[RunScore]) -> PolicySummary:
    """All runs of one policy as one."""
    days = [(day, run) for run in runs for day in run.days]
    fractions = np.array([day.oracle_fraction for day, _ in days])
    worst, worst_run = min(days, key=lambda each: each[0].oracle_fraction)
    with_slo = [(run.slo_kept, run.slo_windows) for run in runs if run.slo_kept is not None]
    speeds = [run.speed_fraction for run in runs if run.speed_fraction is not None]
    return PolicySummary(
        mean_oracle_fraction=float(fractions.mean()),
        p5_oracle_fraction=float(np.percentile(fractions, 5)),
        worst_oracle_fraction=worst.oracle_fraction,
        worst_vs_user_percent=min(day.vs_user_percent for day, _ in days),
        worst_world=worst_run.world,
        worst_seed=worst_run.seed,
        minutes_to_97_percent_max=_longest([run.minutes_to_97_percent for run in runs]),
        probes_per_day=float(np.mean([run.probes_per_day for run in runs])),
        moves_per_day=float(np.mean([run.moves_per_day for run in runs])),
        slo_kept_fraction=_fraction(with_slo),
        worst_speed_fraction=min(speeds, default=None),
        world_days=len(days),
    )


def _longest(minutes: Sequence[float | None]) -> float | None:
    known = [each for each in minutes if each is not None]
    return max(known) if known and len(known) == len(minutes) else None


def _fraction(kept: Sequence[tuple[int, int]]) -> float | None:
    possible = sum(of for _, of in kept)
    return sum(each for each, _ in kept) / possible if possible else None


def _alarms(runs: Sequence[RunScore]) -> AlarmSummary:
    known = [(run.world, run.alarms) for run in runs if run.alarms is not None]
    every = [alarms for _, alarms in known]
    minutes = [each for alarms in every for each in alarms.minutes]
    false: dict[str, Counter[str]] = {}
    for world, alarms in known:
        if alarms.false:
            reasons = (each.reason.value for each in alarms.false)
            false.setdefault(world, Counter()).update(reasons)
    return AlarmSummary(
        mismatch_minutes_max=_longest(minutes),
        mismatches=len(minutes),
        missed=sum(each is None for each in minutes),
        false_per_month=_false_mismatches(every),
        false_per_month_where_drafts_fit=_false_mismatches(
            [alarms for alarms in every if not alarms.drafts_stop_fitting]
        ),
        worlds_where_drafts_stop_fitting=tuple(
            dict.fromkeys(world for world, alarms in known if alarms.drafts_stop_fitting)
        ),
        false_alarms={world: dict(counts) for world, counts in false.items()},
        simulated_days=sum(alarms.days for alarms in every),
    )


def _false_mismatches(known: Sequence[AlarmScore]) -> float:
    """A month."""
    days = sum(alarms.days for alarms in known)
    kinds = [each.kind for alarms in known for each in alarms.false]
    return MONTH_DAYS * kinds.count(AlarmKind.DRAFT_MISMATCH) / days if days else 0.0
