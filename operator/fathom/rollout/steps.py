"""One step of a rollout: settle, one canary, then all or back. Pure.

    Settling ──▶ Canary ──▶ Promoted ──▶ (done)
                   │
                   └──▶ RolledBack, until the spec asks for another revision

An arm, which is there to be compared, stays in stage Canary: it gets a verdict instead of being
promoted, and ends with an edit.

A newer spec supersedes from any stage; a spec that goes back to the stable revision ends the
rollout, whichever replicas exist. How many replicas each revision has at any moment is
`fathom.core.replicas`' affair, and follows from the cluster.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from fathom.api.conditions import Reason
from fathom.core.counted import counted
from fathom.core.events import Happening, Severity
from fathom.core.observed import ObservedPod
from fathom.rollout.canary_trouble import failure_of, restarts_of
from fathom.rollout.comparison import comparison_of
from fathom.rollout.look import Look
from fathom.rollout.rollout import Rollout, Stage, Watch
from fathom.rollout.verdict import Answer, fails, so_far, verdict_on

SETTLE_S: Final = 10.0
"""A spec that has just changed may change again: edits within this time are one rollout."""
WARM_UP_S: Final = 120.0
"""After a canary became ready its prefix cache is cold: what it counts so early is left out."""


@dataclass(frozen=True, slots=True)
class Step:
    rollout: Rollout | None
    """As it is now; None: none is under way."""
    happenings: tuple[Happening, ...] = ()


def next_step(before: Rollout | None, look: Look) -> Step:
    """Where the rollout is after this look. Idempotent: the same look twice moves it once.

    Args:
        before: as it was; None: none was under way.
        look: this pass's view.
    """
    before = before and _not_ahead(before, look.now_s)
    rollout, told = _of_this_spec(before, look)
    if rollout is None:
        return Step(None)
    if rollout.stage is Stage.CANARY and not look.wishes.replicas:
        # It neither failed nor passed, so it is watched from where it was once there are replicas.
        message = "the canary comes back with the others: spec.replicas is 0."
        held = replace(_held(rollout, look.now_s), reason=Reason.CANARY_STARTING, message=message)
        return Step(held, told)
    if look.wishes.paused:
        return Step(_held(rollout, look.now_s), told)
    if rollout is not before and rollout.stage is Stage.PROMOTED:
        # Where it is over at once, the status would go on to tell of the one before.
        return Step(rollout, told)
    step = _advanced(_resumed(rollout, look.now_s), look)
    return Step(step.rollout, (*told, *step.happenings))


def _not_ahead(rollout: Rollout, now_s: float) -> Rollout:
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


def _of_this_spec(
    before: Rollout | None, look: Look
) -> tuple[Rollout | None, tuple[Happening, ...]]:
    """The rollout to the revision that the spec asks for; None: none is needed."""
    if before is None:
        return (_begun(look, look.others[0]) if look.others else None), ()
    if before.revision == look.revision:
        again = before.stage is Stage.ROLLED_BACK and look.retry not in {"", before.retry}
        if before.arm != look.arm:
            return _with_other_end(before, look)
        return (_begun(look, before.stable) if again else before), ()
    if look.revision == before.stable:
        asked = "the spec asks for what served before."
        ended = f"the spec is back at {look.revision}."
        if look.fallen_back:
            asked = "the newest spec is refused, and this one served before."
            ended = f"its spec is refused, and revision {look.revision} served before."
        if before.arm:
            asked = ended = f"its replica goes back to revision {look.revision}."
        back = _begun(look, look.revision).entered(
            Stage.PROMOTED, Reason.REVERTED, asked, look.now_s
        )
        message = f"The {_what(before)} ends: {ended}"
        quiet = before.stage is Stage.ROLLED_BACK
        return back, () if quiet else (_normal("Reverted", message),)
    happening = _normal(
        "Superseded",
        f"The {_what(before)} ends: the spec asks for {look.revision} now.",
    )
    quiet = before.stage in {Stage.SETTLING, Stage.ROLLED_BACK}
    return _begun(look, _served_last(before, look)), () if quiet else (happening,)


def _what(rollout: Rollout) -> str:
    if rollout.arm:
        return f"comparison with adaptive verification, of revision {rollout.revision},"
    return f"rollout to revision {rollout.revision}"


def _with_other_end(before: Rollout, look: Look) -> tuple[Rollout, tuple[Happening, ...]]:
    """The same revision, which is to be rolled out now and was compared before, or vice versa."""
    if before.stage is Stage.ROLLED_BACK:
        return _begun(look, before.stable), ()
    message = (
        f"The replica of revision {before.revision} stays, to be compared with the others."
        if look.arm
        else f"The replica of revision {before.revision} that was compared is the canary of its "
        "rollout: what it has shown counts."
    )
    # Its clocks begin anew: how long it was compared is no matter of patience.
    moved = before.entered(before.stage, before.reason, before.message, look.now_s)
    return replace(moved, arm=look.arm, compared=None), (_normal("Canary", message),)


def _served_last(before: Rollout, look: Look) -> str:
    """What a newer revision than that of `before` is tried beside, and goes back to."""
    if before.stage is not Stage.PROMOTED:
        return before.stable
    # What was promoted and does not serve is no measure while the one before it still does.
    deserted = not look.ready(before.revision) and look.ready(before.stable)
    return before.stable if deserted else before.revision


def _begun(look: Look, stable: str) -> Rollout:
    settling = Rollout(
        revision=look.revision,
        stable=stable,
        stage=Stage.SETTLING,
        began_at_s=look.now_s,
        reason=Reason.SETTLING,
        message=f"begins when the spec has not changed for {SETTLE_S:.0f} seconds.",
        why=look.why,
        retry=look.retry,
        arm=look.arm,
    )
    if look.arm and look.asked(look.revision):
        # An operator that kept no record has begun it.
        message = "it is compared from now on, since no record of it was kept."
        return settling.entered(Stage.CANARY, Reason.CANARY_STARTING, message, look.now_s)
    if look.asked(look.revision) > 1:
        # An operator that kept no record has promoted it.
        return settling.entered(Stage.PROMOTED, Reason.CANARY_AS_GOOD, "goes on.", look.now_s)
    return settling


def _held(rollout: Rollout, now_s: float) -> Rollout:
    """Standing still, for as long as it is held."""
    return rollout if rollout.paused_at_s else replace(rollout, paused_at_s=now_s)


def _resumed(rollout: Rollout, now_s: float) -> Rollout:
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


def _advanced(rollout: Rollout, look: Look) -> Step:
    match rollout.stage:
        case Stage.SETTLING:
            return _settled(rollout, look)
        case Stage.CANARY if rollout.arm:
            return _watched(rollout, look)
        case Stage.CANARY if not look.stable_spec_known and rollout.stable not in look.others:
            message = f"nothing is left of revision {rollout.stable} to go back to."
            return _promoted(rollout, Reason.NOTHING_TO_PROTECT, message, look)
        case Stage.CANARY:
            return _watched(rollout, look)
        case Stage.PROMOTED:
            return _followed(rollout, look)
        case Stage.ROLLED_BACK:
            return Step(rollout)


def _settled(rollout: Rollout, look: Look) -> Step:
    if look.now_s - rollout.began_at_s < SETTLE_S:
        return Step(rollout)
    if look.held:
        return Step(replace(rollout, message=f"begins when {look.held}."))
    if rollout.arm and not look.ready(rollout.stable):
        return Step(replace(rollout, message="begins when a replica serves to compare it with."))
    if look.ready(rollout.stable) == 0:
        message = f"no replica of revision {rollout.stable} serves: nothing is put at risk."
        promoted = rollout.entered(Stage.PROMOTED, Reason.NOTHING_TO_PROTECT, message, look.now_s)
        return Step(promoted)
    canary = rollout.entered(
        Stage.CANARY, Reason.CANARY_STARTING, "the canary is starting.", look.now_s
    )
    if rollout.arm:
        message = (
            f"One replica has adaptive verification, at revision {rollout.revision}, and is "
            f"compared with those of {rollout.stable} for as long as the spec says Canary."
        )
        return Step(canary, (_normal("Canary", message),))
    watched = "replaced" if _alone(look) else "watched beside the others"
    minutes = look.wishes.bake_s / 60
    bake = f" for {minutes:.0f} min" if minutes and not _alone(look) else ""
    message = (
        f"One replica is {watched}{bake}, at revision {rollout.revision} instead of "
        f"{rollout.stable}{f' ({rollout.why})' if rollout.why else ''}."
    )
    return Step(canary, (_normal("Canary", message),))


def _alone(look: Look) -> bool:
    """Whether the canary takes the place of the only replica."""
    return look.wishes.replicas <= 1 and not look.wishes.max_surge


def _watched(rollout: Rollout, look: Look) -> Step:
    pod = _canary(look.of_revision(rollout.revision), rollout.watch)
    watch = _watch(rollout.watch, pod, look.now_s)
    failure = failure_of(rollout, watch, pod, look)
    seen = _seen(rollout, watch, look)
    if failure is not None:
        return _rolled_back(seen, failure.reason, failure.message, look)
    if pod is None or watch.ready_since_s is None or not pod.ready:
        message = f"the canary{f', pod {pod.name},' if pod else ''} is starting."
        return Step(replace(seen, reason=Reason.CANARY_STARTING, message=message))
    baked_s = look.now_s - watch.ready_since_s
    return (_compared if rollout.arm else _judged)(seen, pod, baked_s, look)


def _judged(rollout: Rollout, pod: ObservedPod, baked_s: float, look: Look) -> Step:
    """Of a canary that serves: it is promoted, goes back, or is watched on."""
    if _alone(look) or not look.wishes.bake_s:
        return _promoted(rollout, Reason.CANARY_AS_GOOD, "it became ready.", look)
    verdict = verdict_on(rollout.evidence, baked_s, look.wishes.bake_s)
    match verdict.answer:
        case Answer.PROMOTE:
            return _promoted(rollout, verdict.reason, verdict.message, look)
        case Answer.ROLL_BACK:
            return _rolled_back(rollout, verdict.reason, f"{pod.name}: {verdict.message}", look)
        case Answer.WATCH:
            message = f"pod {pod.name}: {verdict.message}"
            return Step(replace(rollout, reason=verdict.reason, message=message))


def _compared(rollout: Rollout, pod: ObservedPod, baked_s: float, look: Look) -> Step:
    """Of an arm that serves: it goes back if its requests fail, and stays else."""
    if (failing := fails(rollout.evidence)) is not None:
        return _rolled_back(rollout, failing.reason, f"{pod.name}: {failing.message}", look)
    before, bake_s = rollout.compared, look.wishes.bake_s
    if before is not None and before.settled:
        return Step(replace(rollout, reason=Reason.COMPARING, message=str(before)))
    found = comparison_of(
        rollout.evidence,
        baked_s=baked_s,
        bake_s=bake_s,
        now_s=look.now_s,
        doubted=before is not None,
    )
    if found is None or (before is not None and not found.settled):
        # What could not be told before stands as it was told.
        message = str(before) if before else f"{so_far(rollout.evidence)}: not certain yet."
        if baked_s < bake_s:
            left = max(1, round((bake_s - baked_s) / 60))
            message = f"{so_far(rollout.evidence)}; compared for {counted(left, 'more minute')}."
        message = f"pod {pod.name}: {message}"
        return Step(replace(rollout, reason=Reason.COMPARING, message=message))
    told = f"Pod {pod.name}, with adaptive verification, beside the others: {found}"
    after = replace(rollout, compared=found, reason=Reason.COMPARING, message=str(found))
    return Step(after, (_normal("Compared", told),))


def _seen(rollout: Rollout, watch: Watch, look: Look) -> Rollout:
    evidence = rollout.evidence
    warm_s = min(WARM_UP_S, look.wishes.bake_s / 4)
    warm = watch.ready_since_s is not None and look.now_s - watch.ready_since_s >= warm_s
    if look.window is not None and warm and watch.unready_since_s is None:
        evidence = evidence.updated(look.window.canary, look.window.stable)
    return replace(rollout, watch=watch, evidence=evidence)


def _canary(pods: Iterable[ObservedPod], watch: Watch | None) -> ObservedPod | None:
    """The one that is watched, as long as it is there."""
    found = sorted(pods, key=lambda pod: (not pod.ready, pod.name))
    known = (pod for pod in found if watch is not None and pod.name == watch.pod)
    return next(known, found[0] if found else None)


def _watch(before: Watch | None, pod: ObservedPod | None, now_s: float) -> Watch:
    """The watch of this pod; another pod than before bakes anew."""
    if pod is None:
        return _unready(before or Watch(""), now_s)
    watch = before if before is not None and before.pod == pod.name else None
    if watch is None:
        since_s = before.unready_since_s if before is not None else None
        since_s = now_s if since_s is None else since_s
        watch = Watch(pod.name, unready_since_s=since_s, uid=pod.metadata.uid)
    elif watch.uid != pod.metadata.uid:
        watch = _come_back(watch, pod.metadata.uid, now_s)
    if not pod.ready:
        since_s = now_s if watch.unready_since_s is None else watch.unready_since_s
        return replace(watch, unready_since_s=since_s)
    if watch.ready_since_s is None:
        restarts = restarts_of(pod)
        return replace(watch, ready_since_s=now_s, unready_since_s=None, restarts=restarts)
    return replace(watch, unready_since_s=None)


def _come_back(watch: Watch, uid: str, now_s: float) -> Watch:
    """Of a pod under the name of an earlier one, as the leader of a restarted group is."""
    if not watch.uid:  # kept by a Fathom that did not look
        return replace(watch, uid=uid)
    return replace(_unready(watch, now_s), uid=uid, replaced=watch.replaced + 1)


def _unready(watch: Watch, now_s: float) -> Watch:
    """Of a pod that is gone: what comes in its place bakes from the beginning."""
    since_s = now_s if watch.unready_since_s is None else watch.unready_since_s
    return replace(watch, ready_since_s=None, unready_since_s=since_s)


def _promoted(rollout: Rollout, reason: Reason, message: str, look: Look) -> Step:
    promoted = rollout.entered(Stage.PROMOTED, reason, message, look.now_s)
    told = f"Revision {rollout.revision} replaces {rollout.stable} everywhere: {message}"
    return Step(promoted, (_normal("Promoted", told),))


def _rolled_back(rollout: Rollout, reason: Reason, message: str, look: Look) -> Step:
    if not look.stable_spec_known:
        # Its pods stay, but what they were made from is not known: only the user can tell.
        held = f"{message} It is held there, since the spec of {rollout.stable} is not known."
        return Step(replace(rollout, reason=reason, message=held))
    if rollout.arm:
        told = (
            f"The replica with adaptive verification, of revision {rollout.revision}, is given up, "
            f"and {rollout.stable} takes its place: {message}"
        )
        over = rollout.entered(Stage.ROLLED_BACK, reason, message, look.now_s)
        return Step(over, (Happening(Severity.WARNING, reason, told),))
    # Told by condition Degraded.
    return Step(rollout.entered(Stage.ROLLED_BACK, reason, message, look.now_s))


def _followed(rollout: Rollout, look: Look) -> Step:
    complete = look.ready(rollout.revision) >= look.wishes.replicas
    left = any(pod.revision != rollout.revision for pod in look.pods)
    if not complete or left or look.others:
        return Step(rollout)
    message = f"Every replica is of revision {rollout.revision}."
    # Where it went back before anything had moved, there is nothing to tell.
    quiet = rollout.reason is Reason.REVERTED
    return Step(None, () if quiet else (_normal("RolledOut", message),))


def _normal(reason: str, message: str) -> Happening:
    return Happening(Severity.NORMAL, reason, message)
