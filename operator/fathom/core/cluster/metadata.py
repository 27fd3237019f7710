"""What every object of a cluster has: its metadata, and how the rest of it is read."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from fathom.api.lean_model import LeanModel


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
