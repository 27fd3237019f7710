"""The templates of one replica's pods before and after what is merged in, as they are judged."""

from dataclasses import dataclass, replace
from typing import Final

from fathom.api import names
from fathom.api.accelerators import vendor_of
from fathom.core.plugin import PluginBundle
from fathom.engine.ranks import Role
from fathom.manifests.pod.overlays import Overlay, overlays
from fathom.manifests.pod.pod_template import built_template, with_overlays
from fathom.manifests.pod.template_parts import Part, by, parts
from fathom.resource import SpeculativeDeployment

CONTAINER_KINDS: Final = ("containers", "initContainers")
_NO_BUNDLE: Final = PluginBundle(files={}, content="")


@dataclass(frozen=True, slots=True)
class MergedTemplate:
    role: Role
    built: Part
    """Before anything was merged in."""
    before: Part
    """Before the overlay was."""
    merged: Part
    overlay: Overlay
    """That is judged: for such pods alone, as its user wrote it."""
    gpus: str
    """Name of the resource that GPUs are asked for by."""

    @property
    def engine(self) -> Part:
        """The engine's container; empty: it is gone."""
        return _engine(self.merged)

    @property
    def built_engine(self) -> Part:
        return _engine(self.built)

    @property
    def containers(self) -> str:
        """Path of the overlay's containers."""
        return f"{self.overlay.field}.spec.containers"

    @property
    def field(self) -> str:
        """Path of the engine's container, as far as the overlay names it."""
        named = [each.get("name") for each in parts(self.overlay.given, "spec", "containers")]
        name = names.ENGINE_CONTAINER
        return f"{self.containers}[{named.index(name)}]" if name in named else self.containers

    @property
    def without_overlay(self) -> "MergedTemplate":
        """As if it had never been written."""
        return replace(self, merged=self.before, overlay=replace(self.overlay, given={}))


def merged_template(sd: SpeculativeDeployment, role: Role = Role.LEADER) -> MergedTemplate:
    """A template with neither revision nor plugin.

    Raises:
        MergeError: what is merged in does not fit.
    """
    built = built_template(sd, role, revision="", bundle=_NO_BUNDLE)
    *earlier, last = overlays(sd.spec, role)
    before = with_overlays(sd.engine, built, earlier)
    merged = with_overlays(sd.engine, built, (*earlier, last))
    gpus = vendor_of(sd.spec.node_pool).resource
    return MergedTemplate(role, built, before, merged, last, gpus)


def _engine(template: Part) -> Part:
    containers = by("name", parts(template, "spec", "containers"))
    return containers.get(names.ENGINE_CONTAINER, {})
