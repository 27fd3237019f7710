"""What one pass found out, as the status is made from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fathom.api.choices import Compares
from fathom.api.conditions import AlarmKind, ConditionStatus, Reason
from fathom.api.problem import Problem
from fathom.api.status import (
    ComparisonStatus,
    DraftStatus,
    EngineStatus,
    GainedStatus,
    MeasuredStatus,
    QualityStatus,
    RolloutStatus,
    TuningStatus,
    WeightsStatus,
)
from fathom.api.training import TrainingStatus
from fathom.cluster.ownership import Taken
from fathom.cluster.pod_failures import Trouble
from fathom.engine.depth import DepthDocument
from fathom.engine.report import Difference
from fathom.measurement.counters import PodCounters
from fathom.rollout.progress import Progress


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition without its bookkeeping."""

    status: ConditionStatus
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What one pass found out, beside what the cluster holds."""

    now_s: float
    replicas: int
    """Wanted ones."""
    problems: tuple[Problem, ...]
    """Why the newest spec is not carried out."""
    warnings: tuple[Problem, ...]
    """What the user of the newest spec should know, though it is carried out."""
    progress: Progress | None
    """None: nothing is planned, as no good spec is known."""
    rolled_back: str
    """Why the newest revision is not in force; empty: it is, or is on its way."""
    no_way_back: str
    """Why the newest revision gets no canary until somebody decides; empty: it is not so."""
    asks_for_room: str
    """The revision whose canary asks for room that there need not be; empty: none."""
    rollout: RolloutStatus | None
    """The one under way, or whose revision is vetoed, or that is offered."""
    comparisons: Mapping[Compares, ComparisonStatus]
    """What one replica has otherwise than the others, to be compared; one at most."""
    offer: str
    """The sentence that says what another build renders otherwise; empty: nothing is offered."""
    refusals: tuple[str, ...]
    """Sentences: what the API server refused of what should exist."""
    taken: tuple[Taken, ...]
    """Names that something else bears."""
    left_out: tuple[str, ...]
    """Sentences: optional objects that the cluster, or a right of the operator, does not allow."""
    without_effect: str
    """Which fields of the spec a later operator would obey; empty: none."""
    not_obeyed: tuple[str, ...]
    """Pods whose engine does not report the depth that should be in force."""
    draft_compatible: Finding
    tuning_finding: Finding
    engine: EngineStatus
    draft: DraftStatus
    document: DepthDocument | None
    document_written_at_s: float
    measured: MeasuredStatus
    tuning: TuningStatus
    gained: GainedStatus | None
    """None: nothing was counted yet."""
    quality: QualityStatus | None
    """Result of the last check; None: none was ever asked for."""
    counters: Mapping[str, PodCounters] = field(default_factory=dict)
    differing: Mapping[str, Sequence[Difference]] = field(default_factory=dict)
    """By pod: in what its engine says that it is not what was rendered for it."""
    alarms: Mapping[AlarmKind, Finding] = field(default_factory=dict)
    """Those that stand."""
    fixed_depth: str = ""
    """The depth that engines have which read no document; empty: not known."""
    training: TrainingStatus | None = None
    """None: none was ever proposed."""
    weights: WeightsStatus | None = None
    """None: none are to be fetched."""
    weights_trouble: Trouble | None = None
    """Why a fetch does not get on."""
    checkpoint_unread: str = ""
    """Why nothing moves, where what was kept cannot be read; empty: it can be."""
