from pydantic import JsonValue

from fathom.api import names
from fathom.core.cluster.manifest import Manifest
from fathom.manifests.metadata import child_metadata
from fathom.resource import SpeculativeDeployment


def cache_claim(sd: SpeculativeDeployment) -> Manifest:
    """The claim for the weights, where the spec asks for one by its size.

    Nobody owns it: weights of a terabyte must not go with a resource that was deleted by mistake,
    or to be made anew. A resource of the same name finds it again.
    """
    cache = sd.spec.cache
    metadata = child_metadata(sd, names.cache_claim(sd.metadata.name))
    metadata.pop("ownerReferences", None)
    spec: dict[str, JsonValue] = {
        "accessModes": [mode.value for mode in cache.access_modes],
        "resources": {"requests": {"storage": cache.size}},
    }
    if cache.storage_class_name:
        spec["storageClassName"] = cache.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": spec,
    }
