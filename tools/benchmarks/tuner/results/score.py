"""What a course is worth under each policy, beside the clairvoyant and the user's own depth."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.tuner.course.course import Floats, WorldCourse
from benchmarks.tuner.course.drawing import DAY_S
from benchmarks.tuner.outcome import AlarmRaised, CourseOutcome
from benchmarks.tuner.results.alarm_truth import is_justified
from benchmarks.tuner.simulate import CLAIRVOYANT, LIVE, USER, Campaign
from fathom.api.conditions import AlarmKind
from fathom.tuning.interface import Action

GOOD: Final = 0.97
GOOD_FOR_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class DayScore:
    """One policy on one day of one world and seed."""

    day: int
    oracle_fraction: float
    """Tokens over the clairvoyant's."""
    vs_user_percent: float
    """Tokens more than with the user's own depth; negative: fewer."""


@dataclass(frozen=True, slots=True)
class AlarmScore:
    """Draft mismatches: how soon each was noticed. And alarms of any kind that were none."""

    minutes: tuple[float | None, ...]
    """From each mismatch to its alarm; None: none came."""
    false: tuple[AlarmRaised, ...]
    days: float
    drafts_stop_fitting: bool
    """Whether the world turns to requests that its drafts do not fit, which is no mismatch."""


@dataclass(frozen=True, slots=True)
class RunScore:
    """One policy in one world and seed."""

    policy: str
    world: str
    seed: int
    days: tuple[DayScore, ...]
    minutes_to_97_percent: float | None
    """From a cold start until five minutes at 97 % of the clairvoyant begin; None: never."""
    probes_per_day: float
    moves_per_day: float
    slo_kept: int | None
    """Windows in which the SLO was kept, of those in which the clairvoyant keeps it."""
    slo_windows: int
    speed_fraction: float | None
    """Tokens per second that requests spend in flight, over the clairvoyant's. Open traffic."""
    alarms: AlarmScore | None
    ceiling_fraction: float | None
    """A depth for each exact batch over a depth for each bucket; the clairvoyant's run has it."""


def scores(campaign: Campaign, policies: Sequence[str]) -> tuple[RunScore, ...]:
    return tuple(_score(campaign, name) for name in policies if name in campaign.outcomes)


def _score(campaign: Campaign, policy: str) -> RunScore:
    course, outcome = campaign.course, campaign.outcomes[policy]
    best = campaign.outcomes[CLAIRVOYANT]
    days = _days(campaign, outcome)
    kept, possible = _slo(campaign, policy)
    return RunScore(
        policy=policy,
        world=course.world.name,
        seed=course.seed,
        days=days,
        minutes_to_97_percent=minutes_to_good(
            outcome.tokens.sum(axis=1), best.tokens.sum(axis=1), course.clock.tick_s
        ),
        probes_per_day=outcome.actions.get(Action.PROBE.value, 0) / len(days),
        moves_per_day=outcome.actions.get(Action.MOVE.value, 0) / len(days),
        slo_kept=kept,
        slo_windows=possible,
        speed_fraction=_speed(outcome) / _speed(best) if outcome.request_seconds else None,
        alarms=_alarms(course, outcome, len(days)) if policy == LIVE else None,
        ceiling_fraction=_ceiling(campaign) if policy == CLAIRVOYANT else None,
    )


def _ceiling(campaign: Campaign) -> float | None:
    if campaign.ceiling is None:
        return None
    return campaign.ceiling / float(campaign.outcomes[CLAIRVOYANT].tokens.sum())


def _days(campaign: Campaign, outcome: CourseOutcome) -> tuple[DayScore, ...]:
    per_day = round(DAY_S / campaign.course.clock.tick_s)
    own, best, user = (
        each.tokens.reshape(-1, per_day * each.tokens.shape[1]).sum(axis=1)
        for each in (outcome, campaign.outcomes[CLAIRVOYANT], campaign.outcomes[USER])
    )
    return tuple(
        DayScore(day, float(own[day] / best[day]), float(100 * (own[day] / user[day] - 1)))
        for day in range(len(own))
    )


def minutes_to_good(own: Floats, best: Floats, tick_s: float) -> float | None:
    """When the first five minutes at 97 % of the clairvoyant or better begin."""
    length = max(1, round(GOOD_FOR_S / tick_s))

    def running(values: Floats) -> Floats:
        total = np.concatenate([[0.0], np.cumsum(values)])
        return np.asarray(total[length:] - total[:-length], dtype=float)

    possible = running(best)
    good = (running(own) >= GOOD * possible) & (possible > 0)
    return float(np.argmax(good) * tick_s / 60) if good.any() else None


def _slo(campaign: Campaign, policy: str) -> tuple[int | None, int]:
    if campaign.slo_kept is None:
        return None, 0
    possible = campaign.slo_kept[CLAIRVOYANT]
    return int((campaign.slo_kept[policy] & possible).sum()), int(possible.sum())


def _speed(outcome: CourseOutcome) -> float:
    return float(outcome.tokens.sum()) / (outcome.request_seconds or 1.0)


def _alarms(course: WorldCourse, outcome: CourseOutcome, days: int) -> AlarmScore:
    raised = [each.at_s for each in outcome.alarms if each.kind is AlarmKind.DRAFT_MISMATCH]
    noticed = (
        next((each for each in raised if each >= at_s), None) for at_s in course.mismatches_s
    )
    return AlarmScore(
        minutes=tuple(
            None if noticed_s is None else (noticed_s - at_s) / 60
            for at_s, noticed_s in zip(course.mismatches_s, noticed, strict=True)
        ),
        false=tuple(each for each in outcome.alarms if not is_justified(each, course, outcome)),
        days=float(days),
        drafts_stop_fitting=course.world.drafts_stop_fitting,
    )
