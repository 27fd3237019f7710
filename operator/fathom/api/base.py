from collections.abc import Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticKnownError

_SCALARS: Final[Mapping[type, Literal["bool_type", "int_type", "float_type"]]] = {
    bool: "bool_type",
    int: "int_type",
    float: "float_type",
}


class ApiModel(BaseModel):
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
            refused = isinstance(value, str | bytes) or isinstance(value, bool) != (wanted is bool)
            if wanted in _SCALARS and value is not None and refused:
                raise PydanticKnownError(_SCALARS[wanted])
        return value


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
