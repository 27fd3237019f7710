"""The clocks of a rollout: those that are set back, and those that stand still in a pause. Pure."""

from dataclasses import replace

from fathom.rollout.rollout import Rollout


def not_ahead(rollout: Rollout, now_s: float) -> Rollout:
    """With nothing later than now: a clock that is set back makes nobody wait for hours."""
    if rollout.began_at_s > now_s:
        rollout = replace(rollout, began_at_s=now_s)
    if rollout.paused_at_s is not None and rollout.paused_at_s > now_s:
        rollout = replace(rollout, paused_at_s=now_s)
    watch = rollout.watch
    if watch is None:
        return rollout
    ready_s, unready_s = watch.ready_since_s, watch.unready_since_s
    if ready_s is not None and ready_s > now_s:
        watch = replace(watch, ready_since_s=now_s)
    if unready_s is not None and unready_s > now_s:
        watch = replace(watch, unready_since_s=now_s)
    return rollout if watch is rollout.watch else replace(rollout, watch=watch)


def standing_still(rollout: Rollout, now_s: float) -> Rollout:
    """Standing still, for as long as it is held."""
    return rollout if rollout.paused_at_s else replace(rollout, paused_at_s=now_s)


def resumed(rollout: Rollout, now_s: float) -> Rollout:
    """After a pause, with every clock as far as it was."""
    if rollout.paused_at_s is None:
        return rollout
    paused_s = now_s - rollout.paused_at_s
    watch = rollout.watch
    if watch is not None:
        watch = replace(
            watch,
            ready_since_s=None if watch.ready_since_s is None else watch.ready_since_s + paused_s,
            unready_since_s=(
                None if watch.unready_since_s is None else watch.unready_since_s + paused_s
            ),
        )
    began_at_s = rollout.began_at_s + paused_s
    return replace(rollout, paused_at_s=None, began_at_s=began_at_s, watch=watch)
