"""Whether a draft fits less than while it was new: what the reference is held against. Pure."""

from typing import Final

from fathom.api.conditions import Reason
from fathom.engine.report import ServedPair
from fathom.times import rfc3339
from fathom.tuning.alarms.detectors import Look, Sight
from fathom.tuning.estimate.acceptance_changes import RESTORED_S
from fathom.tuning.estimate.reference import BELOW_SHARE, Reference, first_position

LASTS_AFTER_S: Final = 6 * 3600.0
"""How long a pair must have served for its cliff to last: what comes first may be a test."""


def acceptance_below_reference(look: Look) -> Sight | None:
    """A cliff that is learned as normal by now, or days below the first ones of this draft."""
    reference = look.reference
    if reference is None:
        return None
    message = _lasting_cliff(look, reference) or _days_below(reference)
    same = _what_is_the_same(reference.pair, look.snapshot.pair)
    since = f"Since {rfc3339(reference.began_at_s)}, {same}." if same else ""
    return Sight(f"{message} {since}".rstrip()) if message else None


def _lasting_cliff(look: Look, reference: Reference) -> str:
    cliff, level = look.acceptance.cliff, look.acceptance.level
    if cliff is None or level is None or not reference.began_at_s:
        return ""
    lasts = Reason.ACCEPTANCE_BELOW_REFERENCE in look.standing
    is_over = cliff.restored_s >= RESTORED_S if lasts else cliff.is_over_at(level)
    is_new = cliff.since_s - reference.began_at_s < LASTS_AFTER_S
    was_as_low = not lasts and level >= BELOW_SHARE * reference.lowest
    if is_over or is_new or was_as_low:
        return ""
    return (
        f"Since {rfc3339(cliff.since_s)} the first draft token is accepted {level:.0%} of the "
        f"time; before, it was {cliff.normal:.0%} or more nine tenths of the time."
    )


def _days_below(reference: Reference) -> str:
    if not reference.is_below:
        return ""
    last, first = first_position(reference.last), first_position(reference.first)
    return (
        f"Over the last day with drafts, the first draft token was accepted {last:.0%} of the "
        f"time; on the first day of this draft it was {first:.0%}, and on the lowest day of its "
        f"first week {reference.lowest:.0%}."
    )


def _what_is_the_same(before: ServedPair, now: ServedPair | None) -> str:
    """What can be ruled out, or cannot; empty: it is not known."""
    if now is None:
        return ""
    models = (
        "target and draft are the same commits"
        if before.commits and now.commits
        else "target and draft have the same names, but no commits that fix their weights"
    )
    engine = "are the same" if before.engine == now.engine else "have changed"
    return f"{models}, and the engines' image and arguments {engine}"
