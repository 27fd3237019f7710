"""Workloads that were found to be as they are rendered."""

from collections.abc import Collection
from dataclasses import dataclass

from fathom.core.cluster.kinds import Kind
from fathom.core.cluster.manifest import Manifest
from fathom.core.plan import WorkloadStep
from fathom.core.plugin import PluginBundle
from fathom.resource import SpeculativeDeployment


@dataclass(frozen=True, slots=True)
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
        self._found[step.kind, step.name] = _Found(step, sd, bundle, live)
