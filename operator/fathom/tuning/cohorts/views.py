"""What the tuner may know of some pods alone."""

from collections.abc import Iterable
from dataclasses import replace

from fathom.engine.depth import DepthDocument, Schedule
from fathom.tuning.gained import Gained
from fathom.tuning.interface import TuningSnapshot
from fathom.tuning.state import Cohort, TuningState


def rest(
    snapshot: TuningSnapshot, document: DepthDocument, state: TuningState, schedule: Schedule
) -> tuple[TuningSnapshot, DepthDocument]:
    """The snapshot of the pods that are in no cohort, and of the fleet as a whole.

    Args:
        snapshot: of the fleet.
        document: in force.
        state: the fleet's, sorted into cohorts.
        schedule: of the rest.
    """
    before = {pod for each in snapshot.state.cohorts for pod in each.pods}
    apart = {pod for each in state.cohorts for pod in each.pods}
    view = _view(document, schedule, document.pods.keys() - apart - before)
    given = replace(
        snapshot,
        pods=tuple(pod for pod in snapshot.pods if pod.name not in apart),
        apart=tuple(pod for pod in snapshot.pods if pod.name in apart),
        document=view,
        state=replace(
            state,
            disobeying=tuple(pod for pod in state.disobeying if pod not in apart),
            behind=tuple(each for each in state.behind if each.pod not in apart),
        ),
    )
    return given, view


def alone(
    snapshot: TuningSnapshot, document: DepthDocument, cohort: Cohort, gained: Gained
) -> tuple[TuningSnapshot, DepthDocument]:
    """The snapshot of one cohort.

    Args:
        snapshot: of the fleet.
        document: in force.
        cohort: which.
        gained: by all so far: it goes on from there.
    """
    pods = tuple(pod for pod in snapshot.pods if pod.name in cohort.pods)
    held = {pod.name for pod in pods if pod.pinned_depth is not None}
    if cohort.state.probe is not None:
        held.add(cohort.state.probe.pod)
    view = _view(document, cohort.schedule, held & document.pods.keys())
    own, fleet = cohort.state, snapshot.state
    # Who did not obey when it was put apart does not obey yet.
    came = {pod for pod in fleet.disobeying if pod in cohort.pods} - {*own.disobeying}
    behind = (each for each in fleet.behind if each.pod in came)
    state = replace(
        own,
        gained=gained,
        disobeying=(*own.disobeying, *sorted(came)),
        behind=(*own.behind, *behind),
    )
    return replace(snapshot, pods=pods, document=view, state=state), view


def _view(document: DepthDocument, schedule: Schedule, pods: Iterable[str]) -> DepthDocument:
    """The document as if it were for these alone.

    A pod that runs another schedule than its cohort's is put right when all are joined.
    """
    return replace(document, schedule=schedule, pods={pod: document.pods[pod] for pod in pods})
