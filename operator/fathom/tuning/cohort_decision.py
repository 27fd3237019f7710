"""One decision for the fleet, made of those for the rest and for each cohort. Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from fathom.api.conditions import Reason
from fathom.engine.depth import DepthDocument
from fathom.text import counted
from fathom.tuning.estimate.measured import pooled
from fathom.tuning.interface import Action, TuningDecision
from fathom.tuning.learned_state import Cohort

_MOST_NAMES: Final = 3
_WEIGHTIEST: Final = (
    *(Action.RETURN, Action.MOVE, Action.PROBE, Action.END_PROBE, Action.PIN, Action.POKE),
    Action.HOLD,
)

Decided = tuple[Cohort, TuningDecision]


def together(
    document: DepthDocument,
    newest: int,
    rest: TuningDecision,
    apart: Sequence[Decided],
    *,
    news: str,
    unnamed: Collection[str] = (),
) -> TuningDecision:
    """What is decided for all.

    Args:
        document: the depths in force.
        newest: the newest generation that the rest knew of: engines never go back.
        rest: what is decided for the pods that are in no cohort; its state is the fleet's.
        apart: for each cohort that has pods.
        news: who changed cohorts, as sentences; empty: nobody.
        unnamed: pods that would not find an entry of their own.
    """
    parts = (rest, *(each for _, each in apart))
    lead = min(
        parts,
        key=lambda each: (_WEIGHTIEST.index(each.action), each.reason is not Reason.PROBING),
    )
    after = _document(document, newest, rest.document, apart, unnamed)
    action, reason = lead.action, lead.reason
    if action is Action.HOLD and after is not document:
        action, reason = Action.MOVE, Reason.TUNED_APART
        news = news or "The depth document follows the pods that there are."
    elif news:
        reason = Reason.TUNED_APART
    told = (rest.message, *(f"{whom(each)}: {decided.message}" for each, decided in apart))
    # What a draft on trial is worth, its comparison says.
    counted_in = (rest, *(each for cohort, each in apart if not cohort.draft))
    alarms = {each.kind: each for part in reversed(counted_in) for each in part.alarms}
    measured = [each.measured for each in counted_in if each.measured is not None]
    rooms = [each.headroom_tokens_per_second for each in counted_in]
    known = [each for each in rooms if each is not None]
    return replace(
        lead,
        action=action,
        reason=reason,
        message=" ".join(each for each in (news, *told) if each),
        document=after,
        state=replace(rest.state, generation=max(rest.state.generation, after.generation)),
        wake_after_s=min(each.wake_after_s for each in parts),
        measured=pooled(measured) if measured else None,
        not_obeyed=tuple(pod for each in counted_in for pod in each.not_obeyed),
        alarms=tuple(alarms[kind] for kind in sorted(alarms)),
        headroom_tokens_per_second=sum(known) if len(known) == len(rooms) else None,
        notable=bool(news) or any(each.notable for each in parts),
    )


def _document(
    before: DepthDocument,
    newest: int,
    rest: DepthDocument,
    apart: Iterable[Decided],
    unnamed: Collection[str],
) -> DepthDocument:
    """With the depths of all; the very same one if nothing changes."""
    pods, ends = dict(rest.pods), dict(rest.ends)
    newest = max(before.generation, newest)
    for cohort, decided in apart:
        pods |= {pod: decided.document.for_pod(pod) for pod in cohort.pods if pod not in unnamed}
        ends |= decided.document.ends
        newest = max(newest, cohort.state.generation)
    after = DepthDocument(
        generation=newest + 1, schedule=rest.schedule, pods=pods, tokens=before.tokens, ends=ends
    )
    return before if after.same_depths(before) else after


def whom(cohort: Cohort) -> str:
    """A cohort, as the begin of a sentence."""
    names = _names(cohort.pods)
    if cohort.draft:
        return f"{names} with draft {cohort.draft}"
    return f"{names} on {cohort.device}" if cohort.device else f"{names} with other text"


def changes(before: Sequence[Cohort], after: Sequence[Cohort], present: Iterable[str]) -> str:
    """Who changed cohorts, as sentences; empty: nobody.

    Args:
        before: the cohorts.
        after: those of now.
        present: the names of all pods there are.
    """
    was = {pod: each.device for each in before for pod in each.pods}
    now = {pod: each.device for each in after for pod in each.pods}
    told = [
        f"From now on {whom(replace(each, pods=new))} {_are(new)} tuned apart."
        for each in after
        if (new := tuple(pod for pod in each.pods if was.get(pod) != each.device))
    ]
    if back := tuple(pod for pod in present if pod in was and pod not in now):
        told.append(f"From now on {_names(back)} {_are(back)} tuned with the others again.")
    return " ".join(told)


def _are(pods: Sequence[str]) -> str:
    return "is" if len(pods) == 1 else "are"


def _names(pods: Sequence[str]) -> str:
    left = len(pods) - _MOST_NAMES
    names = ", ".join(pods[:_MOST_NAMES])
    return f"{names} and {counted(left, 'more pod')}" if left > 0 else names
