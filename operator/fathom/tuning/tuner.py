"""The tuner: `decide(snapshot) -> decision`. Pure; the caller owns the clock and all I/O.

A decision is the first answer of an ordered chain of checks; each either answers or passes on:

1. take in what was counted since the last look (`observe`);
2. `orders`: the mode, the spec's bounds, a person's pins;
3. `readiness`: ready pods, fresh metrics, engines that obey, traffic;
4. `probing`: wait for the probe that runs;
5. `moving`: judge the last move; take it back if it lost;
6. `moving`: a depth is better beyond doubt: move;
7. `probing`: a depth may be better: try it on one pod;
8. hold, and say why.

Two kinds of knowledge decide: `survival`, which belongs to the traffic and is forgotten when the
traffic changes, and `step_time`, which belongs to the hardware and is kept. So a class of requests
that returns, or a new one, is answered with what the hardware was measured to do.
"""

from collections.abc import Callable
from typing import Final

from fathom.api.spec import TuningMode
from fathom.tuning.checks import advice, moving, orders, probing, readiness, returning
from fathom.tuning.interface import TuningDecision, TuningSnapshot
from fathom.tuning.situation import Situation, assess

_Check = Callable[[Situation], TuningDecision | None]

_FIRST: Final[tuple[_Check, ...]] = (
    orders.cannot_change_live,
    orders.orders,
    readiness.no_pods,
    readiness.no_metrics,
    readiness.not_obeyed,
    readiness.no_traffic,
    advice.advise,
)
_AFTER_PROBE: Final[tuple[_Check, ...]] = (
    moving.move,
    probing.start_probe,
    probing.clear_override,
)
_THEN: Final[tuple[_Check, ...]] = (
    readiness.not_in_force_yet,
    returning.return_to_tokens,
    returning.rest_after_return,
    moving.judge_move,
    moving.move,
    probing.start_probe,
)


def decide(snapshot: TuningSnapshot) -> TuningDecision:
    """What to do about depth, why, and when to ask again.

    Idempotent, and harmless when called early. A decision that could not be carried out is simply
    made again: what is in force is read from the snapshot's document, never assumed.
    """
    if snapshot.settings.mode is TuningMode.STATIC:
        return orders.static(snapshot)
    if snapshot.document is None and snapshot.live_refusal is None:
        return orders.start(snapshot)
    given = assess(snapshot, snapshot.document or orders.unwritten(snapshot))
    answer = _first_answer(_FIRST, given)
    if answer is None and given.state.probe is not None:
        answer, given = probing.continue_probe(given, given.state.probe)
        return answer or _first_answer(_AFTER_PROBE, given) or given.stay()
    return answer or _first_answer(_THEN, given) or given.stay()


def _first_answer(checks: tuple[_Check, ...], given: Situation) -> TuningDecision | None:
    return next((answer for check in checks if (answer := check(given)) is not None), None)
