from fathom.core.cluster.manifest import Manifest
from fathom.manifests.metadata import child_metadata
from fathom.resource import SpeculativeDeployment


def service_account(sd: SpeculativeDeployment) -> Manifest:
    """An identity of the pods' own, with no rights and no token."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": child_metadata(sd, sd.metadata.name),
        "automountServiceAccountToken": False,
    }
