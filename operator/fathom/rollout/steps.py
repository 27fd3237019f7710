"""One step of a rollout: settle, one canary, then all or back. Pure.

    Settling ──▶ Canary ──▶ Promoted ──▶ (done)
                   │
                   └──▶ RolledBack, until the spec asks for another revision

An arm, which is there to be compared, stays in stage Canary: it gets a verdict instead of being
promoted, and ends with an edit.

A newer spec supersedes from any stage; a spec that goes back to the stable revision ends the
rollout, whichever replicas exist. How many replicas each revision has at any moment is
`fathom.rollout.replicas`' affair, and follows from the cluster.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from fathom.api import names
from fathom.api.conditions import Reason
from fathom.cluster.events import Event, EventReason
from fathom.rollout.canary_health import not_ahead, resumed, standing_still, unwatched
from fathom.rollout.canary_step import (
    NoRoom,
    RolloutStep,
    alone,
    cost,
    no_room,
    normal,
    promotion,
    takes_at_once,
    watched_canary,
)
from fathom.rollout.input import RolloutInput
from fathom.rollout.rollout import Rollout, Stage

SETTLE_S: Final = 10.0
"""A spec that has just changed may change again: edits within this time are one rollout."""
BACK: Final = "the spec asks for what served before."
"""How a rollout ends whose spec was taken back."""
_DOWN_S: Final = 60.0
"""Until what serves no more is taken for broken: a probe that fails, or a busy node, takes less."""


def next_step(before: Rollout | None, given: RolloutInput) -> RolloutStep:
    """Where the rollout is after this look. Idempotent: the same look twice moves it once.

    Args:
        before: as it was; None: none was under way.
        given: this pass's view.
    """
    before = before and not_ahead(before, given.now_s)
    before = before and unwatched(before, given.looked_at_s, given.settings, given.now_s)
    before = before and _asking_again(before, given)
    rollout, events = _of_this_spec(before, given)
    if rollout is None:
        return RolloutStep(None)
    if rollout.stage is Stage.CANARY and not given.settings.replicas:
        # It neither failed nor passed, so it is watched from where it was once there are replicas.
        message = "the canary comes back with the others: spec.replicas is 0."
        held = replace(
            standing_still(rollout, given.now_s), reason=Reason.CANARY_STARTING, message=message
        )
        return RolloutStep(held, events)
    if given.settings.paused:
        return RolloutStep(standing_still(rollout, given.now_s), events)
    if (lack := no_room(rollout, given)) is not None:
        step = _without_room(rollout, lack, given)
        return RolloutStep(step.rollout, (*events, *step.events))
    if rollout is not before and rollout.stage is Stage.PROMOTED:
        # Where it is over at once, the status would go on to tell of the one before.
        return RolloutStep(rollout, events)
    step = _advanced(resumed(rollout, given.now_s), _at_its_surge(rollout, given))
    return RolloutStep(step.rollout, (*events, *step.events))


def _without_room(rollout: Rollout, lack: NoRoom, given: RolloutInput) -> RolloutStep:
    """The step of a canary without room: meanwhile it uses up no patience."""
    if not lack.takes:
        asks = replace(standing_still(rollout, given.now_s), reason=lack.reason)
        return RolloutStep(replace(asks, message=lack.message))
    sentence = (
        f"The canary takes the place of a replica, since {lack.message} Until it is ready: "
        f"{cost(rollout.stable, given)}."
    )
    takes = replace(resumed(rollout, given.now_s), no_room=True, reason=lack.reason)
    event = normal(EventReason.TAKES_REPLICA, sentence)
    return RolloutStep(replace(takes, message=f"the canary is starting. {sentence}"), (event,))


def _asking_again(rollout: Rollout, given: RolloutInput) -> Rollout:
    """As before it took a replica's place, once the spec lets no replica be missing."""
    if not rollout.no_room or given.settings.max_unavailable:
        return rollout
    return replace(rollout, no_room=False)


def _at_its_surge(rollout: Rollout, given: RolloutInput) -> RolloutInput:
    """As for a rollout that adds no replica, where no node has room for one."""
    if not rollout.no_room:
        return given
    return replace(given, settings=replace(given.settings, max_surge=0))


def _of_this_spec(
    before: Rollout | None, given: RolloutInput
) -> tuple[Rollout | None, tuple[Event, ...]]:
    """The rollout to the revision that the spec asks for; None: none is needed."""
    if before is None:
        return (_begun(given, given.others[0]) if given.others else None), ()
    if before.revision == given.revision:
        again = before.stage is Stage.ROLLED_BACK and given.retry not in {"", before.retry}
        if before.arm != (given.compares is not None):
            return _with_other_end(before, given)
        # What the annotation said before stays, until there is a canary that it asks for.
        begun = replace(_begun(given, before.stable), retry=before.retry)
        return (begun if again else before), ()
    if given.revision == before.stable:
        asked = BACK
        ended = f"the spec is back at {given.revision}."
        if given.fallen_back:
            asked = "the newest spec is refused, and this one served before."
            ended = f"its spec is refused, and revision {given.revision} served before."
        if before.offered:
            asked = "it is not asked for any more, and this one served before."
            ended = f"it is not asked for any more, and revision {given.revision} served before."
        if before.arm:
            asked = ended = f"its replica goes back to revision {given.revision}."
        back = _begun(given, given.revision).entered(
            Stage.PROMOTED, Reason.REVERTED, asked, given.now_s
        )
        message = f"The {_what(before)} ends: {ended}"
        quiet = before.stage is Stage.ROLLED_BACK
        return back, () if quiet else (normal(EventReason.REVERTED, message),)
    event = normal(
        EventReason.SUPERSEDED,
        f"The {_what(before)} ends: the spec asks for {given.revision} now.",
    )
    quiet = before.stage in {Stage.SETTLING, Stage.ROLLED_BACK}
    return _begun(given, _served_last(before, given)), () if quiet else (event,)


def _what(rollout: Rollout) -> str:
    if rollout.arm:
        return f"comparison of a replica {rollout.has}, revision {rollout.revision},"
    return f"rollout to revision {rollout.revision}"


def _with_other_end(before: Rollout, given: RolloutInput) -> tuple[Rollout, tuple[Event, ...]]:
    """The same revision, which is to be rolled out now and was compared before, or vice versa."""
    if before.stage is Stage.ROLLED_BACK:
        return _begun(given, before.stable), ()
    message = (
        f"The replica of revision {before.revision} stays, to be compared with the others."
        if given.compares
        else f"The replica of revision {before.revision} that was compared is the canary of its "
        "rollout: what it has shown counts."
    )
    # Its clocks begin again: how long it was compared is no matter of patience.
    moved = before.entered(before.stage, before.reason, before.message, given.now_s)
    return replace(_for(moved, given), compared=None), (normal(EventReason.CANARY, message),)


def _for(rollout: Rollout, given: RolloutInput) -> Rollout:
    """The same, to the end that is asked for now."""
    arm = given.compares is not None
    compares = given.compares or rollout.compares
    # A draft that was on trial and is rolled out now goes on at its own depth.
    draft = given.draft if arm else rollout.draft
    return replace(rollout, arm=arm, compares=compares, draft=draft)


def _served_last(before: Rollout, given: RolloutInput) -> str:
    """What a newer revision than that of `before` is tried beside, and goes back to."""
    if before.stage is not Stage.PROMOTED:
        return before.stable
    if given.ready(before.revision):
        return before.revision
    # What was promoted and does not serve (yet) is no measure while another one still does.
    return _serving(given.specs_known | {before.stable}, given) or before.revision


def _serving(gone_back_to: Collection[str], given: RolloutInput) -> str:
    """The revision that serves most of those that could be gone back to; empty: none serves."""
    serving = (each for each in given.others if given.ready(each) and each in gone_back_to)
    return next(serving, "")


def _begun(given: RolloutInput, stable: str) -> Rollout:
    settling = Rollout(
        revision=given.revision,
        stable=stable,
        stage=Stage.SETTLING,
        began_at_s=given.now_s,
        reason=Reason.SETTLING,
        message=f"begins when the spec has not changed for {SETTLE_S:.0f} seconds."
        + _price(stable, given),
        why=given.why,
        retry=given.retry,
        offered=given.offered,
    )
    settling = _for(settling, given)
    if settling.arm and given.asked(given.revision):
        # An operator that kept no record has begun it.
        message = "it is compared from now on, since no record of it was kept."
        return settling.entered(Stage.CANARY, Reason.CANARY_STARTING, message, given.now_s)
    if given.asked(given.revision) > 1:
        # An operator that kept no record has promoted it.
        return settling.entered(Stage.PROMOTED, Reason.CANARY_AS_GOOD, "continues.", given.now_s)
    return settling


def _price(stable: str, given: RolloutInput) -> str:
    """What a canary will cost that asks for no room first, as a sentence; empty: nothing."""
    if given.compares is not None or not takes_at_once(given.settings):
        return ""
    return f" It takes the place of a replica: {cost(stable, given)}."


def _advanced(rollout: Rollout, given: RolloutInput) -> RolloutStep:
    match rollout.stage:
        case Stage.SETTLING:
            return _settled(rollout, given)
        case Stage.CANARY if rollout.arm:
            return watched_canary(rollout, given)
        case Stage.CANARY if _nothing_left(rollout, given):
            message = f"nothing is left of revision {rollout.stable} to go back to."
            return promotion(rollout, Reason.NOTHING_TO_PROTECT, message, given)
        case Stage.CANARY:
            return watched_canary(rollout, given)
        case Stage.PROMOTED:
            return _followed(rollout, given)
        case Stage.ROLLED_BACK:
            return RolloutStep(rollout)


def _nothing_left(rollout: Rollout, given: RolloutInput) -> bool:
    """Whether the stable revision has no pods, and nothing says any more how they are made.

    A workload does, also one that is scaled to 0.
    """
    known = given.stable_spec_known or any(
        each.revision == rollout.stable for each in (*given.workloads, *given.pods)
    )
    return not known


def _settled(rollout: Rollout, given: RolloutInput) -> RolloutStep:
    if given.now_s - rollout.began_at_s < SETTLE_S:
        return RolloutStep(rollout)
    if awaited := _awaited(rollout, given):
        message = f"begins when {awaited}."
        return RolloutStep(replace(rollout, reason=Reason.SETTLING, message=message))
    if _no_way_back(rollout, given):
        message = (
            f"no canary is started: the spec of revision {rollout.stable}, which serves, is not "
            "known, since the record of it was lost or cannot be read, and it could not be gone "
            "back to. Put that spec back until the status shows this generation, and edit it "
            f"again; or start the canary anyway: give annotation "
            f"{names.ANNOTATION_RETRY_ROLLOUT} a new value, as `kubectl fathom retry` does."
        )
        return RolloutStep(replace(rollout, reason=Reason.STABLE_SPEC_UNKNOWN, message=message))
    if not given.ready(rollout.stable) and (serving := _serving(given.specs_known, given)):
        # An API server that answered with an old state had shown what served then.
        return RolloutStep(replace(rollout, stable=serving))
    return _tried(replace(rollout, retry=given.retry), given)


def _tried(rollout: Rollout, given: RolloutInput) -> RolloutStep:
    """The step that ends stage Settling."""
    if given.ready(rollout.stable) == 0:
        message = f"no replica of revision {rollout.stable} serves: nothing is put at risk."
        promoted = rollout.entered(Stage.PROMOTED, Reason.NOTHING_TO_PROTECT, message, given.now_s)
        return RolloutStep(promoted)
    canary = rollout.entered(
        Stage.CANARY, Reason.CANARY_STARTING, "the canary is starting.", given.now_s
    )
    if rollout.arm:
        message = (
            f"One replica {rollout.has}, of revision {rollout.revision}, is compared "
            f"with those of {rollout.stable} for as long as the spec says Canary."
        )
        return RolloutStep(canary, (normal(EventReason.CANARY, message),))
    watched = "replaced" if alone(given) else "compared with the others"
    minutes = given.settings.bake_s / 60
    bake = f" for {minutes:.0f} min" if minutes and not alone(given) else ""
    message = (
        f"One replica is {watched}{bake}, at revision {rollout.revision} instead of "
        f"{rollout.stable}{f' ({rollout.why})' if rollout.why else ''}."
    )
    return RolloutStep(canary, (normal(EventReason.CANARY, message),))


def _no_way_back(rollout: Rollout, given: RolloutInput) -> bool:
    """Whether a canary would put at risk what nobody knows how to make again, and nobody asked."""
    if rollout.arm or given.stable_spec_known or given.retry not in {"", rollout.retry}:
        return False
    return given.ready(rollout.stable) > 0 or _down_for_a_moment(rollout.stable, given)


def _awaited(rollout: Rollout, given: RolloutInput) -> str:
    """What has to be before the canary is made, in words; empty: nothing."""
    if given.held:
        return given.held
    if given.ready(rollout.stable):
        return ""
    if rollout.arm:
        return "a replica serves to compare it with"
    young = given.now_s - rollout.began_at_s < SETTLE_S + _DOWN_S
    if young and _down_for_a_moment(rollout.stable, given):
        return (
            f"a replica of revision {rollout.stable} serves again, or none has for "
            f"{_DOWN_S:.0f} seconds"
        )
    return ""


def _down_for_a_moment(revision: str, given: RolloutInput) -> bool:
    """Whether some pod of it has been unready for so short that nothing is known to be broken."""
    since_s = (pod.unready_since_s for pod in given.of_revision(revision))
    return any(each is not None and given.now_s - each < _DOWN_S for each in since_s)


def _followed(rollout: Rollout, given: RolloutInput) -> RolloutStep:
    complete = given.ready(rollout.revision) >= given.settings.replicas
    left = any(pod.revision != rollout.revision for pod in given.pods)
    if not complete or left or given.others:
        return RolloutStep(rollout)
    message = f"Every replica is of revision {rollout.revision}."
    # Where it went back before anything had moved, there is nothing to tell.
    quiet = rollout.reason is Reason.REVERTED
    return RolloutStep(None, () if quiet else (normal(EventReason.ROLLED_OUT, message),))
