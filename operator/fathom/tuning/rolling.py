"""Depth by rollout, where no engine can change it live: one pod first, then all, and seldom.

The depth document is carried out by new pods: its schedule by all, its override by the canary. A
restart costs a replica for as long as it loads, so three things bound what is tried: what a canary
teaches must be worth its restart, what is promoted must pay for its roll within a week, and there
are at most two promotions a week. A campaign is a few canaries, one after the other, each at the
depths that could gain most; at its end one promotion or none, of what the canaries have shown. That
waits until a whole day was seen, for load and traffic differ by the hour, unless waiting surely
loses more than another roll would cost.
"""

from dataclasses import dataclass, replace
from math import expm1, log1p
from typing import Final

from fathom.api.conditions import Reason
from fathom.api.spec import TuningMode
from fathom.core.depth import summary
from fathom.tuning.interface import Action, TuningDecision
from fathom.tuning.load import DAY_S, hour_of
from fathom.tuning.observe import candidate
from fathom.tuning.roll_plans import LEAST_GAIN, Plan, best_plan, next_canary, runs
from fathom.tuning.rolls import Canary
from fathom.tuning.situation import Situation, clamped, within_bounds

PAYBACK_S: Final = 7 * 24 * 3600.0
"""What is gained over a week pays for a roll …"""
PAYBACK: Final = 3.0
"""… this many times."""
RESTART_S: Final = 3600.0
"""What loading is assumed to take: large models take about an hour."""
LEAST_CERTAINTY: Final = 0.95
"""P(gain > 0) that a promotion needs."""
LEARN_S: Final = 1800.0
"""Traffic seen before the first canary."""
BAKE_S: Final = 2400.0
"""How long each of the first canaries of a campaign is watched at least …"""
QUICK_CANARIES: Final = 3
"""… so many of them; those that follow, longer, so that they meet the other hours of the day."""
LONG_BAKE_S: Final = 3 * 3600.0
LONGEST_BAKE_S: Final = DAY_S
MOST_CANARIES: Final = 6
"""In a campaign."""
WEEK_S: Final = 7 * DAY_S
MOST_PROMOTIONS: Final = 2
"""A week."""
SETTLE_S: Final = 3600.0
"""Rest after a promotion: pods are being restarted."""
VETO_S: Final = 16 * 3600.0
"""Rest after a campaign without a promotion; it doubles with each, up to a week …"""
EARLY_VETO_S: Final = 6 * 3600.0
"""… but before a whole day was seen, until other hours with other batches have come."""


def stop_canary(given: Situation) -> TuningDecision | None:
    """The spec's bounds hold at once, and mode Advise tries nothing and keeps `tokens`."""
    advising = given.settings.mode is TuningMode.ADVISE
    depths = dict(given.policy.depths)
    if advising:
        depths = dict.fromkeys(depths, clamped(given.settings.tokens, given.settings))
    canary = given.state.rolls.canary
    if advising or (canary is not None and not within_bounds(canary, given.settings)):
        canary = None
    after = given.with_state(replace(given.state, rolls=replace(given.state.rolls, canary=canary)))
    document = after.next_document(depths, canary)
    if document is given.document:
        return None
    return after.act(
        Action.ROLL_BACK,
        Reason.ADVISING if advising else Reason.MOVED,
        f"From {summary(given.document.schedule)} to {summary(document.schedule)}: the spec asks "
        "for it.",
        document,
        notable=True,
    )


def start_canary(given: Situation) -> TuningDecision | None:
    """Try other depths on one pod, if what that teaches is worth the restart.

    With fewer than two pods to choose from nothing rolls by itself.
    """
    state = given.state
    known_s = given.now_s - state.load.since_s if state.load.since_s else 0.0
    ready = [pod for pod in given.snapshot.pods if pod.ready and pod.pinned_depth is None]
    may_roll = state.rolls.may_roll(given.now_s, MOST_PROMOTIONS, WEEK_S, SETTLE_S)
    if known_s < LEARN_S or not may_roll or len(ready) <= 1:
        return None
    plan = next_canary(given)
    if plan is not None and _pays(given, plan.gain.mean, rolls=1):
        return _try(given, plan)
    # An earlier campaign has shown it, and could not roll it out.
    best = best_plan(given)
    return _try(given, best) if _promising(best) else None


def judge_canary(given: Situation) -> TuningDecision | None:
    """Try the next depths, promote what the canary has shown to be better, or end it."""
    canary = given.state.rolls.canary
    if canary is None:
        return None
    look = _Look(given, canary, best_plan(given))
    answers = (check(look) for check in _CHECKS)
    return next((each for each in answers if each is not None), None) or _promote(given, look.best)


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at a canary that runs."""

    given: Situation
    canary: Canary
    best: Plan
    """The best that any canary has shown."""

    @property
    def age_s(self) -> float:
        return self.given.now_s - self.canary.started_at_s

    @property
    def old(self) -> bool:
        return self.age_s >= LONGEST_BAKE_S

    @property
    def baked(self) -> bool:
        return self.age_s >= (BAKE_S if self.quick else LONG_BAKE_S)

    @property
    def quick(self) -> bool:
        return self.given.state.rolls.tried < QUICK_CANARIES

    @property
    def urgent(self) -> bool:
        """Whether to wait for a whole day surely loses more than a roll too many costs.

        With the last promotion of the week, several times as much: nothing could mend it.
        """
        cost_s = PAYBACK * RESTART_S if self.last else RESTART_S
        return self.best.gain.lower() * _unseen_s(self.given) >= cost_s

    @property
    def last(self) -> bool:
        """Whether a promotion would be the last one of the week."""
        made = self.given.state.rolls.promotions(self.given.now_s, WEEK_S)
        return made + 1 >= MOST_PROMOTIONS

    @property
    def tries_left(self) -> bool:
        return self.given.state.rolls.tried < MOST_CANARIES

    def runs(self, plan: Plan) -> bool:
        return runs(self.given, self.canary, plan)

    def go_on(self) -> TuningDecision:
        pod, schedule = self.canary.pod, self.given.document.for_pod(self.canary.pod)
        gain = self.best.gain
        so_far = f"the best that was shown gains {gain}" if gain.mean else "nothing gains yet"
        return self.given.hold(
            Reason.CANARY, f"{pod} runs {summary(schedule)} beside the others: {so_far}."
        )

    def try_(self, plan: Plan) -> TuningDecision:
        return _try(self.given, plan) if self.baked else self.go_on()


def _too_young(look: _Look) -> TuningDecision | None:
    return look.go_on() if look.age_s < BAKE_S else None


def _gone(look: _Look) -> TuningDecision | None:
    there = any(pod.name == look.canary.pod for pod in look.given.snapshot.pods)
    return None if there else _end(look.given, f"{look.canary.pod} is gone.")


def _urgent(look: _Look) -> TuningDecision | None:
    """What cannot wait for the slower canaries is rolled out before them.

    But not with the last promotion of the week: nothing could add what they find.
    """
    if look.quick or look.last or not look.urgent:
        return None
    return _promote(look.given, look.best)


def _explore(look: _Look) -> TuningDecision | None:
    """What may gain more than anything that was shown is tried first."""
    plan = next_canary(look.given)
    if plan is None or not look.tries_left or not _pays(look.given, plan.gain.mean, rolls=1):
        return None
    if not look.runs(plan):
        return look.try_(plan)
    return None if look.old else look.go_on()


def _fruitless(look: _Look) -> TuningDecision | None:
    if _promising(look.best):
        return None
    return _end(look.given, f"No better schedule was found ({look.best.gain}).")


def _uncertain(look: _Look) -> TuningDecision | None:
    gain, pods = look.best.gain, len(look.given.snapshot.pods)
    if look.best.certainty >= LEAST_CERTAINTY and _pays(look.given, gain.mean, rolls=pods):
        return None
    if look.tries_left and not look.runs(look.best):
        return look.try_(look.best)
    if not look.old:
        return look.go_on()
    return _end(look.given, f"The gain ({gain}) is not certain, or does not pay for a roll.")


def _before_a_day(look: _Look) -> TuningDecision | None:
    given, gain = look.given, look.best.gain
    if _unseen_s(given) <= 0 or look.urgent:
        return None
    if look.tries_left and look.baked and not look.runs(look.best):
        return _try(given, look.best)
    return given.hold(Reason.CANARY, f"Compares until a whole day was seen ({gain} so far).")


def _busy_hour(look: _Look) -> TuningDecision | None:
    """Wait for less load, unless the wait loses more than restarts at a quiet hour save."""
    given, gain = look.given, look.best.gain
    load, now_s = given.state.load, given.now_s
    waits = range(0, round(DAY_S), 3600)
    wait_s = next((each for each in waits if load.is_trough(now_s + each)), 0)
    totals = {each.hour: each.total for each in load.hours}
    more = totals.get(hour_of(now_s), 0.0) - totals.get(hour_of(now_s + wait_s), 0.0)
    saved_s = RESTART_S * more * len(totals) / (sum(totals.values()) or 1.0)
    if not wait_s or gain.mean * wait_s >= saved_s:
        return None
    return given.hold(Reason.CANARY, f"Waits for an hour with less load to roll out ({gain}).")


_CHECKS: Final = (
    _too_young,
    _gone,
    _urgent,
    _explore,
    _fruitless,
    _uncertain,
    _before_a_day,
    _busy_hour,
)


def _unseen_s(given: Situation) -> float:
    """What is missing of a whole day; not above 0: nothing."""
    return DAY_S - (given.now_s - given.state.load.since_s)


def _promising(plan: Plan) -> bool:
    return plan.gain.mean >= log1p(LEAST_GAIN)


def _pays(given: Situation, gain: float, *, rolls: int) -> bool:
    """Whether a gain pays for so many restarts several times."""
    pods = len(given.snapshot.pods)
    return gain * PAYBACK_S * pods >= PAYBACK * RESTART_S * rolls


def _try(given: Situation, plan: Plan) -> TuningDecision:
    before = given.state.rolls
    pod = before.canary.pod if before.canary else candidate(given.snapshot)
    if pod is None:
        return given.hold(Reason.NO_METRICS, "No pod may carry a canary.")
    canary = Canary(pod, tuple(sorted(plan.depths.items())), given.now_s)
    rolls = replace(before, canary=canary, tried=before.tried + 1 if before.canary else 1)
    after = given.with_state(replace(given.state, rolls=rolls))
    document = after.next_document(given.policy.depths, canary)
    return replace(
        after.act(
            Action.CANARY,
            Reason.CANARY,
            f"{pod} is restarted with {summary(document.for_pod(pod))} beside "
            f"{summary(given.document.schedule)}, to see whether it gains ({plan.gain}).",
            document,
            notable=True,
        ),
        expected_gain=expm1(plan.gain.mean),
    )


def _promote(given: Situation, plan: Plan) -> TuningDecision:
    rolls = given.state.rolls.promoted(given.policy.depths, plan.depths, given.now_s, WEEK_S)
    after = given.with_state(replace(given.state, rolls=rolls))
    document = after.next_document(plan.depths, None)
    return replace(
        after.act(
            Action.PROMOTE,
            Reason.MOVED,
            f"Rolls out {summary(document.schedule)} instead of "
            f"{summary(given.document.schedule)} ({plan.gain}).",
            document,
            notable=True,
        ),
        expected_gain=expm1(plan.gain.mean),
    )


def _end(given: Situation, why: str) -> TuningDecision:
    fruitless = given.state.rolls.fruitless
    rest_s = min(WEEK_S, VETO_S * 2.0**fruitless)
    early = _unseen_s(given) > 0
    rolls = replace(
        given.state.rolls,
        canary=None,
        tried=0,
        fruitless=fruitless if early else fruitless + 1,
        rest_until_s=given.now_s + (EARLY_VETO_S if early else rest_s),
    )
    after = given.with_state(replace(given.state, rolls=rolls))
    return after.act(
        Action.ROLL_BACK,
        Reason.GAIN_TOO_SMALL,
        f"The canary is ended: {why}",
        after.next_document(given.policy.depths, None),
        notable=True,
    )
