"""What a person asks of the operator by an annotation, written with that person's rights.

Nothing else of a resource is ever written from here: what stands in `spec` belongs to whoever
applies it, and a tool that syncs it from Git would put back what it did not write.
"""

from pydantic import JsonValue

from fathom.adapters.ports import KubePort
from fathom.core.cluster.kinds import SPECULATIVE_DEPLOYMENT, ObjectKey


async def annotate(kube: KubePort, key: ObjectKey, annotation: str, value: str | None) -> bool:
    """Set an annotation of a SpeculativeDeployment. Idempotent.

    Args:
        kube: the cluster.
        key: of the resource.
        annotation: its name.
        value: None: it is removed.

    Returns:
        False: there is no such resource.

    Raises:
        KubeError: it could not be written.
    """
    patch: dict[str, JsonValue] = {"metadata": {"annotations": {annotation: value}}}
    asked = await kube.merge(SPECULATIVE_DEPLOYMENT, key.namespace, key.name, patch, None)
    return asked is not None
