"""From two looks at each pod to the estimates: what was learned since the last decision."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType
from typing import Final

from fathom.engine.report import ServedPair
from fathom.measurement.counters import PodCounters
from fathom.measurement.deltas import PodDelta, delta, pooled_cells, pooled_drafts
from fathom.tuning.alarms.alarm import is_cliff, is_low, is_mismatch, is_normal, without_low
from fathom.tuning.estimate import step_filter
from fathom.tuning.estimate.acceptance_by_context import Contexts
from fathom.tuning.estimate.acceptance_by_position import Survival
from fathom.tuning.estimate.acceptance_length import trials
from fathom.tuning.estimate.reference import Reference
from fathom.tuning.estimate.settled import held, settled
from fathom.tuning.estimate.step_time import StepTimes
from fathom.tuning.estimate.yields import Yields
from fathom.tuning.interface import Settings, TunedPod, TuningSnapshot
from fathom.tuning.learned_state import TuningState

SETTLED_FACTOR: Final = 2.0
"""Times that a request is in an engine, on average, after which another depth has its own mix."""
PROBE_LOOK_S: Final = 2.0
"""Shortest window while a probe runs."""
SENTINEL_LOOK_S: Final = 1.0
"""The same for a sentinel: it needs few steps, and the less it costs, the more often it may be."""
SHORTEST_WINDOWS: Final = 0.8
"""Share of `windowSeconds`: resyncs must not cut windows into pieces that say nothing."""
LONGEST_WINDOWS: Final = 10.0
"""What was counted over a longer gap does not describe the present, …"""
LONGEST_S: Final = 300.0
"""… if it is longer than this, too: Prometheus may scrape seldom."""


@dataclass(frozen=True, slots=True)
class Learned:
    """The state with all that was learned, and the deltas it was learned from."""

    state: TuningState
    deltas: tuple[PodDelta, ...]


def learn(snapshot: TuningSnapshot) -> Learned:
    """Take in what the pods counted since they were last looked at. Idempotent."""
    state = _with_reference(snapshot.state, snapshot.pair, snapshot.new_reference)
    window = snapshot.settings.window_seconds
    least = SHORTEST_WINDOWS * window
    if state.probe is not None:
        least = SENTINEL_LOOK_S if state.probe.sentinel else PROBE_LOOK_S
    longest = max(LONGEST_WINDOWS * window, LONGEST_S)
    looks: dict[str, PodCounters] = {}
    whole: list[PodDelta] = []
    for pod in (*snapshot.pods, *snapshot.apart):
        look, moved = _look(pod, state.looks.get(pod.name), least)
        if look is not None:
            looks[pod.name] = look
        if moved is not None and moved.seconds <= longest:
            whole.append(moved)
    apart = {pod.name for pod in snapshot.apart}
    deltas = [each for each in whole if each.pod not in apart]
    state = replace(state, looks=MappingProxyType(looks))
    if whole:
        to_s = max(each.to_s for each in whole)
        window_s = max(each.seconds for each in whole)
        state = replace(state, load=state.load.updated(pooled_cells(whole), to_s, window_s))
    if not deltas:
        return Learned(state, ())
    at_s = max(each.to_s for each in deltas)
    cells = pooled_cells(deltas)
    state = replace(
        state,
        residence=state.residence.updated(deltas, at_s),
        held=tuple(each for each in held(deltas, state.held) if each.pod in looks),
    )
    state = _with_text(snapshot.settings, state, deltas, at_s)
    if not snapshot.settings.drafts_are_cut:
        state = _with_acceptance(state, whole, snapshot.pair)
    prompts = state.prompts.updated(deltas, at_s, window, snapshot.settings.max_batch)
    return Learned(
        state=replace(
            state,
            prompts=prompts,
            step_times=step_filter.updated(state.step_times, deltas, prompts),
            traffic=state.traffic.updated(cells, at_s, window),
            tail=state.tail.updated(deltas),
            stepped=_stepped(state.stepped, snapshot.pods, deltas),
        ),
        deltas=tuple(deltas),
    )


def _with_text(
    settings: Settings,
    state: TuningState,
    deltas: Sequence[PodDelta],
    at_s: float,
) -> TuningState:
    """What drafts are worth, by their positions or, where they are cut, by what came of them."""
    if settings.drafts_are_cut:
        before = state.yields or Yields()
        yields = before.updated(pooled_cells(deltas), at_s)
        # Other text is cut to other lengths, so that steps take as long as other ones.
        turned = yields.epoch != before.epoch
        return replace(
            state,
            survival=Survival(),
            contexts=Contexts(),
            yields=yields,
            step_times=StepTimes() if turned else state.step_times,
        )
    return replace(
        state,
        yields=None,
        contexts=state.contexts.updated(deltas, at_s),
        survival=state.survival.updated(
            trials(pooled_drafts(deltas)),
            at_s,
            normal=is_normal(state.watches),
            settled=settled(deltas, state.held, settling_s(state)),
        ),
    )


def _with_acceptance(
    state: TuningState, deltas: Sequence[PodDelta], pair: ServedPair | None
) -> TuningState:
    """As alarms see it, which hold each pod against all others, however they are tuned."""
    reference = state.reference
    acceptance = state.acceptance.updated(
        deltas,
        state.looks,
        normal=is_normal(state.watches),
        alarmed=is_cliff(state.watches),
        lasts=is_mismatch(state.watches),
    )
    if reference is not None and pair is not None:
        from_s = min(each.from_s for each in deltas)
        to_s = max(each.to_s for each in deltas)
        window = trials(pooled_drafts(deltas))
        reference = reference.updated(window, from_s, to_s, alarmed=is_low(state.watches))
    return replace(state, acceptance=acceptance, reference=reference)


def _with_reference(state: TuningState, pair: ServedPair | None, asked: str) -> TuningState:
    """With the reference of what is served: a new one of another pair, or where a person asks."""
    before, acceptance = state.reference, state.acceptance
    if pair is None:
        return state
    if before is None:
        return replace(state, reference=Reference(pair=pair, asked=asked))
    is_asked = asked not in {"", before.asked}
    if pair.has_models_of(before.pair) and not is_asked:
        return state
    # Of another draft, what the last one did still tells whether it is worse. But if a person asks,
    # then what is seen now is what is normal.
    levels = () if is_asked else acceptance.levels
    return replace(
        state,
        reference=Reference(pair=pair, asked=asked or before.asked),
        acceptance=replace(acceptance, levels=levels, cliff=None),
        watches=without_low(state.watches),
    )


def settling_s(state: TuningState) -> float:
    """Seconds in which the mix of requests settles to another depth; infinite: not known."""
    residence_s = state.residence.seconds
    return inf if residence_s is None else SETTLED_FACTOR * residence_s


def _look(
    pod: TunedPod, before: PodCounters | None, least_s: float
) -> tuple[PodCounters | None, PodDelta | None]:
    """The look to measure from next time, and what was counted since the one before."""
    if pod.counters is None:
        return before, None
    if before is None:
        return pod.counters, None
    if pod.counters.at_s - before.at_s < least_s:
        return before, None
    return pod.counters, delta(before, pod.counters)


def _stepped(
    before: Iterable[tuple[str, float]], pods: Iterable[TunedPod], deltas: Iterable[PodDelta]
) -> tuple[tuple[str, float], ...]:
    known = {pod.name for pod in pods}
    stepped = {pod: at_s for pod, at_s in before if pod in known}
    stepped.update({each.pod: each.from_s for each in deltas if each.steps > 0})
    return tuple(sorted(stepped.items()))
