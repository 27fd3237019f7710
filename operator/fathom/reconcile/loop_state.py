"""What one loop remembers between two reconciles. Losing it costs a minute of measurements.

What an earlier release does not know of it, it passes over, and reads the rest anyway: what
was learned is worth a fleet's probes.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Generic, Self, TypeVar

from fathom.api import names
from fathom.api.status import (
    MeasuredStatus,
    ReportedStatus,
    RolloutStatus,
    SpeculativeDeploymentStatus,
    TuningStatus,
)
from fathom.cluster.kinds import Kind
from fathom.cluster.manifest import Manifest
from fathom.cluster.snapshot import Objects, TunedObjects
from fathom.engine.depth import DepthDocument
from fathom.fetch.state import FetchProgress
from fathom.manifests.config_maps import STATE_KEY
from fathom.measurement.counters import Unread, UnreadPods
from fathom.reconcile.checkpoint import ROLLOUT_KEY, Checkpoint, SeenGeneration
from fathom.reconcile.holding import FirstSeen
from fathom.reconcile.intent import Intent, JudgedBy, intent_of
from fathom.reconcile.last_status import Said
from fathom.reconcile.renderings import AsRendered, Renderings
from fathom.reconcile.specs import newest_of
from fathom.reconcile.write_retries import ApplyGuard
from fathom.rollout.canary_evidence import CanaryWindows
from fathom.rollout.rollout import Rollout, Stage, named_reason
from fathom.times import unix_seconds
from fathom.tuning.gains import Gained
from fathom.tuning.interface import TuningDecision, TuningSnapshot
from fathom.tuning.learned_state import TuningState

GAINED_KEY: Final = "gained.json"
STATE_KEYS: Final = frozenset({STATE_KEY, GAINED_KEY})
Asked = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class KeptState:
    """What was read."""

    state: TuningState
    lost: tuple[str, ...]
    """What is there and cannot be read, keys or parts of one: what it told is begun again."""


def state_data(state: TuningState) -> dict[str, str]:
    """As data of the ConfigMap."""
    return {STATE_KEY: state.to_json(), GAINED_KEY: state.gained.to_json()}


def kept_state(data: Mapping[str, str]) -> KeptState:
    """Read from the ConfigMap's data. Never raises; what is not there is fresh."""
    text = data.get(STATE_KEY)
    state, whole = (TuningState(), True) if text is None else TuningState.known_part(text)
    gained = Gained.read(data[GAINED_KEY]) if GAINED_KEY in data else Gained()
    found = {STATE_KEY: state, GAINED_KEY: gained}
    lost = [key for key, each in found.items() if each is None]
    if state is not None and not whole:
        lost.append(f"parts of {STATE_KEY}")
    return KeptState(replace(state or TuningState(), gained=gained or Gained()), tuple(lost))


class LastIntent:
    """The intent of the last pass, which is this one's as long as it is judged by the same."""

    def __init__(self) -> None:
        self._newest: object = None
        self._by: JudgedBy | None = None
        self._intent: Intent | None = None

    def of(self, resource: Manifest, by: JudgedBy) -> Intent:
        """As `intent_of`."""
        # One object for each document that is parsed, which holds all that is read of the resource.
        newest = newest_of(resource)
        if self._intent is None or self._newest is not newest or self._by != by:
            self._newest, self._by = newest, by
            self._intent = intent_of(resource, by)
        return self._intent


@dataclass(slots=True, kw_only=True)
class Memo:
    """Results of pure functions, for the same arguments again. Losing it costs some milliseconds.

    At rest none of these arguments moves, and each of these functions takes as long as to read
    three pods.
    """

    intent: LastIntent = field(default_factory=LastIntent)
    as_rendered: AsRendered = field(default_factory=AsRendered)
    renderings: Renderings = field(default_factory=Renderings)


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedState:
    """What the loop of a resource of either kind remembers."""

    uid: str
    """Uid of the resource; another resource of the same name starts afresh."""
    objects: TunedObjects | None
    """The last read of the cluster, good until something moves; None: read again."""
    tuner: TuningState
    tuning: TuningStatus
    measured: MeasuredStatus
    said: Said
    """In the status."""
    tuning_written_at_s: float
    document: DepthDocument | None = None
    """The last depth document that was in the cluster; None: this operator saw none."""
    document_written_at_s: float = 0.0
    generation: int = 0
    """The newest generation that was acted upon."""
    asked: Asked = ()
    """What annotations asked for then."""
    unread: UnreadPods = field(default_factory=UnreadPods)
    """Pods whose counters could not be read lately."""
    guard: ApplyGuard = field(default_factory=ApplyGuard)

    @classmethod
    def _recalled(
        cls, objects: TunedObjects, status: ReportedStatus, kept: KeptState, now_s: float
    ) -> Self:
        """Pick up from what an earlier operator left behind.

        Writes that can wait, wait for a minute: a restart has nothing urgent to say.
        """
        never = float("-inf")
        return cls(
            uid=objects.metadata.uid,
            objects=objects,
            tuner=kept.state,
            tuning=status.tuning,
            measured=status.measured,
            said=Said(at_s=now_s if objects.status else never),
            tuning_written_at_s=now_s if objects.tuning else never,
        )

    def is_edit(self, generation: int, annotations: Mapping[str, str]) -> bool:
        """Whether somebody waits for what a resource asks for now, by its spec or its annotations.

        Args:
            generation: of the resource now.
            annotations: of it now.
        """
        return generation > self.generation or _asked(annotations) != self.asked

    def acting_upon(self, generation: int, annotations: Mapping[str, str]) -> Self:
        """Acts upon this generation, and never again upon an older one."""
        return replace(self, generation=generation, asked=_asked(annotations))

    def with_unread(self, failures: Sequence[Unread], pods: Collection[str], now_s: float) -> Self:
        """Knows which of these pods cannot be read."""
        return replace(self, unread=self.unread.after(failures, pods, now_s))

    def _with_document(self, found: TunedObjects, now_s: float) -> Self:
        """Knows since when the document that was read is there."""
        if found.depth is None:
            return self
        before, state = self.document, replace(self, document=found.depth)
        if before is not None and before.generation == found.depth.generation:
            return state
        written_at_s = _written_at_s(found.depth, found.status, now_s)
        return replace(state, document_written_at_s=written_at_s)

    def document_before(self, status: ReportedStatus | None) -> DepthDocument | None:
        """What was in force before there was none in the cluster; None: nothing that is known."""
        if self.document is not None or status is None:
            return self.document
        reported = {"generation": status.depth.generation, "schedule": status.depth.schedule}
        return DepthDocument.from_json(json.dumps(reported))


State = TypeVar("State", bound=TunedState)
Decide = Callable[[TuningSnapshot], TuningDecision]


@dataclass(frozen=True, slots=True)
class TunerFailed(Generic[State]):
    """The tuner raised."""

    state: State
    error: Exception


def decided_by(
    decide: Decide, given: TuningSnapshot, state: State
) -> TuningDecision | TunerFailed[State]:
    """What the tuner says, whatever it raises."""
    try:
        return decide(given)
    except Exception as error:  # noqa: BLE001 - it is raised again, by who remembers the state
        # It may be what was learned that makes it fail, and then it would fail for good.
        fresh = TuningState(gained=state.tuner.gained)
        return TunerFailed(replace(state, tuner=fresh), error)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopState(TunedState):
    """What the loop of a SpeculativeDeployment remembers; all else is read at each reconcile."""

    objects: Objects | None
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    """What the tuning ConfigMap keeps, or is to keep: with what was seen since it was written."""
    first_seen: FirstSeen = field(default_factory=FirstSeen)
    windows: CanaryWindows = field(default_factory=CanaryWindows)
    warned_pins: frozenset[tuple[str, str]] = frozenset()
    fetch: FetchProgress = field(default_factory=FetchProgress)
    unlisted: frozenset[tuple[Kind, str]] = frozenset()
    """What to read by name: something that the list of our own does not show may bear it."""
    run_begun: str = ""
    """The training that this operator began and whose Job cannot be there; empty: none. An operator
    that is started finds none: whether the Job was made is not known then."""

    @classmethod
    def recalled(cls, objects: Objects, now_s: float) -> Self:
        """As an earlier operator left it."""
        status = objects.status or SpeculativeDeploymentStatus()
        kept = kept_state(objects.tuning)
        checkpoint = Checkpoint.of(objects.tuning)
        if ROLLOUT_KEY in checkpoint.lost or not objects.tuning:
            checkpoint = replace(checkpoint, rollout=_reported_rollout(status.rollout, objects))
        checkpoint = replace(checkpoint, lost=(*checkpoint.lost, *kept.lost))
        return replace(cls._recalled(objects, status, kept, now_s), checkpoint=checkpoint)

    def acting_upon(self, generation: int, annotations: Mapping[str, str]) -> Self:
        """Acts upon this generation, and never again upon an older one.

        What of its record could not be read was told by then.
        """
        state = TunedState.acting_upon(self, generation, annotations)
        seen = SeenGeneration(self.uid, generation)
        return replace(state, checkpoint=replace(self.checkpoint, seen=seen).without_lost())

    def with_read(self, objects: Objects, now_s: float) -> Self:
        """Knows what was read, and since when the document in it is there."""
        return replace(self._with_document(objects, now_s), objects=objects)


def _reported_rollout(reported: RolloutStatus | None, objects: Objects) -> Rollout | None:
    """The rollout that the status tells of, for when nothing else does: above all its veto.

    What was asked for before its record was lost was acted upon: only a new value asks again.
    """
    began_at_s = unix_seconds(reported.since) if reported else None
    if reported is None or began_at_s is None:
        return None
    try:
        stage = Stage(reported.stage)
    except ValueError:  # it is complete, or of another Fathom
        return None
    annotations = objects.metadata.annotations
    return Rollout(
        revision=reported.revision,
        stable=reported.stable,
        stage=stage,
        began_at_s=began_at_s,
        reason=named_reason(reported.reason, stage),
        message=reported.message,
        why=reported.why,
        retry=annotations.get(names.ANNOTATION_RETRY_ROLLOUT, ""),
        offered=annotations.get(names.ANNOTATION_ROLLOUT) == reported.revision,
    )


def _written_at_s(document: DepthDocument, status: ReportedStatus | None, now_s: float) -> float:
    """When a document that this loop did not write was written, as far as the status tells."""
    if status is None or status.depth.generation != document.generation:
        return now_s
    return unix_seconds(status.depth.since) or now_s


def _asked(annotations: Mapping[str, str]) -> Asked:
    return tuple(map(annotations.get, names.ASKING_ANNOTATIONS))
