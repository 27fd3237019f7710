"""What builders return: one Kubernetes object as plain JSON, ready to be applied or printed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, cast

from pydantic import JsonValue

Manifest = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Seen:
    """One object in the state in which it was read: what a write to it was decided on."""

    uid: str
    """Another object of the same name has another one."""
    resource_version: str
    """Moves with every change, whoever makes it."""

    @classmethod
    def of(cls, live: Manifest) -> Self:
        """Of an object as the API server gave it."""
        metadata = cast("Mapping[str, JsonValue]", live["metadata"])
        return cls(str(metadata["uid"]), str(metadata["resourceVersion"]))

    def in_metadata(self) -> dict[str, JsonValue]:
        """As a write carries it, for the API server to compare."""
        return {"uid": self.uid, "resourceVersion": self.resource_version}


def place_of(manifest: Manifest) -> tuple[str, str]:
    """Namespace and name of an object that is in a namespace; no name: it is yet to get one."""
    metadata = cast("Mapping[str, JsonValue]", manifest["metadata"])
    return str(metadata["namespace"]), str(metadata.get("name", ""))
