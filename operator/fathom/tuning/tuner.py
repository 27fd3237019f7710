"""The tuner: `decide(snapshot) -> decision`. Pure; the caller owns the clock and all I/O.

What was counted since the last decision is taken in (`learning`), and held against the depths in
force (`judging`). Then a chain of checks is asked, in this order. Each answers, or passes on; the
first answer is the decision:

1. `orders`: the engine has no live depth; mode Advise, the spec's bounds, a person's pins;
2. `readiness`: ready pods, fresh metrics, engines that do as the document says; a person's pause
   (`orders`); traffic;
3. `advice`: in mode Advise, say what Auto would aim at;
4. `probing`: wait for the probe that runs;
5. `readiness`: wait until the last change is in force (*);
6. `returning`: behind the user's own depth: return to it, and rest (*);
7. `moving`: judge the last move; take it back if it lost (*);
8. `moving`: give buckets one depth between which batches go to and fro; a depth is better beyond
   doubt: move;
9. `probing`: a depth may be better, or a look is due: try it on one pod, or say what it waits for;
10. `probing`: the pod of a probe that has just ended gets its depth back.

If none answers, depth stays, and the decision says why. (*) Not where a probe has just ended.

Pods on another kind of GPU are a cohort of their own, and so are those whose requests have other
text for good (`cohorts`). The chain is asked once for the rest and once for each cohort, and one
decision is made of all.

Two kinds of knowledge decide: `estimate.acceptance_by_position`, which belongs to the traffic and
is forgotten when the traffic changes, and `estimate.step_time`, which belongs to the hardware and
is kept. So a class of requests that returns, or a new one, is answered with what the hardware was
measured to do.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from fathom.api.choices import TuningMode
from fathom.engine.depth import DepthDocument
from fathom.tuning import cohorts, draft_trial, sentences
from fathom.tuning.assessment import assess
from fathom.tuning.checks import moves, orders, probing, readiness
from fathom.tuning.checks.probing import NoProbe, ProbeChoice, continue_probe, next_probe
from fathom.tuning.cohort_decision import Decided, changes, together
from fathom.tuning.cohorts import by_device, by_text
from fathom.tuning.context import Situation
from fathom.tuning.gains import Gained
from fathom.tuning.interface import Settings, TunedPod, TuningDecision, TuningSnapshot
from fathom.tuning.learned_state import Cohort

_Check = Callable[[Situation], TuningDecision | Situation | None]
"""A decision is the answer; a situation is passed on instead of the one before; None: nothing."""


_CHAIN: Final[tuple[_Check, ...]] = (
    orders.cannot_change_live,
    orders.orders,
    readiness.no_pods,
    readiness.no_metrics,
    readiness.not_obeyed,
    orders.paused,
    readiness.no_traffic,
    orders.advise,
    probing.wait_for_probe,
    readiness.not_in_force_yet,
    moves.return_to_tokens,
    moves.rest_after_return,
    moves.judge_move,
    moves.join,
    moves.move,
    probing.start_probe,
    probing.clear_override,
)
_NOT_AFTER_A_PROBE: Final = frozenset(
    {
        readiness.not_in_force_yet,
        moves.return_to_tokens,
        moves.rest_after_return,
        moves.judge_move,
    }
)
"""A pod whose probe has just ended must not keep a depth that nobody watches any more."""


def decide(snapshot: TuningSnapshot) -> TuningDecision:
    """What to do about depth, why, and when to ask again.

    Idempotent, and harmless when called early. A decision that could not be carried out is simply
    made again: what is in force is read from the snapshot's document, never assumed.
    """
    found, tokens = snapshot.document, orders.own_depth(snapshot.settings)
    if found is not None and found.tokens != tokens:
        # No new generation: nothing that is in force changes with it.
        snapshot = replace(snapshot, document=replace(found, tokens=tokens))
    is_static = snapshot.settings.mode is TuningMode.STATIC
    whole, snapshot = snapshot, replace(snapshot, pods=draft_trial.others(snapshot))
    if snapshot.read and (is_static or snapshot.live_refusal is not None):
        document = orders.at_rest(snapshot)
        if document is not snapshot.document:
            return orders.rest(snapshot, document)
    if is_static:
        return orders.static(snapshot)
    if snapshot.live_refusal is not None:
        return _of_alike(snapshot, snapshot.document or orders.unwritten(snapshot))
    if snapshot.document is None:
        return orders.start(snapshot)
    return _of_all(whole, snapshot.pods, snapshot.document)


def _of_all(
    snapshot: TuningSnapshot, pods: tuple[TunedPod, ...], document: DepthDocument
) -> TuningDecision:
    """Pods that are unlike the rest are decided for apart.

    Args:
        snapshot: of all pods.
        pods: those of them that try no other draft.
        document: in force.
    """
    before = snapshot.state.cohorts
    trial = draft_trial.trial_of(snapshot)
    state, schedule = draft_trial.adopted(snapshot.state, document.schedule, snapshot.adopted_draft)
    state = replace(state, cohorts=tuple(each for each in state.cohorts if not each.draft))
    state, schedule = by_device(state, schedule, pods)
    if not snapshot.paused:
        state = by_text(state, schedule, pods, snapshot.now_s)
    if trial is not None:
        state = replace(state, cohorts=(*state.cohorts, trial))
    if not (before or state.cohorts):
        return _of_alike(replace(snapshot, state=state), document)
    rest = _of_alike(*cohorts.rest(snapshot, document, state, schedule))
    gained, kept, apart = rest.state.gained, list[Cohort](), list[Decided]()
    for cohort in state.cohorts:
        if not cohort.pods:
            kept.append(cohort)
            continue
        given = Gained() if cohort.draft else gained
        decision = _of_alike(*cohorts.alone(snapshot, document, cohort, given))
        its = replace(decision.state, gained=Gained())
        after = replace(cohort, schedule=decision.document.schedule, state=its)
        if cohort.draft:
            after = replace(after, settled=draft_trial.has_settled(cohort, decision))
        else:
            gained = decision.state.gained
        kept.append(after)
        apart.append((cohort, decision))
    rest = replace(rest, state=replace(rest.state, cohorts=tuple(kept), gained=gained))
    news = changes(before, state.cohorts, (pod.name for pod in snapshot.pods))
    unnamed = {pod.name for pod in snapshot.pods if not pod.named}
    newest = snapshot.state.generation
    return together(document, newest, rest, apart, news=news, unnamed=unnamed)


def _of_alike(snapshot: TuningSnapshot, document: DepthDocument) -> TuningDecision:
    given = assess(snapshot, document)
    for check in _CHAIN:
        if given.probed is not None and check in _NOT_AFTER_A_PROBE:
            continue
        match check(given):
            case TuningDecision() as answer:
                return answer
            case Situation() as after:
                given = after
    return given.stay()


def what_comes_next(given: Situation, pods: int) -> str:
    """What `decide` does with this state, in its order, as far as pods have no say in it."""
    probe = given.state.probe
    if probe is not None:
        waits, given = continue_probe(given, probe)
        if waits is not None:
            return f"{probe.pod} is trying another depth at this moment."
    elif returns := moves.return_to_tokens(given) or moves.rest_after_return(given):
        return returns.message
    else:
        match moves.judge_move(given):
            case TuningDecision() as taken_back:
                return taken_back.message
            case Situation() as judged:
                given = judged
    if given.policy.joined() and (joins := moves.join(given)):
        return joins.message
    if due := given.policy.moves():
        return f"Moves {sentences.moves(due, given.settings.max_batch)}."
    return _probe(next_probe(given, pods), given.settings)


def _probe(choice: ProbeChoice | NoProbe, settings: Settings) -> str:
    if isinstance(choice, NoProbe) and not choice.later:
        return f"Nothing: no probe {choice.why}."
    if isinstance(choice, NoProbe):
        what = sentences.tries(choice.later, settings.max_batch)
        return f"Nothing {choice.why}. Then, as things are, one pod tries {what}."
    what = sentences.tries(choice.options, settings.max_batch)
    if settings.mode is TuningMode.ADVISE:
        return f"Nothing, since mode Advise never tries; Auto would probe {what}."
    if not settings.probing:
        return f"Nothing, since probing is disabled; else {what}."
    return f"One pod tries {what}."
