from fathom.api import names
from fathom.core.plugin import PluginBundle
from fathom.manifests.cache import fetched_by
from fathom.resource import SpeculativeDeployment


def workload_annotations(sd: SpeculativeDeployment, bundle: PluginBundle) -> dict[str, str]:
    """What a new Fathom changes by itself: on the workload, where no pod rolls for it."""
    annotations = {names.ANNOTATION_RENDERED_BY: bundle.version}
    if sd.engine.has_plugin:
        annotations[names.ANNOTATION_PLUGIN] = names.plugin_config_map(
            sd.metadata.name, bundle.content
        )
    if commits := fetched_by(sd):
        annotations[names.ANNOTATION_WEIGHTS] = commits
    return annotations
