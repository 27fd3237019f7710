from fathom import __version__
from fathom.api import names
from fathom.api.resource import SpeculativeDeployment
from fathom.core.capability import live_depth
from fathom.core.plugin import PluginBundle


def workload_annotations(sd: SpeculativeDeployment, bundle: PluginBundle) -> dict[str, str]:
    """What a new Fathom changes by itself: on the workload, where no pod rolls for it."""
    annotations = {names.ANNOTATION_RENDERED_BY: __version__}
    if live_depth(sd.spec):
        annotations[names.ANNOTATION_PLUGIN] = names.plugin_config_map(
            sd.metadata.name, bundle.content
        )
    return annotations
