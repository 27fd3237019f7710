"""What a user merges over the pods of one replica: `podTemplate`, and over workers one more."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.ranks import Role
from fathom.manifests.pod.group import for_worker

POD_TEMPLATE: Final = "spec.podTemplate"
WORKER_TEMPLATE: Final = "spec.workerTemplate"


@dataclass(frozen=True, slots=True)
class Overlay:
    field: str
    """Path of it."""
    given: Mapping[str, JsonValue]
    """As its user wrote it, as far as it concerns the pods in question."""


def overlays(spec: SpeculativeDeploymentSpec, role: Role) -> tuple[Overlay, ...]:
    """In the order in which they are merged; the last is for such pods alone."""
    if role is Role.LEADER:
        return (Overlay(POD_TEMPLATE, spec.pod_template),)
    return (
        Overlay(POD_TEMPLATE, for_worker(spec.pod_template, names.ENGINE_CONTAINER)),
        Overlay(WORKER_TEMPLATE, spec.worker_template),
    )
