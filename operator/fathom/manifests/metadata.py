"""Metadata that every child carries."""

from collections.abc import Mapping

from pydantic import JsonValue

from fathom.api import names
from fathom.resource import Metadata, SpeculativeDeployment

MANAGED_BY = "fathom"


def serving_labels(name: str) -> dict[str, JsonValue]:
    """What selects the pods of a resource that answer requests, of every revision."""
    return {names.LABEL_NAME: name, names.LABEL_ROLE: names.ROLE_LEADER}


def group_selector(sd: SpeculativeDeployment) -> dict[str, JsonValue]:
    """Selects leaders and headless workers of every revision, and not what fetches weights."""
    roles: list[JsonValue] = [names.ROLE_LEADER, names.ROLE_WORKER]
    return {
        "matchLabels": {names.LABEL_NAME: sd.metadata.name},
        "matchExpressions": [{"key": names.LABEL_ROLE, "operator": "In", "values": roles}],
    }


def child_metadata(
    sd: SpeculativeDeployment,
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, JsonValue]:
    """Name, labels and, where the resource lives in a cluster, its ownership."""
    own: dict[str, JsonValue] = {
        names.LABEL_MANAGED_BY: MANAGED_BY,
        names.LABEL_NAME: sd.metadata.name,
    }
    metadata: dict[str, JsonValue] = {
        "name": name,
        # Invented, it would stand against `kubectl apply -n`.
        **({"namespace": sd.metadata.namespace} if sd.metadata.namespace else {}),
        # Last again: by these the operator finds its own.
        "labels": {**own, **(labels or {}), **own},
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    if sd.metadata.uid:
        metadata["ownerReferences"] = [controlled_by(names.KIND, sd.metadata)]
    return metadata


def controlled_by(kind: str, owner: Metadata) -> dict[str, JsonValue]:
    """The reference that has Kubernetes delete a child once its owner is gone."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": kind,
        "name": owner.name,
        "uid": owner.uid,
        # No blockOwnerDeletion: to set it may need a right on the owner's finalizers.
        "controller": True,
    }
