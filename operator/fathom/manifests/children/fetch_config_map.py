from fathom.api import names
from fathom.core.cluster.manifest import Manifest
from fathom.fetch.program import FetchProgram
from fathom.fetch.standing import COMPONENT
from fathom.manifests.code_config_map import code_config_map
from fathom.resource import SpeculativeDeployment


def fetch_config_map(sd: SpeculativeDeployment, program: FetchProgram) -> Manifest:
    """The program of a fetch; immutable and named by its content, as the plugin's."""
    name = names.fetch_config_map(sd.metadata.name, program.content)
    return code_config_map(sd, name, COMPONENT, program)
