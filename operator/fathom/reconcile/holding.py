"""Why nothing new starts for now. Pure.

A revision gets its first pod when all that the hub tells of its models is known, or when it has
been waited for long enough. See docs/design/0021-verdicts-before-pods.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fathom.api import names
from fathom.api.conditions import ConditionStatus, ConditionType, Reason
from fathom.api.status import COMPLETE, OFFERED
from fathom.cluster.observed import ObservedWorkload
from fathom.cluster.snapshot import Objects
from fathom.engine.profile import StartedAs
from fathom.model_facts import ModelFacts
from fathom.model_refs import ModelRef
from fathom.reconcile.checkpoint import Checkpoint, named
from fathom.reconcile.intent import Intent
from fathom.rollout.progress import Progress
from fathom.validation.model_verdict import DraftVerdict

PATIENCE_S: Final = 40.0
"""How long a new revision waits for the hub. A look-up takes as long at most."""


@dataclass(frozen=True, slots=True)
class FirstSeen:
    """Since when a revision is asked for, as far as this operator knows."""

    revision: str = ""
    at_s: float = 0.0

    def of(self, revision: str, now_s: float) -> "FirstSeen":
        """As of now. Another revision begins again, and so does a clock that was set back."""
        same = revision == self.revision and self.at_s <= now_s
        return self if same else FirstSeen(revision, now_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Nothing new starts; what runs goes on."""

    progress: Progress
    until: str
    """What ends it, in words."""
    frozen: bool = False
    """Whether nothing moves between revisions either."""
    wake_after_s: float = float("inf")


def hold_of(
    intent: Intent,
    checkpoint: Checkpoint,
    objects: Objects,
    models: Mapping[ModelRef, ModelFacts],
    *,
    first_seen: FirstSeen,
    now_s: float,
) -> Hold | None:
    """What keeps the wanted revision from its first pod; None: nothing does.

    Args:
        intent: what is wanted.
        checkpoint: what is known of earlier specs.
        objects: what the cluster holds.
        models: what is known of the models.
        first_seen: since when the wanted revision is asked for.
        now_s: Unix seconds.
    """
    running = running_revisions(objects)
    vetoed = checkpoint.rollout is not None and checkpoint.rollout.vetoes(intent.revision)
    if not intent.awaited or vetoed:
        return None
    if checkpoint.unread and running.keys() != {intent.revision}:
        progress = Progress(Reason.STATE_UNREADABLE, _unread(checkpoint, objects, intent))
        return Hold(progress=progress, until="it is known what the spec asks for", frozen=True)
    left_s = PATIENCE_S - (now_s - first_seen.at_s)
    if intent.revision in running or left_s <= 0:
        return None
    why = "; ".join(dict.fromkeys(models[ref].explanation for ref in intent.awaited))
    message = (
        f"revision {intent.revision} waits, at most {PATIENCE_S:.0f} s, for what the hub says of "
        f"{named(intent.awaited)}{f' ({why})' if why else ''}: what does not fit gets no pod."
    )
    until = f"the hub has answered for its models, or {PATIENCE_S:.0f} s are over"
    return Hold(
        progress=Progress(Reason.WAITING_FOR_HUB, message), until=until, wake_after_s=left_s
    )


def running_revisions(objects: Objects) -> Mapping[str, StartedAs | None]:
    """Those that ask for replicas, or still have pods, and how these were started.

    None: their workload is gone, so that only their name tells.
    """
    asking = {each.revision for each in objects.workloads if each.replicas > 0}
    running = asking | {pod.revision for pod in objects.engines if not pod.terminating}
    started = started_as(objects)
    return {revision: started.get(revision) for revision in sorted(running)}


def started_as(objects: Objects) -> Mapping[str, StartedAs]:
    """How the pods of each revision that has a workload are started."""
    depth = names.depth_config_map(objects.key.name)

    def form(workload: ObservedWorkload) -> StartedAs:
        if not workload.plugin:
            return StartedAs.STATIC
        return StartedAs.LIVE if depth in workload.config_maps else StartedAs.COUNTED

    return {each.revision: form(each) for each in objects.workloads}


def _unread(checkpoint: Checkpoint, objects: Objects, intent: Intent) -> str:
    config_map = names.tuning_config_map(objects.key.name)
    return (
        f"{' and '.join(checkpoint.unread)} of ConfigMap {config_map} cannot be read, so it is not "
        "known which pods the spec asks for, nor whether it was refused. What runs continues, and "
        f"revision {intent.revision} gets no pod until the hub answers for "
        f"{named(intent.awaited)}. To continue without knowing, "
        f"delete {'these keys' if len(checkpoint.unread) > 1 else 'this key'}."
    )


_NO_ROLLOUT: Final = frozenset({Reason.UP_TO_DATE, Reason.SCALING, Reason.STARTING, Reason.PAUSED})
"""Reasons of Progressing of a resource that has one revision."""
_REFUSALS: Final[Mapping[str, Reason]] = {
    each.value: each for each in (Reason.INCOMPATIBLE, Reason.ENGINE_TOO_OLD)
}


def refused_before(objects: Objects) -> DraftVerdict | None:
    """That the status refuses the draft of this very generation; None: it does not."""
    for each in objects.status.conditions if objects.status else ():
        if (
            each.type is ConditionType.DRAFT_COMPATIBLE
            and each.observed_generation == objects.metadata.generation
            and each.status is ConditionStatus.FALSE
            and each.reason in _REFUSALS
        ):
            return DraftVerdict(
                status=each.status, reason=_REFUSALS[each.reason], message=each.message, family=""
            )
    return None


def at_rest(objects: Objects) -> bool:
    """Whether the status tells that what runs is what this very generation asks for."""
    status = objects.status
    if status is None or status.observed_generation != objects.metadata.generation:
        return False
    reasons = {each.type: each.reason for each in status.conditions}
    return (
        # Else what runs may be of an earlier spec.
        reasons.get(ConditionType.DEGRADED) not in {Reason.INVALID_SPEC, Reason.API_MISSING}
        and reasons.get(ConditionType.PROGRESSING) in _NO_ROLLOUT
        and (status.rollout is None or status.rollout.stage in {COMPLETE, OFFERED})
    )


def acted_upon(objects: Objects, checkpoint: Checkpoint, before: int) -> int:
    """The newest generation of this resource that is known to have been acted upon.

    A read may be older than that: an API server that has fallen behind answers with what was.

    Args:
        objects: what was read.
        checkpoint: what the tuning ConfigMap keeps.
        before: what this operator has seen of the resource.
    """
    seen = checkpoint.seen
    kept_generation = seen.generation if seen and seen.uid == objects.metadata.uid else 0
    observed = objects.status.observed_generation if objects.status else 0
    written = (each.generation for each in objects.workloads)
    return max(before, kept_generation, observed, *written)
