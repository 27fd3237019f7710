"""Pods that differ beyond doubt, by device or by text, and what is known of them alone. Pure.

Other text is seen in the share of first drafts that are accepted, over that of the other pods in
the same windows. Pods that are probed or pinned are left out: by itself, the mix of requests in a
batch follows the depth (`estimate.settled`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import log, sqrt
from typing import Final

from fathom.engine.depth import DepthDocument, Schedule
from fathom.tuning.estimate.acceptance_changes import POD_HALF_LIFE_S, PodAcceptance
from fathom.tuning.gains import Gained
from fathom.tuning.interface import TunedPod, TuningSnapshot
from fathom.tuning.learned_state import Cohort, Misplaced, TuningState

MOST_COHORTS: Final = 3
"""Besides the rest: the state must fit into a ConfigMap. Further ones are tuned with the rest."""
OTHER_TEXT_FACTOR: Final = 1.2
"""Ratio between the acceptance of a pod's first drafts and that of the others, or its inverse, from
which on its text is another one."""
OTHER_TEXT_Z: Final = 4.0
"""Standard errors by which that ratio must differ from 1."""
OTHER_TEXT_S: Final = 600.0
"""How long it must do so: requests that stay for minutes make a pod unlike others for minutes."""
_LEAST_ACCEPTED: Final = 0.5
"""Drafts that count as accepted where none was: a ratio to nothing is none."""
SAME_TEXT_FACTOR: Final = 1.1
"""Ratio of acceptance, or its inverse, up to which two texts are the same."""


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
        for each in (
            *state.cohorts,
            *(Cohort(device=each, pods=(), schedule=schedule, state=_fresh(state)) for each in new),
        )
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
    left = Cohort(
        device=state.device,
        pods=(),
        schedule=schedule,
        state=replace(state, cohorts=(), misplaced=(), reference=None),
    )
    found = next((each for each in state.cohorts if each.device == device), None)
    others = tuple(each for each in state.cohorts if each is not found)
    now = replace(
        _fresh(state) if found is None else found.state,
        device=device,
        cohorts=(*others, left),
        # What is the whole fleet's.
        looks=state.looks,
        acceptance=state.acceptance,
        reference=state.reference,
        watches=state.watches,
        load=state.load,
        gained=state.gained,
        generation=state.generation,
    )
    return now, schedule if found is None else found.schedule


def _fresh(state: TuningState) -> TuningState:
    """Another GPU, under the same traffic."""
    return TuningState(survival=state.survival, yields=state.yields, tokens=state.tokens)


def by_text(
    state: TuningState, schedule: Schedule, pods: tuple[TunedPod, ...], now_s: float
) -> TuningState:
    """The state with cohorts of pods whose text differs for good, and without those that are alike.

    Args:
        state: of the fleet, with its cohorts by device.
        schedule: of the rest.
        pods: all there are.
        now_s: Unix seconds.
    """
    elsewhere = {pod for each in state.cohorts for pod in each.pods}
    at_rest = {pod.name for pod in pods} - elsewhere
    if not at_rest:  # nothing is left that a text could be unlike
        return replace(state, cohorts=tuple(each for each in state.cohorts if each.device))
    held = {pod.name for pod in pods if pod.pinned_depth is not None}
    states = (state, *(each.state for each in state.cohorts))
    held |= {each.probe.pod for each in states if each.probe is not None}
    texts = _Texts.of(state, now_s, without=held)
    since_s = {each.pod: each.since_s for each in state.misplaced}
    # What is with the wrong pods: some of the rest, and some of cohorts that are like the rest.
    compared = texts.names & at_rest
    unlike = {pod for pod in compared if texts.differ([pod], compared - {pod})}
    like = {
        pod
        for each in state.cohorts
        if not each.device
        for pod in each.pods
        if texts.are_alike([pod], compared)
    }
    # Who cannot be compared now stays what it was.
    unlike |= held & since_s.keys() & at_rest
    like |= held & since_s.keys() & elsewhere
    found = tuple(Misplaced(pod, since_s.get(pod, now_s)) for pod in sorted(unlike | like))
    state = replace(state, misplaced=found)
    due = {each.pod for each in found if now_s - each.since_s >= OTHER_TEXT_S}
    if back := like & due:
        return _back(state, back)
    leaving = texts.most_unlike(unlike & due, compared)
    return _apart(state, schedule, leaving, texts) if leaving else state


def _back(state: TuningState, back: Collection[str]) -> TuningState:
    """With these pods in the rest again."""
    left = (
        replace(each, pods=tuple(pod for pod in each.pods if pod not in back))
        for each in state.cohorts
    )
    return replace(
        state,
        cohorts=tuple(each for each in left if each.pods or each.device),
        misplaced=tuple(each for each in state.misplaced if each.pod not in back),
    )


def _apart(
    state: TuningState, schedule: Schedule, leaving: tuple[str, ...], texts: "_Texts"
) -> TuningState:
    """With these pods in the cohort whose text is like theirs, or in a new one.

    The others are compared from the beginning, since what they are held against is another mean.
    """
    cohorts = list(state.cohorts)
    for at, each in enumerate(cohorts):
        if not each.device and texts.are_alike(leaving, each.pods):
            cohorts[at] = replace(each, pods=(*each.pods, *leaving))
            return replace(state, cohorts=tuple(cohorts), misplaced=())
    if len(cohorts) == MOST_COHORTS:
        cohorts = [each for each in cohorts if each.pods]
    if len(cohorts) == MOST_COHORTS:
        return state
    survival = state.survival.turned()
    theirs = TuningState(
        step_times=state.step_times.of(leaving),
        survival=survival,
        prompts=state.prompts,
        residence=state.residence,
        tokens=state.tokens,
    )
    return replace(
        state,
        cohorts=(*cohorts, Cohort(device="", pods=leaving, schedule=schedule, state=theirs)),
        misplaced=(),
        survival=survival,
    )


@dataclass(frozen=True, slots=True)
class _Texts:
    """The drafts of pods that can be compared now."""

    pods: tuple[PodAcceptance, ...]
    design_effect: float

    @classmethod
    def of(cls, state: TuningState, now_s: float, without: Collection[str]) -> "_Texts":
        known = (
            each
            for each in state.acceptance.pods
            if each.pod not in without and now_s - each.at_s <= POD_HALF_LIFE_S
        )
        return cls(tuple(known), state.survival.design_effect)

    @property
    def names(self) -> frozenset[str]:
        """Names of the pods."""
        return frozenset(each.pod for each in self.pods)

    def _compared(self, some: Iterable[str], others: Iterable[str]) -> tuple[float, float] | None:
        """Logarithm of the acceptance of some over that of others, and its error; None: unknown."""
        one, other = self._sum(some), self._sum(others)
        if not (one.expected and other.expected):
            return None
        ratio = one.accepted / one.expected * other.expected / other.accepted
        # As if both had one text: of what is never accepted the ratio alone would be all error.
        refused = (one.drafts + other.drafts) / (one.accepted + other.accepted) - 1
        scatter = max(0.0, refused) * (1 / one.drafts + 1 / other.drafts)
        return log(ratio), sqrt(self.design_effect * scatter)

    def _sum(self, pods: Iterable[str]) -> PodAcceptance:
        wanted = set(pods)
        found = [each for each in self.pods if each.pod in wanted]
        return PodAcceptance(
            pod="",
            started_at_s=0.0,
            drafts=sum(each.drafts for each in found),
            expected=sum(each.expected for each in found),
            accepted=max(_LEAST_ACCEPTED, sum(each.accepted for each in found)),
            at_s=0.0,
        )

    def differ(self, some: Iterable[str], others: Iterable[str]) -> bool:
        """Whether these have another text than those beyond doubt."""
        compared = self._compared(some, others)
        if compared is None:
            return False
        ratio, error = compared
        return abs(ratio) > max(log(OTHER_TEXT_FACTOR), OTHER_TEXT_Z * error)

    def are_alike(self, some: Iterable[str], others: Iterable[str]) -> bool:
        """Whether they have the same text, as far as is known of both."""
        compared = self._compared(some, others)
        return compared is not None and abs(compared[0]) < log(SAME_TEXT_FACTOR)

    def most_unlike(self, some: Collection[str], among: Collection[str]) -> tuple[str, ...]:
        """The one that differs most, and those whose text is like its; none if there are none."""
        apart: dict[str, float] = {}
        for pod in sorted(some):
            compared = self._compared([pod], {*among} - {pod})
            if compared is not None:
                apart[pod] = abs(compared[0])
        if not apart:
            return ()
        first = max(apart, key=apart.__getitem__)
        return tuple(pod for pod in apart if pod == first or self.are_alike([pod], [first]))


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
        # What another draft makes is held against nobody.
        apart=tuple(pod for pod in snapshot.pods if pod.name in apart and not pod.tries_draft),
        document=view,
        whole=document,
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
    return replace(snapshot, pods=pods, document=view, whole=document, state=state, pair=None), view


def _view(document: DepthDocument, schedule: Schedule, pods: Iterable[str]) -> DepthDocument:
    """The document as if it were for these alone.

    A pod that runs another schedule than its cohort's is put right when all are joined.
    """
    own = {pod: document.pods[pod] for pod in pods}
    ends = {pod: seconds for pod, seconds in document.ends.items() if pod in own}
    return replace(document, schedule=schedule, pods=own, ends=ends)
