"""Pods on another kind of GPU are a cohort: their steps take other times. Their engines say so."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from fathom.engine.depth import Schedule
from fathom.tuning.interface import TunedPod
from fathom.tuning.state import Cohort, TuningState

MOST_COHORTS: Final = 3
"""Beside the rest: the state must fit into a ConfigMap. Further ones are tuned with the rest."""


def by_device(
    state: TuningState, schedule: Schedule, pods: tuple[TunedPod, ...]
) -> tuple[TuningState, Schedule]:
    """The state with a cohort for each kind of GPU but that of the rest; and the rest's schedule.

    Args:
        state: of the fleet.
        schedule: of the rest.
        pods: all there are.
    """
    devices = {pod.name: _device(pod, state) for pod in pods}
    told = [each for each in devices.values() if each]
    apart = {pod for each in state.cohorts for pod in each.pods}
    # As long as of one that is not apart nothing is known, it may be on the rest's.
    known = not state.device or all(device or pod in apart for pod, device in devices.items())
    if told and known and state.device not in told:
        state, schedule = _moved(state, schedule, Counter(told).most_common(1)[0][0])
    new = sorted({*told} - {state.device, *(each.device for each in state.cohorts)})
    cohorts = [
        replace(each, pods=_pods(each, devices, state.device))
        for each in (*state.cohorts, *(Cohort(each, (), schedule, _fresh(state)) for each in new))
    ]
    # What is known of a GPU without pods is kept while there is room: such pods may come again.
    cohorts.sort(key=lambda each: not each.pods)
    kept = [each for each in cohorts if each.pods or each.device][:MOST_COHORTS]
    return replace(state, cohorts=tuple(kept)), schedule


def _device(pod: TunedPod, state: TuningState) -> str:
    """GPU of a pod as of when it could last be read; empty: it does not tell."""
    counters = pod.counters or state.looks.get(pod.name)
    return counters.device if counters is not None else ""


def _pods(cohort: Cohort, devices: Mapping[str, str], common: str) -> tuple[str, ...]:
    """Those on its device, and of those that it had the ones that are not known to be elsewhere."""
    return tuple(
        pod
        for pod, device in devices.items()
        if (device and device == cohort.device)
        or (pod in cohort.pods and device in {"", cohort.device or common})
    )


def _moved(state: TuningState, schedule: Schedule, device: str) -> tuple[TuningState, Schedule]:
    """The rest is on this device from now on: no pod is left on the one that it was on."""
    if not state.device:
        return replace(state, device=device), schedule
    left = Cohort(state.device, (), schedule, replace(state, cohorts=(), misplaced=()))
    found = next((each for each in state.cohorts if each.device == device), None)
    others = tuple(each for each in state.cohorts if each is not found)
    now = replace(
        _fresh(state) if found is None else found.state,
        device=device,
        cohorts=(*others, left),
        # What is the whole fleet's.
        looks=state.looks,
        acceptance=state.acceptance,
        watches=state.watches,
        load=state.load,
        gained=state.gained,
        generation=state.generation,
    )
    return now, schedule if found is None else found.schedule


def _fresh(state: TuningState) -> TuningState:
    """Another GPU, under the same traffic."""
    return TuningState(survival=state.survival, yields=state.yields, tokens=state.tokens)
