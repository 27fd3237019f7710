from typing import Final

from fathom.api import names
from fathom.core.cluster.manifest import Manifest
from fathom.engine.depth import DepthDocument
from fathom.manifests.metadata import child_metadata
from fathom.resource import SpeculativeDeployment
from fathom_vllm.environment import DEPTH_KEY

COMPONENT: Final = "depth"


def depth_config_map(sd: SpeculativeDeployment, document: DepthDocument) -> Manifest:
    """The depth document that every engine of this resource reads."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(
            sd,
            names.depth_config_map(sd.metadata.name),
            labels={names.LABEL_COMPONENT: COMPONENT},
        ),
        "data": {DEPTH_KEY: document.to_json()},
    }
