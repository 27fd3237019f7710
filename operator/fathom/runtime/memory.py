"""What one loop remembers between two passes. Losing it costs at most a minute of measurements."""

from dataclasses import dataclass, field
from typing import Self

from fathom.api.status import MeasuredStatus, SpeculativeDeploymentStatus, TuningStatus
from fathom.core.depth import DepthDocument
from fathom.core.fetch_progress import FetchProgress
from fathom.core.kinds import Kind
from fathom.core.model_facts import ModelRef
from fathom.core.snapshot import Objects
from fathom.core.times import unix_seconds
from fathom.core.unread import UnreadPods
from fathom.manifests.tuning_config_map import STATE_KEY
from fathom.rollout.rollout import Rollout
from fathom.runtime.apply_guard import ApplyGuard
from fathom.runtime.canary_windows import CanaryWindows
from fathom.runtime.kept import Kept
from fathom.tuning.state import TuningState


@dataclass(slots=True)
class Memory:
    """Everything else is derived from the cluster at each pass."""

    uid: str
    """Of the resource; another resource of the same name starts afresh."""
    objects: Objects | None
    """The last look at the cluster, good until something moves; None: look again."""
    state: TuningState
    tuning: TuningStatus
    measured: MeasuredStatus
    status_written_at_s: float
    tuning_written_at_s: float
    document_generation: int = 0
    document_written_at_s: float = 0.0
    rollout: Rollout | None = None
    """The one under way, with what was seen since it was last written."""
    windows: CanaryWindows = field(default_factory=CanaryWindows)
    warned_pins: set[tuple[str, str]] = field(default_factory=set)
    models: tuple[ModelRef, ...] = ()
    """What the spec names, as of `models_generation`."""
    models_generation: int = -1
    unread: UnreadPods = field(default_factory=UnreadPods)
    """Pods whose counters could not be read lately."""
    fetch: FetchProgress = field(default_factory=FetchProgress)
    guard: ApplyGuard = field(default_factory=ApplyGuard)
    unlisted: frozenset[tuple[Kind, str]] = frozenset()
    """What to look at by name: something that the list of our own does not show may bear it."""

    @classmethod
    def recalled(cls, objects: Objects, now_s: float) -> Self:
        """Pick up from what an earlier operator left behind.

        Writes that can wait, wait for a minute: a restart has nothing urgent to say.
        """
        stored = objects.tuning.get(STATE_KEY)
        status = objects.status or SpeculativeDeploymentStatus()
        never = float("-inf")
        return cls(
            uid=objects.metadata.uid,
            objects=objects,
            state=TuningState.from_json(stored) if stored else TuningState(),
            tuning=status.tuning,
            measured=status.measured,
            rollout=Kept.of(objects.tuning).rollout,
            status_written_at_s=now_s if objects.status else never,
            tuning_written_at_s=now_s if objects.tuning else never,
        )

    def note_document(self, objects: Objects, now_s: float) -> None:
        """Learn since when the document in the cluster is there."""
        document = objects.depth
        if document is not None and document.generation != self.document_generation:
            self.document_generation = document.generation
            self.document_written_at_s = _written_at_s(document, objects.status, now_s)

    def wrote_document(self, document: DepthDocument, now_s: float) -> None:
        self.document_generation = document.generation
        self.document_written_at_s = now_s


def _written_at_s(
    document: DepthDocument, status: SpeculativeDeploymentStatus | None, now_s: float
) -> float:
    """When a document that this loop did not write was written, as far as the status tells."""
    if status is None or status.depth.generation != document.generation:
        return now_s
    return unix_seconds(status.depth.since) or now_s
