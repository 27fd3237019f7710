from typing import Final

from fathom.api import names
from fathom.core.cluster.manifest import Manifest
from fathom.core.plugin import PluginBundle
from fathom.manifests.code_config_map import code_config_map
from fathom.resource import SpeculativeDeployment

COMPONENT: Final = "plugin"


def plugin_config_map(sd: SpeculativeDeployment, bundle: PluginBundle) -> Manifest:
    """The engine plugin.

    Immutable and named by its content: an upgrade of the operator adds another one beside it, and
    running pods keep theirs.
    """
    name = names.plugin_config_map(sd.metadata.name, bundle.content)
    return code_config_map(sd, name, COMPONENT, bundle)
