"""Pods that try another draft are tuned apart, and once all have it, as the fleet. Pure.

What another draft costs, and how much of it is accepted, only its own pods show: of the others'
nothing is taken over but what belongs to the traffic.
"""

from dataclasses import replace
from typing import Final

from fathom.api.conditions import Reason
from fathom.engine.depth import Schedule
from fathom.tuning.checks.orders import own_depth
from fathom.tuning.estimate.step_time import StepTimes
from fathom.tuning.interface import Action, TunedPod, TuningDecision, TuningSnapshot
from fathom.tuning.learned_state import Cohort, TuningState

_AT_BEST: Final = frozenset({Reason.AT_BEST, Reason.GAIN_TOO_SMALL})


def others(snapshot: TuningSnapshot) -> tuple[TunedPod, ...]:
    """The pods that have the draft which all have."""
    return tuple(pod for pod in snapshot.pods if not pod.tries_draft)


def trial_of(snapshot: TuningSnapshot) -> Cohort | None:
    """The pods that try another draft; None: none is on trial.

    It begins at the user's own depth. Where the fleet is at depth 0, no draft could show anything.
    """
    draft = snapshot.draft_on_trial
    if not draft:
        return None
    pods = tuple(pod.name for pod in snapshot.pods if pod.tries_draft)
    before = next((each for each in snapshot.state.cohorts if each.draft == draft), None)
    if before is not None:
        return replace(before, pods=pods)
    state, settings = snapshot.state, snapshot.settings
    fresh = TuningState(prompts=state.prompts, residence=state.residence, tokens=settings.tokens)
    return Cohort(device="", draft=draft, pods=pods, schedule=own_depth(settings), state=fresh)


def adopted(state: TuningState, schedule: Schedule, draft: str) -> tuple[TuningState, Schedule]:
    """The state and the depths of the rest, once all have the draft that was on trial.

    Args:
        state: of the fleet.
        schedule: of the rest.
        draft: that all have by now, or get; empty: none was adopted.
    """
    trial = next((each for each in state.cohorts if draft and each.draft == draft), None)
    if trial is None:
        return state, schedule
    looks = (*trial.state.looks.values(), *state.looks.values())
    devices = {each.device for each in looks if each.pod in trial.pods and each.device}
    elsewhere = bool(state.device) and not devices <= {state.device}
    now = replace(
        trial.state,
        device=state.device,
        # What another GPU needs for a step is learned there, and again with this draft.
        step_times=StepTimes() if elsewhere else trial.state.step_times,
        cohorts=(),
        # What is the whole fleet's, whatever it drafts with.
        looks=state.looks,
        load=state.load,
        gained=state.gained,
        generation=state.generation,
    )
    return now, trial.schedule


def has_settled(trial: Cohort, decision: TuningDecision) -> bool:
    """Whether its depth is, or was, the best that is known."""
    return trial.settled or (decision.action is Action.HOLD and decision.reason in _AT_BEST)
