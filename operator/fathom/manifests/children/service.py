from fathom.core.cluster.manifest import Manifest
from fathom.engine.flags import HTTP_PORT
from fathom.manifests.metadata import child_metadata, serving_labels
from fathom.resource import SpeculativeDeployment


def service(sd: SpeculativeDeployment) -> Manifest:
    """Where clients reach the model: the leaders of every revision."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(sd, sd.metadata.name),
        "spec": {
            "selector": serving_labels(sd),
            # By number: `podTemplate` may give the port another name.
            "ports": [
                {"name": "http", "port": HTTP_PORT, "targetPort": HTTP_PORT, "protocol": "TCP"}
            ],
        },
    }
