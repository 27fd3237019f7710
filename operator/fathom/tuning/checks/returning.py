"""The bound on loss: behind the user's own depth over an hour, the tuner returns to it."""

from dataclasses import replace
from typing import Final

from fathom.api.conditions import Reason
from fathom.engine.depth import summary
from fathom.tuning.interface import Action, TuningDecision
from fathom.tuning.policy.ledger import HOUR_S, MOST_BEHIND_LOSS, Ledger
from fathom.tuning.situation import Situation, clamped

REST_S: Final = HOUR_S
"""How long the user's depth is kept after a return: also where the traffic changes. Text that turns
each minute is one of the ways to lose."""


def return_to_tokens(given: Situation) -> TuningDecision | None:
    """Give the user's own depth back, everywhere, if an hour with the tuner lost by it."""
    ledger = given.state.ledger
    if not ledger.is_behind:
        return None
    tokens = clamped(given.settings.tokens, given.settings)
    after = given.with_state(
        replace(
            given.state,
            ledger=Ledger(),
            probe=None,
            trial=None,
            returned_at_s=given.now_s,
        )
    )
    document = after.next_document(dict.fromkeys(given.policy.depths, tokens), None)
    return after.act(
        Action.RETURN,
        Reason.RETURNED,
        f"Returns to your own depth, {tokens}, from {summary(given.document.schedule)}: over the "
        f"last hour the tuner was {-(ledger.gain or 0.0):.1%} behind it, more than the "
        f"{MOST_BEHIND_LOSS:.1%} allowed. It tunes again in {REST_S / 60:.0f} minutes.",
        document,
        notable=True,
    )


def rest_after_return(given: Situation) -> TuningDecision | None:
    """After a return nothing is tried for a while."""
    returned_at_s = given.state.returned_at_s
    if not returned_at_s or given.now_s - returned_at_s >= REST_S:
        return None
    return given.hold(
        Reason.RETURNED,
        f"Keeps your own depth, {given.settings.tokens}, since the tuner was behind it.",
    )
