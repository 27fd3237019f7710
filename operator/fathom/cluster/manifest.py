"""One Kubernetes object as plain JSON, and the metadata that each has."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import is_
from typing import Annotated, Self, cast

from pydantic import AwareDatetime, BeforeValidator, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

from fathom.api.base import LeanModel

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
        """Read it from an object as the API server gave it."""
        metadata = cast("Mapping[str, JsonValue]", live["metadata"])
        return cls(str(metadata["uid"]), str(metadata["resourceVersion"]))

    def in_metadata(self) -> dict[str, JsonValue]:
        """As a write carries it, for the API server to compare."""
        return {"uid": self.uid, "resourceVersion": self.resource_version}


def place_of(manifest: Manifest) -> tuple[str, str]:
    """Namespace and name of an object that is in a namespace; no name: it is yet to get one."""
    metadata = cast("Mapping[str, JsonValue]", manifest["metadata"])
    return str(metadata["namespace"]), str(metadata.get("name", ""))


def sharing(found: JsonValue, like: JsonValue) -> JsonValue:
    """An object that was just parsed, with what is equal in another one being that one's.

    Pods of one resource differ in a few lines, and all plugin ConfigMaps hold the same 60 KB. What
    is shared is never changed again, in either.

    Args:
        found: nobody else has it yet.
        like: one that is likely to be much the same.
    """
    if isinstance(found, dict) and isinstance(like, dict):
        for key, value in found.items():
            found[key] = sharing(value, like.get(key))
        same = found.keys() == like.keys() and all(like[key] is found[key] for key in found)
        return like if same else found
    if isinstance(found, list) and isinstance(like, list):
        for at, (value, other) in enumerate(zip(found, like, strict=False)):
            found[at] = sharing(value, other)
        same = len(found) == len(like) and all(map(is_, found, like))
        return like if same else found
    # In Python, but not in JSON, 1 equals true and 1.0.
    return like if type(found) is type(like) and found == like else found


def absent_as(default: object) -> BeforeValidator:
    """Kubernetes writes an empty list or map as null as often as not."""
    return BeforeValidator(lambda value: default if value is None else value)


class ObservedModel(LeanModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, validate_by_name=True
    )


Strings = Annotated[Mapping[str, str], absent_as({})]


class Owner(ObservedModel):
    uid: str
    kind: str = ""
    name: str = ""
    controller: bool = False


class Meta(ObservedModel):
    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    labels: Strings = Field(default_factory=dict)
    annotations: Strings = Field(default_factory=dict)
    creation_timestamp: AwareDatetime | None = None
    deletion_timestamp: AwareDatetime | None = None
    owner_references: Annotated[tuple[Owner, ...], absent_as(())] = ()


class ObservedCondition(ObservedModel):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: AwareDatetime | None = None


def count(quantity: int | str | None) -> int:
    """A quantity of whole things; what is spelled in another way than a number counts as none."""
    text = str(quantity)
    return int(text) if text.isdecimal() else 0


def owned_by(api_version: str, kind: str, name: str, uid: str) -> list[JsonValue]:
    """What goes with its owner, who does not control it; empty: there is none."""
    if not uid:
        return []
    return [{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}]
