"""What a quality check asks of one pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fathom.api import names
from fathom.api.conditions import EventReason
from fathom.api.status import QualityResult, QualityStatus
from fathom.core.cluster.metadata import Meta
from fathom.core.cluster.observed_pods import ObservedPod
from fathom.core.cluster.snapshot import Objects, Snapshot
from fathom.core.measurement import PodCounters
from fathom.core.reporting.events import Event, Severity
from fathom.quality.check import LONGEST_ID, QUALITY_KEY, QualityCheck
from fathom.quality.replicas import QualityFleet, Replica
from fathom.reconcile.pins import pinned_depth
from fathom.resource import SpeculativeDeployment


@dataclass(frozen=True, slots=True)
class QualityStep:
    """What one pass has to do for a check, and what it has to say of the last one."""

    holds: Mapping[str, int]
    """The depth that each of these pods has to be held at, whatever `minTokens` says."""
    status: QualityStatus | None
    """For `status.quality`; None: none was ever asked for."""
    kept: str | None
    """What the tuning ConfigMap should hold under `QUALITY_KEY`; None: no such key."""
    events: tuple[Event, ...] = ()
    wake_after_s: float = float("inf")


def requested(metadata: Meta) -> str:
    """The id of the check that is asked for; empty: none is."""
    return metadata.annotations.get(names.ANNOTATION_CHECK_QUALITY, "").strip()[:LONGEST_ID]


def fleet_of(
    snapshot: Snapshot,
    pods: Sequence[ObservedPod],
    sd: SpeculativeDeployment,
    *,
    live: bool,
) -> QualityFleet:
    """The replicas as a check sees them."""
    return QualityFleet(
        now_s=snapshot.now_s,
        replicas=tuple(
            _replica(pod, snapshot.counters.get(pod.name))
            for pod in pods
            if pod.ready and pod.status.pod_ip
        ),
        document=snapshot.objects.depth,
        refusal="" if live else _refusal(sd),
    )


def _replica(pod: ObservedPod, counters: PodCounters | None) -> Replica:
    return Replica(
        name=pod.name,
        revision=pod.revision,
        pinned=pinned_depth(pod) is not None,
        live=counters is not None and counters.live_depth,
        generation=counters.depth_generation if counters else 0,
    )


def _refusal(sd: SpeculativeDeployment) -> str:
    spec = sd.spec
    if not spec.drafts:
        return "speculation.drafting is Disabled: there is no speculation to check."
    if not spec.tunable:
        return (
            "Mode Static: no replica can be held at depth 0 without a restart. Set "
            "speculation.tuning.mode to Advise (that needs new pods) and ask again."
        )
    refusal = sd.engine.not_live
    return f"Depth cannot be changed live: {refusal.sentence}" if refusal else ""


def recalled(objects: Objects, request_id: str) -> QualityCheck | None:
    """The check that an earlier operator was in the middle of."""
    check = QualityCheck.from_json(objects.tuning.get(QUALITY_KEY, ""))
    return check if check is not None and check.request_id == request_id else None


def event_of(result: QualityStatus) -> Event:
    """What to say once, when a check has ended."""
    well = result.result is QualityResult.LOSSLESS
    return Event(
        Severity.NORMAL if well else Severity.WARNING,
        EventReason.QUALITY_CHECKED,
        f"{result.result}: {result.message}",
    )
