"""What this build renders, compared with what runs and with what other builds rendered. Pure."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from fathom.cluster.diff import first_difference
from fathom.cluster.kinds import Kind
from fathom.cluster.manifest import Manifest
from fathom.cluster.observed import ObservedWorkload
from fathom.engine.plugin import PluginBundle
from fathom.manifests.strategic_merge import MergeError
from fathom.manifests.workloads import rendering_of, serving_template, workers_template, workload
from fathom.resource import SpeculativeDeployment
from fathom.rollout.plan import WorkloadStep, workload_kind
from fathom.rollout.revision import rerendered, revision_of
from fathom.rollout.template_changes import NOTHING_CHANGED, first_change

_KEPT: Final = 4
"""In a pass: what runs, what is on trial or offered, and what is compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What runs, as this build would render it."""

    revision: str
    """That its pods would have."""
    stable: str
    """That of those which run."""
    by: str
    """Who rendered those, in words."""
    why: str
    """The first difference, in words."""

    def sentence(self, name: str) -> str:
        """What stays as it is, and how to have it otherwise.

        Args:
            name: of the SpeculativeDeployment.
        """
        return (
            f"Pods of revision {self.stable} stay as {self.by} rendered them, and this build would "
            f"render them otherwise ({self.why}): `kubectl fathom rollout {name}` asks for that as "
            f"revision {self.revision}, one canary first."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A workload of the wanted spec, and what this build makes of that."""

    workload: ObservedWorkload = field(compare=False)
    live: Manifest = field(compare=False)
    """The same, as it was read: what has changed is another object."""
    wanted: SpeculativeDeployment
    """As the user wrote it: it names the revision."""
    made_from: SpeculativeDeployment
    """What the pods are rendered from, with their commits, as the build that began with them read
    it."""
    makes: SpeculativeDeployment
    """What new pods would be rendered from."""


class Renderings:
    """Memory of one resource, pass after pass. Losing it costs some renderings.

    Neither what runs nor what it is made from moves at rest, and to render takes a millisecond.
    """

    def __init__(self) -> None:
        self._hashes: tuple[tuple[SpeculativeDeployment, PluginBundle, str], ...] = ()
        self._offered: tuple[Running, PluginBundle, Offer | None] | None = None

    def of(self, sd: SpeculativeDeployment, bundle: PluginBundle) -> str:
        """Hash of the pods as this build renders them; empty: it cannot."""
        for found, with_bundle, rendering in self._hashes:
            if found == sd and with_bundle == bundle:
                return rendering
        try:
            rendering = rendering_of(workload_kind(sd), sd, bundle)
        except MergeError:
            rendering = ""
        self._hashes = ((sd, bundle, rendering), *self._hashes[: _KEPT - 1])
        return rendering

    def offer(self, running: Running, bundle: PluginBundle) -> Offer | None:
        """What this build would render otherwise; None: nothing."""
        if self._offered is not None:
            before, with_bundle, offer = self._offered
            if before.live is running.live and (before, with_bundle) == (running, bundle):
                return offer
        offer = self._compared(running, bundle)
        self._offered = running, bundle, offer
        return offer

    def _compared(self, running: Running, bundle: PluginBundle) -> Offer | None:
        found, kind = running.workload, running.workload.kind
        rendering = self.of(running.makes, bundle)
        if kind != workload_kind(running.makes) or not rendering:
            return None
        if found.rendering and found.rendering == self.of(running.made_from, bundle):
            return None
        ours = workload(
            kind,
            running.makes,
            name=found.name,
            revision=found.revision,
            replicas=0,
            bundle=bundle,
        )
        why = _difference(found, running.live, ours)
        if why == NOTHING_CHANGED:
            return None
        return Offer(
            revision=rerendered(revision_of(running.wanted), rendering),
            stable=found.revision,
            by=_by(found.rendered_by, bundle.version),
            why=why,
        )


def _difference(found: ObservedWorkload, live: Manifest, ours: Manifest) -> str:
    before, after = serving_template(found.kind, live), serving_template(found.kind, ours)
    headless, workers = workers_template(live), workers_template(ours)
    if before is None or after is None:
        return NOTHING_CHANGED
    lacks = first_difference(after, before) or first_difference(workers, headless)
    if not found.rendering and lacks is None:
        # Of what is there besides, a webhook's cannot be told from that of another build.
        return NOTHING_CHANGED
    both = None if headless is None or workers is None else (headless, workers)
    return first_change(before, after, both)


def _by(version: str, ours: str) -> str:
    if not version:
        return "another build"
    return f"{'another build of ' if version == ours else ''}Fathom {version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    step: WorkloadStep
    sd: SpeculativeDeployment
    bundle: PluginBundle
    live: Manifest
    """The very object: what has changed is another one."""


class AsRendered:
    """Memory of one resource, pass after pass. Losing it costs one comparison.

    To render a workload and to compare it takes as long as to read three pods, and at rest neither
    of the two has moved.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[Kind, str], _Found] = {}

    def holds(
        self, step: WorkloadStep, sd: SpeculativeDeployment, bundle: PluginBundle, live: Manifest
    ) -> bool:
        """Whether this very object was found to lack nothing of what is rendered from these."""
        found = self._found.get((step.kind, step.name))
        return (
            found is not None
            and found.live is live
            and (found.step, found.sd, found.bundle) == (step, sd, bundle)
        )

    def note(
        self,
        step: WorkloadStep,
        sd: SpeculativeDeployment,
        bundle: PluginBundle,
        live: Manifest,
        *,
        among: Collection[tuple[Kind, str]],
    ) -> None:
        """It lacks nothing.

        Args:
            step: what was rendered.
            sd: from which resource.
            bundle: with which plugin.
            live: the object.
            among: all objects that are there; the others are forgotten.
        """
        self._found = {key: each for key, each in self._found.items() if key in among}
        self._found[step.kind, step.name] = _Found(step=step, sd=sd, bundle=bundle, live=live)
