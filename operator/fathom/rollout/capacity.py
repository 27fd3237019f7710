"""Room for a canary: whether there is any beside all replicas, and what it costs if not. Pure.

A surge pod is asked for, and the scheduler's answer is the answer. Where no node has room for so
long as the spec says, the canary waits, or takes the place of a replica.
"""

import math
from dataclasses import dataclass

from fathom.api.conditions import Reason
from fathom.rollout.input import RolloutInput, RolloutSettings
from fathom.rollout.replicas import ReplicaBounds
from fathom.rollout.rollout import Rollout, Stage
from fathom.text import counted
from fathom.times import rfc3339


@dataclass(frozen=True, slots=True)
class NoRoom:
    """That there is no room for the canary, for now."""

    takes: bool
    """Whether it takes the place of a replica now; else it waits."""
    reason: Reason
    message: str


def no_room(rollout: Rollout, given: RolloutInput) -> NoRoom | None:
    """What becomes of a canary that has no place; None: it has one, or can only be given up.

    Args:
        rollout: as it is.
        given: this pass's view.
    """
    settings, found = given.settings, given.unplaced.get(rollout.revision)
    if rollout.stage is Stage.CANARY and given.blocked:
        return NoRoom(takes=False, reason=Reason.ROLLOUT_BLOCKED, message=given.blocked)
    asks = rollout.stage is Stage.CANARY and settings.max_surge and not rollout.no_room
    if not asks or found is None or not (settings.waits or _may_take(rollout, given)):
        return None
    until_s = max(rollout.began_at_s, found.since_s or 0.0) + settings.capacity_s
    if given.now_s >= until_s and not settings.waits:
        message = f"no node has capacity for one more: {found.trouble.message}"
        return NoRoom(takes=True, reason=Reason.CANARY_STARTING, message=message)
    then = (
        "It waits for capacity, since rollout.whenNoCapacity is Wait."
        if settings.waits
        else f"If that is so until {rfc3339(until_s)}, it takes the place of a replica: "
        f"{cost(rollout.stable, given)}."
    )
    open_yet = given.now_s < until_s
    return NoRoom(
        takes=False,
        reason=Reason.AWAITING_CAPACITY if open_yet else Reason.NO_CAPACITY,
        message="the canary asks for capacity in addition to all replicas. "
        f"{found.trouble.message} {then}",
    )


def cost(stable: str, given: RolloutInput) -> str:
    """What it costs that a canary takes the place of a replica, in words."""
    settings = given.settings
    left = ReplicaBounds(
        replicas=settings.replicas, max_unavailable=settings.max_unavailable, max_surge=0
    ).beside(1)
    # What took longer was ready before, and came back.
    if given.start_s is None or given.start_s > settings.patience_s:
        allowed = counted(settings.startup_s / 60, "minute")
        long = f"while it starts (spec.engine.startupMinutes allows {allowed})"
    else:
        long = f"for about {counted(max(1, math.ceil(given.start_s / 60)), 'minute')}"
    return f"capacity {min(left, given.ready(stable))} of {settings.replicas} {long}"


def takes_at_once(settings: RolloutSettings) -> bool:
    """Whether a canary takes the place of a replica without asking for room first."""
    return bool(settings.replicas and settings.max_unavailable and not settings.max_surge)


def _may_take(rollout: Rollout, given: RolloutInput) -> bool:
    """Whether a replica may be missing; of an arm one has to stay, to be compared with."""
    settings = given.settings
    return settings.max_unavailable > 0 and not (rollout.arm and settings.replicas <= 1)
