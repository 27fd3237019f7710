"""What the spec and people ask for outright, whatever was measured."""

from collections.abc import Mapping
from dataclasses import replace
from math import log1p

from fathom.api.choices import TuningMode
from fathom.api.conditions import Reason
from fathom.engine.depth import (
    DepthDocument,
    Schedule,
    depths_of,
    flat,
    same_depths,
    schedule_of,
    summary,
)
from fathom.text import counted
from fathom.tuning import sentences
from fathom.tuning.alarms.table import standing
from fathom.tuning.context import Situation, clamped, pins, within_bounds
from fathom.tuning.fixed_depth import HOW_TO_TRY, HOW_TO_TRY_ELSEWHERE, FixedDepth
from fathom.tuning.interface import Action, Settings, TuningDecision, TuningSnapshot
from fathom.tuning.learned_state import Probe
from fathom.tuning.learning import learn
from fathom.tuning.policy.option import DepthOption, expected_gain, expected_gain_sd


def own_depth(settings: Settings) -> Schedule:
    """The user's own depth at every batch, as near as the engines have it."""
    return flat(clamped(settings.tokens, settings), settings.max_batch)


def at_rest(snapshot: TuningSnapshot) -> DepthDocument:
    """What pods run that read the document and are not tuned; the very same one if they do.

    It is what the user wrote, but for pins: they may serve on for long, as in a paused rollout.
    """
    wanted, found = _first_document(snapshot), snapshot.document
    return found if found is not None and wanted.same_depths(found) else wanted


def rest(snapshot: TuningSnapshot, document: DepthDocument) -> TuningDecision:
    """Bring pods to rest that read the document."""
    tokens = snapshot.settings.tokens
    reason, why = snapshot.live_refusal or (Reason.STATIC, "mode Static asks for it.")
    return TuningDecision(
        action=Action.MOVE,
        reason=reason,
        message=f"Pods whose depth is live go to your own, {tokens}, at every batch: {why}",
        document=document,
        state=replace(snapshot.state, probe=None, trial=None, generation=document.generation),
        wake_after_s=snapshot.settings.window_seconds,
        measured=snapshot.state.measured,
        alarms=standing(snapshot.state.watches),
    )


def static(snapshot: TuningSnapshot) -> TuningDecision:
    """Mode Static: nothing to decide."""
    document = snapshot.document or unwritten(snapshot)
    newest = max(snapshot.state.generation, document.generation)
    return TuningDecision(
        action=Action.HOLD,
        reason=Reason.STATIC,
        message=(
            f"Mode Static: the engine speculates {counted(snapshot.settings.tokens, 'token')} at "
            "every batch."
        ),
        document=document,
        state=replace(snapshot.state, generation=newest),
        wake_after_s=snapshot.settings.window_seconds,
        measured=snapshot.state.measured,
    )


def start(snapshot: TuningSnapshot) -> TuningDecision:
    """The first document: the user's own depth at every batch. One that is lost: as it was."""
    document, before = _first_document(snapshot), snapshot.document_before
    tokens = snapshot.settings.tokens
    message = f"Starts at your own depth, {tokens}, at every batch."
    if before is not None and snapshot.settings.mode is TuningMode.AUTO:
        document = replace(document, schedule=_still_allowed(before.schedule, snapshot.settings))
        message = f"The depth document was gone: it is {summary(document.schedule)} as before."
    return TuningDecision(
        action=Action.MOVE,
        reason=Reason.MEASURING,
        message=message,
        document=document,
        state=replace(
            learn(snapshot).state,
            probe=None,
            trial=None,
            tokens=tokens,
            generation=document.generation,
        ),
        wake_after_s=snapshot.settings.window_seconds,
        measured=snapshot.state.measured,
        alarms=standing(snapshot.state.watches),
    )


def _still_allowed(schedule: Schedule, settings: Settings) -> Schedule:
    depths = depths_of(schedule, settings.max_batch)
    allowed = {bucket: clamped(depth, settings) for bucket, depth in depths.items()}
    return schedule_of(allowed, settings.max_batch)


def _first_document(snapshot: TuningSnapshot) -> DepthDocument:
    """The document to start from, newer than any that an engine may hold."""
    settings, found = snapshot.settings, snapshot.document or snapshot.document_before
    newest = max(snapshot.state.generation, found.generation if found else 0)
    return DepthDocument(
        generation=newest + 1,
        schedule=own_depth(settings),
        pods=pins(settings, snapshot.pods),
        tokens=own_depth(settings),
    )


def unwritten(snapshot: TuningSnapshot) -> DepthDocument:
    """What engines do whose depth is not live, and for which no document is ever written."""
    return replace(_first_document(snapshot), generation=snapshot.state.generation)


def cannot_change_live(given: Situation) -> TuningDecision | None:
    """The engine has no live depth: say why, and what was measured at the one that runs."""
    if given.snapshot.live_refusal is None:
        return None
    reason, message = given.snapshot.live_refusal
    drafts = reason is not Reason.DRAFTING_DISABLED
    measured = FixedDepth.of(given).sentences() if drafts else ""
    if measured:
        measured += HOW_TO_TRY_ELSEWHERE if given.snapshot.started_elsewhere else HOW_TO_TRY
    # No document was written for these engines that they could obey.
    held = replace(given.hold(reason, f"{message} {measured}".rstrip()), not_obeyed=())
    if not drafts:
        # Nothing is drafted that could be wrong, and no counter would ever say that it is over.
        return replace(held, alarms=(), state=replace(held.state, watches=()))
    return held


def orders(given: Situation) -> TuningDecision | None:
    """Mode Advise, the spec's bounds, a new guess, pins; and probes that may not go on."""
    settings = given.settings
    advising = settings.mode is TuningMode.ADVISE
    depths: Mapping[int, int] = given.policy.depths
    new_guess = given.state.tokens not in {None, settings.tokens}
    if advising or (new_guess and not given.state.step_times.cells):
        depths = dict.fromkeys(depths, clamped(settings.tokens, settings))
    probe = None if advising else _still_valid(given)
    document = given.next_document(depths, probe)
    ended = given.snapshot.state.probe if probe is None else None
    given = given.with_state(
        replace(
            given.state,
            probe=probe,
            trial=None if advising else given.state.trial,
            probe_ended_at_s=given.now_s if ended else given.state.probe_ended_at_s,
        )
    )
    if document is given.document:
        return None
    if document.schedule != given.document.schedule and same_depths(
        document.schedule, given.document.schedule
    ):
        return given.act(
            Action.MOVE,
            Reason.MEASURING,
            f"The depths stay; their last range ends at the largest batch, {settings.max_batch}.",
            document,
        )
    if document.schedule != given.document.schedule:
        why = (
            "mode Advise keeps your own depth"
            if advising
            else "these are the depths that its spec and its engines' token budget allow"
        )
        return given.act(
            Action.MOVE,
            Reason.ADVISING if advising else Reason.MOVED,
            f"{summary(document.schedule)} in place of {summary(given.document.schedule)}: {why}.",
            document,
            notable=True,
        )
    if ended is not None and ended.pod in given.document.pods:
        return given.act(
            Action.END_PROBE,
            Reason.ADVISING if advising else Reason.MEASURING,
            f"The probe is over: {ended.pod} is pinned, gone or not ready, or probing was ended "
            "or paused.",
            document,
        )
    held = ", ".join(
        f"{pod} at {summary(schedule)}" for pod, schedule in sorted(given.pins.items())
    )
    return given.act(
        Action.PIN,
        Reason.PINNED,
        f"Pods held by annotation or by a quality check: {held or 'none any more'}.",
        document,
    )


def paused(given: Situation) -> TuningDecision | None:
    """A person holds it: what is asked for outright is done, and nothing beyond that."""
    if not given.snapshot.paused:
        return None
    return given.hold(
        Reason.PAUSED, f"{given.snapshot.paused} Depth stays as it is; measuring continues."
    )


def _still_valid(given: Situation) -> Probe | None:
    """The probe that runs, unless its pod cannot carry it any longer."""
    probe = given.state.probe
    if probe is None or not given.settings.probing or given.snapshot.paused:
        return None
    pod = next((each for each in given.snapshot.pods if each.name == probe.pod), None)
    within = within_bounds(probe, given.settings)
    return probe if within and pod and pod.ready and pod.pinned_depth is None else None


def advise(given: Situation) -> TuningDecision | None:
    """Mode Advise: say what Auto would aim at. Nothing is tried, so most of it is predicted."""
    if given.settings.mode is not TuningMode.ADVISE:
        return None
    better = aims(given)
    target = " ".join(f"{each.bucket}:{each.to}" for each in better)
    if better:
        message = f"Would move {sentences.moves(better, given.settings.max_batch)}."
    else:
        message = f"Would change nothing. {given.why_stay()[1]}"
    after = given.with_state(replace(given.state, advised=target))
    return replace(
        after.hold(Reason.ADVISING, message),
        expected_gain=expected_gain(better) if better else None,
        expected_gain_sd=expected_gain_sd(better) if better else None,
        notable=target != given.state.advised,
    )


def aims(given: Situation) -> tuple[DepthOption, ...]:
    """The depth that Auto would aim at in each bucket under load, where that is worth a change."""
    least = log1p(given.settings.min_gain)
    return tuple(each for each in given.policy.nearest_rivals() if each.gain.mean >= least)
