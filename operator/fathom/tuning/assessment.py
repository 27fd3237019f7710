"""What is learned is held against the depths in force: what they are worth, and how the pods do."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from fathom.engine.depth import DepthDocument, depths_of, nearest_depth
from fathom.measurement.deltas import PodDelta, pooled_cells
from fathom.tuning.alarms.table import watched
from fathom.tuning.context import Situation, bounds_of, pins
from fathom.tuning.convergence import convergence
from fathom.tuning.estimate.measured import measure
from fathom.tuning.estimate.text_spread import TextSpread
from fathom.tuning.estimate.traffic import steps_in
from fathom.tuning.gains import Gained
from fathom.tuning.interface import Settings, TunedPod, TuningSnapshot
from fathom.tuning.learned_state import Probe, Trial, TuningState
from fathom.tuning.learning import Learned, learn
from fathom.tuning.policy.ledger import Ledger
from fathom.tuning.policy.policy import Policy
from fathom.tuning.policy.slo import Slo, mean_slope
from fathom.tuning.policy.value import NO_GAIN, Evidence, Gain


def _slo(settings: Settings, state: TuningState) -> Slo | None:
    wanted = settings.tpot_slo_seconds
    if not settings.objective.keeps_slo or wanted is None:
        return None
    return Slo(wanted, state.tail, state.by_text)


def _by_text(state: TuningState, policy: Policy) -> TextSpread:
    """With one more window, where there is an SLO and requests were finished."""
    if policy.slo is None:
        return state.by_text
    spread = state.tail.slow_over_mean()
    slope = mean_slope(policy.evidence, state.tail)
    if spread is None or slope is None:
        return state.by_text
    return state.by_text.updated(slope, spread, policy.evidence.now_s)


def _entered(
    state: TuningState, deltas: tuple[PodDelta, ...], policy: Policy, settings: Settings
) -> Ledger:
    """The ledger after this window; another `tokens` opens a new one."""
    ledger = state.ledger if state.tokens in {None, settings.tokens} else Ledger()
    at_s = max((each.to_s for each in deltas), default=0.0)
    return ledger.updated(deltas, policy.gain_over_tokens, at_s)


def _gained(state: TuningState, deltas: tuple[PodDelta, ...], policy: Policy, gpus: int) -> Gained:
    """What was gained after this window, by pods of which it is known that they are alike."""
    tokens, evidence = policy.clamped(policy.bounds.tokens), policy.evidence

    def gain_over_tokens(pod: str, bucket: int, depth: int) -> Gain | None:
        if depth == tokens:
            return NO_GAIN
        known = evidence.tells_gain and evidence.step_times.is_known(pod)
        return evidence.gain(bucket, depth, tokens) if known else None

    return state.gained.updated(deltas, gain_over_tokens, gpus)


def _deepest(settings: Settings, state: TuningState, in_force: Iterable[int]) -> int:
    """The deepest that anything is asked about: bounds may have been wider when it was begun."""
    trial = state.trial.changes if state.trial else ()
    probe = state.probe.depths if state.probe else ()
    return max(
        settings.max_tokens,
        settings.tokens,
        *in_force,
        *(cell.depth for cell in state.step_times.cells),
        *(each.depth for each in state.tail.ran),
        *(max(change.start, change.to) for change in trial),
        *(depth for _, depth in probe),
    )


def assess(snapshot: TuningSnapshot, document: DepthDocument) -> Situation:
    """Take in what was counted since the last decision, and see where that leaves us."""
    return judge(snapshot, document, learn(snapshot))


def judge(snapshot: TuningSnapshot, document: DepthDocument, learned: Learned) -> Situation:
    """What follows from what was learned, for the depths in force.

    Args:
        snapshot: all that may be known.
        document: the depths in force.
        learned: the estimates, with what was counted since the last decision.
    """
    settings, state = snapshot.settings, learned.state
    bounds = bounds_of(settings, snapshot.pods, snapshot.state.prompts.token_budget)
    depths = depths_of(document.schedule, settings.max_batch)
    policy = Policy(
        evidence=Evidence(
            text=state.text,
            step_times=state.step_times,
            traffic=state.traffic,
            now_s=snapshot.now_s,
            deepest=_deepest(settings, state, depths.values()),
            prompts=state.prompts,
        ),
        depths={
            bucket: nearest_depth(depth, bounds.at(bucket)) for bucket, depth in depths.items()
        },
        bounds=bounds,
        visits=state.visits,
        slo=_slo(settings, state),
    )
    measured = measure(
        learned.deltas,
        snapshot.now_s,
        policy.gain_over(settings.tokens),
        by_position=not settings.drafts_are_cut,
    )
    state = replace(
        state,
        watches=watched(
            state.watches,
            snapshot=snapshot,
            document=document,
            deltas=learned.deltas,
            policy=policy,
            acceptance=state.acceptance,
            reference=state.reference,
        ),
        ledger=_entered(state, learned.deltas, policy, settings),
        gained=_gained(state, learned.deltas, policy, snapshot.gpus),
        by_text=_by_text(state, policy) if learned.deltas else state.by_text,
        measured=measured or state.measured,
        generation=max(state.generation, document.generation),
        probe=_progress(state.probe, learned.deltas, snapshot.pods, document),
        trial=_trial_progress(state.trial, learned.deltas, policy.depths),
    )
    found = convergence(snapshot, document, state)
    return Situation(
        snapshot=snapshot,
        document=document,
        state=replace(state, disobeying=found.disobeying, behind=found.behind),
        deltas=learned.deltas,
        policy=policy,
        pins=pins(settings, snapshot.pods),
        convergence=found,
    )


def _progress(
    probe: Probe | None,
    deltas: tuple[PodDelta, ...],
    pods: Iterable[TunedPod],
    document: DepthDocument,
) -> Probe | None:
    """The probe with what was seen of it; None if the document does not hold it."""
    if probe is None or probe.pod not in document.pods:
        return None
    counters = next((pod.counters for pod in pods if pod.name == probe.pod), None)
    in_force_at_s = probe.in_force_at_s
    if not in_force_at_s and counters and counters.runs(document):
        in_force_at_s = counters.at_s
    own = [each for each in deltas if each.pod == probe.pod]
    steps = steps_in(pooled_cells(own), probe.depths)
    return replace(
        probe,
        in_force_at_s=in_force_at_s,
        steps=probe.steps + steps,
        looks=probe.looks + (1 if steps and in_force_at_s else 0),
    )


def _trial_progress(
    trial: Trial | None, deltas: tuple[PodDelta, ...], depths: Mapping[int, int]
) -> Trial | None:
    """The trial with what was seen of it; None if the move is not in the document."""
    if trial is None or any(depths.get(each.bucket) != each.to for each in trial.changes):
        return None
    pairs = [(each.bucket, each.to) for each in trial.changes]
    return replace(trial, steps=trial.steps + steps_in(pooled_cells(deltas), pairs))


def recalled(
    state: TuningState, settings: Settings, document: DepthDocument | None, now_s: float
) -> TuningSnapshot:
    """A snapshot in which nothing new was seen."""
    return TuningSnapshot(
        now_s=now_s,
        settings=settings,
        pods=(),
        document=document,
        document_written_at_s=now_s,
        live_refusal=None,
        state=state,
    )
