"""Pods whose requests have other text are a cohort: other depths are best for them.

Other text is seen in the share of first drafts that are accepted, over that of the other pods in
the same windows. Pods that are probed or pinned are left out: by itself, the mix of requests in a
batch follows the depth (`estimate.settled`).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from math import log, sqrt
from typing import Final

from fathom.engine.depth import Schedule
from fathom.tuning.cohorts.by_device import MOST_COHORTS
from fathom.tuning.estimate.acceptance import POD_HALF_LIFE_S, PodAcceptance
from fathom.tuning.interface import TunedPod
from fathom.tuning.state import Cohort, Misplaced, TuningState

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
        cohorts=(*cohorts, Cohort("", leaving, schedule, theirs)),
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
            "",
            0.0,
            sum(each.drafts for each in found),
            sum(each.expected for each in found),
            max(_LEAST_ACCEPTED, sum(each.accepted for each in found)),
            0.0,
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
