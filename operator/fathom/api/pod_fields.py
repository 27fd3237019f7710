"""Parts of the spec that are spelled as Kubernetes spells them."""

import re
from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticKnownError

from fathom.api.base import WITHOUT_NULLS, ApiModel

QUANTITY_OR_NOTHING: Final = r"^([0-9]+(\.[0-9]+)?([kMGTPE]|[KMGTPE]i)?)?$"
"""Bytes as Kubernetes writes them, without exponents and fractions of a byte."""
OBJECT_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
OBJECT_KEY: Final = r"^[-._a-zA-Z0-9]+$"
"""A Secret or ConfigMap, and a key of one. They are printed in commands that people copy."""
QUANTITY_FIELDS: Final = frozenset({"limits", "requests", "overhead", "sizeLimit", "divisor"})
"""Fields of a pod that are a quantity, or hold nothing else. They may be a number: `cpu: 8`."""

_QUANTITY: Final = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?"
)
_UNITS: Final[Mapping[str, Decimal]] = MappingProxyType(
    {
        **{unit: Decimal(1000) ** power for power, unit in enumerate("num", start=-3)},
        **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
        **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
    }
)


def amount_of(quantity: object) -> Decimal | None:
    """What a quantity amounts to; None: it is none.

    Source: `ParseQuantity` in k8s.io/apimachinery, pkg/api/resource/quantity.go.
    """
    found = _QUANTITY.fullmatch(str(quantity))
    if found is None:
        return None
    number, unit = found[1], found[2] or ""
    if unit[:1] in {"e", "E"} and unit not in _UNITS:
        return Decimal(f"{number}{unit}")
    return Decimal(number) * (_UNITS[unit] if unit else 1)


class AccessMode(StrEnum):
    """As Kubernetes spells them."""

    READ_WRITE_ONCE = "ReadWriteOnce"
    READ_ONLY_MANY = "ReadOnlyMany"
    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE_POD = "ReadWriteOncePod"


class SecretKeyRef(ApiModel):
    name: Annotated[str, Field(min_length=1, max_length=253, pattern=OBJECT_NAME)]
    """Name of the Secret, in the same namespace."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=OBJECT_KEY)]
    """Key within the Secret."""


class SecretRef(ApiModel):
    name: Annotated[str, Field(min_length=1, max_length=253, pattern=OBJECT_NAME)]
    """Name of the Secret, in the same namespace."""


class ConfigMapKeyRef(ApiModel):
    name: Annotated[str, Field(min_length=1, max_length=253, pattern=OBJECT_NAME)]
    """Name of the ConfigMap, in the same namespace."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=OBJECT_KEY)]
    """Key within the ConfigMap."""


class KeySelector(ApiModel):
    """A key of a Secret or ConfigMap in the same namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the Secret or ConfigMap."""
    key: Annotated[str, Field(min_length=1, max_length=253)]
    """Key within it."""
    optional: bool = False
    """Whether the pod may start without it."""


class FieldSelector(ApiModel):
    """A field of the pod itself."""

    field_path: Annotated[str, Field(min_length=1, max_length=253)]
    """Path of the field, such as status.podIP."""


class EnvVarSource(ApiModel):
    """Where the value of a variable comes from; one of the three."""

    secret_key_ref: KeySelector | None = None
    """A key of a Secret."""
    config_map_key_ref: KeySelector | None = None
    """A key of a ConfigMap."""
    field_ref: FieldSelector | None = None
    """A field of the pod."""


class EnvVar(ApiModel):
    """One environment variable of the engine, as in a Pod."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the variable."""
    value: Annotated[str, Field(max_length=32_768)] | None = None
    """Its value; $(OTHER) is replaced as in a Pod."""
    value_from: EnvVarSource | None = None
    """Where its value comes from, in place of `value`."""


def _whole_or_text(value: object) -> object:
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0
    if not (whole or isinstance(value, str)):
        raise PydanticKnownError("string_type")
    return value


Quantity = Annotated[
    int | str,
    Field(json_schema_extra={"x-kubernetes-int-or-string": True}),
    BeforeValidator(_whole_or_text),
]


class Resources(ApiModel):
    """Requests and limits of the engine container; the GPUs are added by the operator."""

    requests: Annotated[dict[str, Quantity], WITHOUT_NULLS] = Field(default_factory=dict)
    """What the scheduler reserves, such as cpu: "16"."""
    limits: Annotated[dict[str, Quantity], WITHOUT_NULLS] = Field(default_factory=dict)
    """What the container may use at most."""


class Toleration(ApiModel):
    """A toleration, as in a Pod."""

    key: Annotated[str, Field(max_length=317)] = ""
    """Key of the taint; empty with Exists: any taint."""
    operator: Annotated[str, Field(pattern="^(Exists|Equal)$")] = "Equal"
    """Exists: whatever the taint's value; Equal: `value`."""
    value: Annotated[str, Field(max_length=63)] = ""
    """Value of the taint, with Equal."""
    effect: Annotated[str, Field(pattern="^(|NoSchedule|PreferNoSchedule|NoExecute)$")] = ""
    """Effect of the taint; empty: any."""
    toleration_seconds: int | None = None
    """With NoExecute: how long a pod stays, seconds; absent: for good."""
