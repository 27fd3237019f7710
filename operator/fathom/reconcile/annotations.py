"""What people ask for by annotations: a pause, a held depth, a quality check. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fathom.api import names
from fathom.api.spec import MAX_TOKENS_LIMIT
from fathom.api.status import QualityResult, QualityStatus
from fathom.cluster.events import Event, EventReason, Severity
from fathom.cluster.manifest import Meta
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.snapshot import Objects, Snapshot
from fathom.engine.depth import DepthDocument
from fathom.measurement.counters import PodCounters
from fathom.quality.check import LONGEST_ID, QUALITY_KEY, QualityCheck
from fathom.quality.comparison import QualityFleet, Replica
from fathom.resource import SpeculativeDeployment
from fathom.text import shortened
from fathom.tuning.sentences import UNNAMED

_ANY_DEPTH: Final = range(MAX_TOKENS_LIMIT + 1)
PAUSED_WITHOUT_REASON: Final = "true"
"""What the annotation says where nobody said why."""
_NOT_PAUSED: Final = frozenset({"", "false"})
_LONGEST_REASON: Final = 256
"""Characters of a person's reason that are repeated."""


@dataclass(frozen=True, slots=True)
class BadPin:
    """A pin annotation that is not a depth this engine can be held at."""

    pod: str
    value: str
    message: str


def bad_pins(snapshot: Snapshot, named: Collection[int]) -> tuple[BadPin, ...]:
    """Pins that are ignored, with the sentence that says why.

    Args:
        snapshot: this pass's view.
        named: the depths that the spec asks for, of engines whose arguments do not say.
    """
    found = []
    for pod in snapshot.objects.leaders:
        value = pod.metadata.annotations.get(names.ANNOTATION_PIN_DEPTH)
        counters = snapshot.counters.get(pod.name)
        if value is None:
            continue
        if pinned_depth(pod, named) is None:
            depths = ", ".join(map(str, sorted(pod.spec.named_depths or named)))
            why = f"write one of {depths}, which its engine has, or remove it."
        elif counters is not None and not counters.named:
            why = f"the engine {UNNAMED}."
        else:
            continue
        message = f"annotation {names.ANNOTATION_PIN_DEPTH}={value!r} of pod {pod.name} is ignored:"
        found.append(BadPin(pod.name, value, f"{message} {why}"))
    return tuple(found)


def pinned_depth(pod: ObservedPod, named: Collection[int] = _ANY_DEPTH) -> int | None:
    """The depth a person holds this pod at; None: none, or not one that its engine has.

    Args:
        pod: whose annotations.
        named: the depths that its engine has if its arguments do not say.
    """
    value = pod.metadata.annotations.get(names.ANNOTATION_PIN_DEPTH, "")
    if not (value.isascii() and value.isdecimal()):
        return None
    return int(value) if int(value) in (pod.spec.named_depths or named) else None


@dataclass(frozen=True, slots=True, kw_only=True)
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
            _replica(pod, snapshot.counters.get(pod.name), snapshot.objects.depth)
            for pod in pods
            if pod.ready and pod.status.pod_ip
        ),
        document=snapshot.objects.depth,
        refusal="" if live else _refusal(sd),
    )


def _replica(
    pod: ObservedPod, counters: PodCounters | None, document: DepthDocument | None
) -> Replica:
    runs = counters is not None and document is not None and counters.runs(document)
    return Replica(
        name=pod.name,
        revision=pod.revision,
        pinned=pinned_depth(pod) is not None,
        live=counters is not None and counters.live_depth and counters.named,
        generation=document.generation if document is not None and runs else 0,
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


def new_reference_of(annotations: Mapping[str, str]) -> str:
    """By which a person asks that acceptance be held against what it is from now on; empty: none.

    Args:
        annotations: of the resource.
    """
    return annotations.get(names.ANNOTATION_NEW_REFERENCE, "").strip()[:LONGEST_ID]


def pause_of(annotations: Mapping[str, str]) -> str:
    """The sentence that says who holds it and why; empty: it is not paused.

    Any value but `false` is a pause: one that was misspelt must not be none.

    Args:
        annotations: of the SpeculativeDeployment.
    """
    said = " ".join(annotations.get(names.ANNOTATION_PAUSED, "").split())
    if said.lower() in _NOT_PAUSED:
        return ""
    why = "" if said.lower() == PAUSED_WITHOUT_REASON else f": {shortened(said, _LONGEST_REASON)}"
    held = f"annotation {names.ANNOTATION_PAUSED} holds depth, rollouts and refreshes"
    return f"{held}{why.rstrip('.')}."
