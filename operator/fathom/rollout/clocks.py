"""The clocks of a rollout: those that are set back, and those that stand still. Pure.

They stand still in a pause, and while nobody looks at the canary, as when the operator is away or
cannot reach the API server: what nobody watched is no bake, and uses up nobody's patience.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from fathom.rollout.canary_trouble import OBEY_S
from fathom.rollout.input import RolloutSettings
from fathom.rollout.rollout import CanaryWatch, Rollout, Stage

UNWATCHED_SHARE: Final = 0.15
"""Of the time that a canary is given, after a look at it: so long a pass may take, or fail."""


def not_ahead(rollout: Rollout, now_s: float) -> Rollout:
    """With nothing later than now: a clock that is set back makes nobody wait for hours."""
    if rollout.began_at_s > now_s:
        rollout = replace(rollout, began_at_s=now_s)
    if rollout.paused_at_s is not None and rollout.paused_at_s > now_s:
        rollout = replace(rollout, paused_at_s=now_s)
    watch = rollout.watch
    if watch is None:
        return rollout
    capped = _at_each(watch, lambda at_s: min(at_s, now_s))
    return rollout if capped == watch else replace(rollout, watch=capped)


def standing_still(rollout: Rollout, now_s: float) -> Rollout:
    """Standing still, for as long as it is held."""
    return rollout if rollout.paused_at_s else replace(rollout, paused_at_s=now_s)


def unwatched(
    rollout: Rollout, looked_at_s: float | None, settings: RolloutSettings, now_s: float
) -> Rollout:
    """Standing still since soon after the last look at a canary, if that was too long ago."""
    # An arm that was compared stays for months, and no time decides about it.
    awaited = rollout.stage is Stage.CANARY and rollout.compared is None
    if not awaited or rollout.paused_at_s is not None:
        return rollout
    serves = rollout.watch is not None and rollout.watch.unready_since_s is None
    # One without a bake only waits until it obeys.
    given_s = settings.bake_s or OBEY_S if serves else settings.patience_s
    until_s = _last_look_s(rollout, looked_at_s) + UNWATCHED_SHARE * given_s
    return standing_still(rollout, until_s) if until_s < now_s else rollout


def _last_look_s(rollout: Rollout, looked_at_s: float | None) -> float:
    """The last that is known: what began was seen to begin."""
    known = [rollout.began_at_s, looked_at_s]
    if rollout.watch is not None:
        known += [rollout.watch.ready_since_s, rollout.watch.unready_since_s]
    return max(at_s for at_s in known if at_s is not None)


def resumed(rollout: Rollout, now_s: float) -> Rollout:
    """With every clock as far as it was when they were stopped."""
    if rollout.paused_at_s is None:
        return rollout
    paused_s = now_s - rollout.paused_at_s
    watch = rollout.watch
    if watch is not None:
        watch = _at_each(watch, lambda at_s: at_s + paused_s)
    began_at_s = rollout.began_at_s + paused_s
    return replace(rollout, paused_at_s=None, began_at_s=began_at_s, watch=watch)


def _at_each(watch: CanaryWatch, moved: Callable[[float], float]) -> CanaryWatch:
    """With every clock that runs moved."""

    def at(since_s: float | None) -> float | None:
        return None if since_s is None else moved(since_s)

    return replace(
        watch,
        ready_since_s=at(watch.ready_since_s),
        unready_since_s=at(watch.unready_since_s),
        behind_since_s=at(watch.behind_since_s),
    )
