"""Which revision a rollout brings about, and the event that announces it. Pure but for a memory.

The spec names one revision; a person may ask for another, which the status offers: the same spec
as this build renders it.
"""

from dataclasses import dataclass

from fathom.api import names
from fathom.cluster.events import Event, EventReason, Severity
from fathom.cluster.manifest import Manifest
from fathom.cluster.snapshot import Objects
from fathom.engine.plugin import PluginBundle
from fathom.engine.profile import StartedAs
from fathom.fetch.state import FetchStage, pinned
from fathom.reconcile.checkpoint import Checkpoint
from fathom.reconcile.desired_state import following_of, read_by_its_tag
from fathom.reconcile.fetching import fetch_standing
from fathom.reconcile.renderings import Offer, Renderings, Running
from fathom.reconcile.specs import earlier_spec
from fathom.resource import SpeculativeDeployment
from fathom.rollout.revision import changed_restart_fields
from fathom.rollout.rollout import Rollout, Stage
from fathom.text import counted


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for."""

    revision: str
    offered: bool
    """Whether a person asked for it, and the spec does not need it."""
    offer: Offer | None
    """What may be asked for, beside; None: nothing."""


def asked_for(
    revision: str,
    wanted: SpeculativeDeployment,
    objects: Objects,
    *,
    checkpoint: Checkpoint,
    bundle: PluginBundle,
    renderings: Renderings,
) -> Asked:
    """The revision to carry out.

    Args:
        revision: whose pods the spec asks for, as far as is known.
        wanted: the spec that is carried out.
        objects: what the cluster holds.
        checkpoint: what is known of earlier specs, and the rollout as it was.
        bundle: this build's plugin.
        renderings: what this build renders; it remembers.
    """
    annotation = objects.metadata.annotations.get(names.ANNOTATION_ROLLOUT, "")
    present = {each.revision for each in objects.workloads}
    before = checkpoint.rollout
    under_way = before if before and before.offered and before.revision == revision else None
    needed = under_way.stable if under_way else revision
    if under_way and needed not in present:
        # Nothing is left to go back to.
        return Asked(revision, offered=True, offer=None)
    running = _running(needed, wanted, objects, checkpoint)
    offer = renderings.offer(running, bundle) if running else None
    offered = offer is not None and annotation == offer.revision
    if under_way and annotation == revision:
        offered = offered or _goes_on(under_way, present)
    if offered:
        return Asked(annotation, offered=True, offer=None)
    return Asked(needed, offered=False, offer=offer)


def _goes_on(under_way: Rollout, present: set[str]) -> bool:
    """Whether what another build has begun can be gone on with: its pods are, or were refused."""
    return under_way.revision in present or under_way.stage is Stage.ROLLED_BACK


def _running(
    revision: str, wanted: SpeculativeDeployment, objects: Objects, checkpoint: Checkpoint
) -> Running | None:
    """What runs of a revision; None: nothing, or what was started without a fetch."""
    found = next((each for each in objects.workloads if each.revision == revision), None)
    standing = fetch_standing(wanted, revision, objects, checkpoint)
    if found is None or standing.stage is FetchStage.PODS_AS_THEY_ARE:
        return None
    makes = pinned(wanted, standing.fetched)
    live = following_of(objects)[revision]
    made_from = read_by_its_tag(makes, revision) if live else makes
    return Running(
        workload=found,
        live=objects.live[found.kind, found.name],
        wanted=wanted,
        made_from=made_from,
        makes=makes,
    )


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
