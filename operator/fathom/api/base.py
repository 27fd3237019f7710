"""How every model of the API reads a value: as an API server with its schema does."""

from collections.abc import Iterator, Mapping
from functools import cache, partial
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticKnownError

from fathom.api.lean_model import LeanModel
from fathom.api.model_fields import names_of

_SCALARS: Final[Mapping[type, Literal["bool_type", "int_type", "float_type"]]] = {
    bool: "bool_type",
    int: "int_type",
    float: "float_type",
}


def _without_nulls(value: object) -> object:
    if not isinstance(value, dict) or None not in value.values():
        return value
    return {key: each for key, each in value.items() if each is not None}


def _of_type(wanted: type, value: object) -> object:
    """The value, unless pydantic would make what is wanted out of something else."""
    other = isinstance(value, str | bytes) or isinstance(value, bool) != (wanted is bool)
    if wanted in _SCALARS and other:
        raise PydanticKnownError(_SCALARS[wanted])
    return value


WITHOUT_NULLS: Final = BeforeValidator(_without_nulls)
"""Of values under names of the user's own: what is null is not there."""
Texts = Annotated[dict[str, str], WITHOUT_NULLS]
WHOLE_NUMBER: Final = BeforeValidator(partial(_of_type, int))
"""Of an item of a list; where it is a field, `ApiModel` sees to it."""


class NullIsAbsent(LeanModel):
    """A field that is null is not there, and its default holds.

    An API server does so with every field that its schema does not call nullable, and with what
    stands under a name of the user's own, before it fills in defaults (apiextensions-apiserver,
    `PruneNonNullableNullsWithoutDefaults`, and `Default`). Items of lists stay, and are refused.
    """

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, given: object) -> object:
        if not isinstance(given, dict) or None not in given.values():
            return given
        known = _names(cls)
        return {key: each for key, each in given.items() if each is not None or key not in known}


class ApiModel(NullIsAbsent):
    """Frozen; camelCase outside, snake_case inside; unknown fields are refused.

    Values have the types that the API server asks for: `true` is no number, "3" is none, 3.0 is.

    Attribute docstrings become the descriptions in the CRD.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_other_types(cls, value: object, info: ValidationInfo) -> object:
        for wanted in _wanted(cls, str(info.field_name)):
            _of_type(wanted, value)
        return value


@cache
def _names(model: type[BaseModel]) -> frozenset[str]:
    """Of its fields, outside and inside."""
    return frozenset({*model.model_fields, *names_of(model)})


@cache
def _wanted(model: type[ApiModel], field: str) -> tuple[type, ...]:
    """The types that a field takes: looked up at each value of each resource at each pass."""
    return tuple(_unwrapped(model.model_fields[field].annotation))


def _unwrapped(annotation: Any) -> Iterator[type]:
    """The types in `int`, `int | None` or `Annotated[int, ...] | None`, and none inside those."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in {Union, UnionType}:
        for each in get_args(annotation):
            yield from _unwrapped(each)
    else:
        yield annotation
