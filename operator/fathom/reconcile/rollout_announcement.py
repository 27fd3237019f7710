"""The event that says, before the first pod goes, that a change needs new pods, and why."""

from fathom.api import names
from fathom.api.conditions import EventReason
from fathom.core.cluster.manifest import Manifest
from fathom.core.counted import counted
from fathom.core.reporting.events import Event, Severity
from fathom.core.revision import changed_restart_fields
from fathom.engine.profile import StartedAs
from fathom.reconcile.checkpoint import Checkpoint
from fathom.reconcile.intent import earlier_spec
from fathom.resource import SpeculativeDeployment
from fathom.rollout.rollout import Rollout


def rollout_announcement(
    wanted: SpeculativeDeployment,
    resource: Manifest,
    checkpoint: Checkpoint,
    rollout: Rollout,
    *,
    started: StartedAs | None = None,
    paused: str = "",
) -> Event:
    """What to say of a rollout that begins.

    Args:
        wanted: the spec that asks for it.
        resource: the SpeculativeDeployment as it was read.
        checkpoint: what is known of the specs before.
        rollout: the one that begins.
        started: how the pods were that it replaces; None: only their name tells.
        paused: the sentence that says who else than the spec holds it; empty: nobody.
    """
    earlier = earlier_spec(resource, checkpoint.spec_of(rollout.stable))
    stable = rollout.stable
    fields = changed_restart_fields(earlier, wanted, stable, started) if earlier else ()
    because = f"{fields[0]} changed" if fields else "the spec changed"
    if rollout.offered:
        because = f"annotation {names.ANNOTATION_ROLLOUT} asks for it"
    if len(fields) > 1:
        because += f" (and {', '.join(fields[1:])})"
    settings = wanted.spec.rollout
    held = " It waits while rollout.paused is set." if settings.paused else ""
    if paused:
        held = f" It waits: {paused}"
    return Event(
        Severity.NORMAL,
        EventReason.ROLLING,
        f"{because}, which needs new pods: revision {stable} is replaced by "
        f"{rollout.revision}, one canary first, with at most "
        f"{counted(settings.max_unavailable, 'replica')} missing and {settings.max_surge} added at "
        f"a time.{held}",
    )
