"""The template of a serving pod before and after `podTemplate`, as it is judged."""

from dataclasses import dataclass
from typing import Final

from fathom.api import names
from fathom.api.accelerators import vendor_of
from fathom.api.resource import SpeculativeDeployment
from fathom.core.plugin import PluginBundle
from fathom.manifests.pod.pod_template import built_template, with_pod_template
from fathom.manifests.pod.template_parts import Part, by, parts

FIELD: Final = "spec.podTemplate"
CONTAINERS: Final = f"{FIELD}.spec.containers"
CONTAINER_KINDS: Final = ("containers", "initContainers")
_NO_BUNDLE: Final = PluginBundle(files={}, content="")


@dataclass(frozen=True, slots=True)
class MergedTemplate:
    built: Part
    """Before `podTemplate` was merged in."""
    merged: Part
    given: Part
    """`podTemplate`, as its user wrote it."""
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
    def field(self) -> str:
        """Path of the engine's container, as far as `podTemplate` names it."""
        named = [each.get("name") for each in parts(self.given, "spec", "containers")]
        name = names.ENGINE_CONTAINER
        return f"{CONTAINERS}[{named.index(name)}]" if name in named else CONTAINERS


def merged_template(sd: SpeculativeDeployment) -> MergedTemplate:
    """The template with neither revision nor plugin.

    Raises:
        MergeError: `podTemplate` does not fit.
    """
    built = built_template(sd, revision="", bundle=_NO_BUNDLE)
    merged = with_pod_template(sd.spec, built)
    gpus = vendor_of(sd.spec.node_pool).resource
    return MergedTemplate(built, merged, sd.spec.pod_template, gpus)


def _engine(template: Part) -> Part:
    containers = by("name", parts(template, "spec", "containers"))
    return containers.get(names.ENGINE_CONTAINER, {})
