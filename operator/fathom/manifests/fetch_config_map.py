from fathom.api import names
from fathom.api.resource import SpeculativeDeployment
from fathom.core.fetch import COMPONENT
from fathom.core.fetch_program import FetchProgram
from fathom.core.manifest import Manifest
from fathom.manifests.metadata import child_metadata
from fathom.manifests.plugin_config_map import plugin_key


def fetch_config_map(sd: SpeculativeDeployment, program: FetchProgram) -> Manifest:
    """The program of a fetch; immutable and named by its content, as the plugin's."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(
            sd,
            names.fetch_config_map(sd.metadata.name, program.content),
            labels={names.LABEL_COMPONENT: COMPONENT},
        ),
        "immutable": True,
        "data": {plugin_key(path): text for path, text in sorted(program.files.items())},
    }
