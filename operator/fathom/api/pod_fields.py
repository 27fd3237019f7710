"""Parts of the spec that are spelled as Kubernetes spells them."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticKnownError

from fathom.api.base import ApiModel

QUANTITY_OR_NOTHING: Final = r"^([0-9]+(\.[0-9]+)?([kMGTPE]|[KMGTPE]i)?)?$"
"""Bytes as Kubernetes writes them, without exponents and fractions of a byte."""


class AccessMode(StrEnum):
    """As Kubernetes spells them."""

    READ_WRITE_ONCE = "ReadWriteOnce"
    READ_ONLY_MANY = "ReadOnlyMany"
    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE_POD = "ReadWriteOncePod"


class SecretKeyRef(ApiModel):
    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the Secret, in the same namespace."""
    key: Annotated[str, Field(min_length=1, max_length=253)]
    """Key within the Secret."""


class KeySelector(ApiModel):
    name: Annotated[str, Field(min_length=1, max_length=253)]
    key: Annotated[str, Field(min_length=1, max_length=253)]
    optional: bool = False


class FieldSelector(ApiModel):
    field_path: Annotated[str, Field(min_length=1, max_length=253)]


class EnvVarSource(ApiModel):
    secret_key_ref: KeySelector | None = None
    config_map_key_ref: KeySelector | None = None
    field_ref: FieldSelector | None = None


class EnvVar(ApiModel):
    """One environment variable of the engine, as in a Pod."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    value: Annotated[str, Field(max_length=32_768)] | None = None
    value_from: EnvVarSource | None = None


def _no_truth(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticKnownError("string_type")
    return value


Quantity = Annotated[
    int | str,
    Field(json_schema_extra={"x-kubernetes-int-or-string": True}),
    BeforeValidator(_no_truth),
]


class Resources(ApiModel):
    """Requests and limits of the engine container; the GPUs are added by the operator."""

    requests: dict[str, Quantity] = Field(default_factory=dict)
    limits: dict[str, Quantity] = Field(default_factory=dict)


class Toleration(ApiModel):
    """A toleration, as in a Pod."""

    key: Annotated[str, Field(max_length=317)] = ""
    operator: Annotated[str, Field(pattern="^(Exists|Equal)$")] = "Equal"
    value: Annotated[str, Field(max_length=63)] = ""
    effect: Annotated[str, Field(pattern="^(|NoSchedule|PreferNoSchedule|NoExecute)$")] = ""
    toleration_seconds: int | None = None
