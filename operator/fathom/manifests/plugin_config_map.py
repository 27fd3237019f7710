from typing import Final

from fathom.api import names
from fathom.api.resource import SpeculativeDeployment
from fathom.core.manifest import Manifest
from fathom.core.plugin import PluginBundle
from fathom.manifests.metadata import child_metadata

COMPONENT: Final = "plugin"


def plugin_key(path: str) -> str:
    """Key of a file in the ConfigMap, where a slash is not allowed."""
    return path.replace("/", "--")


def plugin_config_map(sd: SpeculativeDeployment, bundle: PluginBundle) -> Manifest:
    """The engine plugin.

    Immutable and named by its content: an upgrade of the operator adds another one beside it, and
    running pods keep theirs.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(
            sd,
            names.plugin_config_map(sd.metadata.name, bundle.content),
            labels={names.LABEL_COMPONENT: COMPONENT},
        ),
        "immutable": True,
        "data": {plugin_key(path): text for path, text in sorted(bundle.files.items())},
    }
