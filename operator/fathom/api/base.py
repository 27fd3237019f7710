"""How every model of the API reads a value: as an API server with its schema does."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from types import UnionType
from typing import Annotated, Any, Final, Literal, Self, Union, get_args, get_origin

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

_NOT_KEPT: Final = set[str]()
Location = Sequence[str | int]
"""Place of a value in a manifest: names of fields, and numbers of items."""
_SCALARS: Final[Mapping[type, Literal["bool_type", "int_type", "float_type"]]] = {
    bool: "bool_type",
    int: "int_type",
    float: "float_type",
}


class LeanModel(BaseModel):
    """Does not keep which of its fields were given: nobody asks.

    Such a set takes 216 bytes, as much as the fields of a small model: a ninth of the memory of an
    operator beside 1,000 resources. Models are not changed, so that all can have the same one.
    `exclude_unset` leaves out everything.
    """

    def model_post_init(self, _: Any, /) -> None:
        """Called for each that was read."""
        object.__setattr__(self, "__pydantic_fields_set__", _NOT_KEPT)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As any model's."""
        copied = super().model_copy(update=update, deep=deep)
        copied.model_post_init(None)
        return copied


def path_of(location: Location) -> str:
    """Such as `spec.engine.args[1]`."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.removeprefix(".")


def names_of(model: type[BaseModel] | None) -> list[str]:
    """Names of a model's fields, as they are written in a manifest."""
    return list(models_of_fields(model)) if model is not None else []


@cache
def models_of_fields(model: type[BaseModel]) -> Mapping[str, type[BaseModel] | None]:
    """By name, as in a manifest: what stands there, be it in a list; None: no fields of ours."""
    fields = model.model_fields.items()
    return {field.alias or name: _model_in(field.annotation) for name, field in fields}


def model_at(root: type[BaseModel], location: Location) -> type[BaseModel] | None:
    """What stands there, be it in a list; None: no fields of ours."""
    model: type[BaseModel] | None = root
    for part in location:
        if model is None or isinstance(part, int):
            continue
        fields = model.model_fields.items()
        model = next(
            (_model_in(each.annotation) for name, each in fields if part in {name, each.alias}),
            None,
        )
    return model


@cache
def paths_by_name(root: type[BaseModel]) -> Mapping[str, Sequence[str]]:
    """Where fields of each name are; not those in lists, or in what is left out by default."""
    found: dict[str, list[str]] = {}
    for path in _paths(root, ""):
        found.setdefault(path.rsplit(".", 1)[-1], []).append(path)
    return found


def _paths(model: type[BaseModel], above: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        path = f"{above}{field.alias or name}"
        yield path
        kind = field.annotation
        # Kubernetes' own metadata is no place to send anyone to.
        if isinstance(kind, type) and issubclass(kind, BaseModel) and path != "metadata":
            yield from _paths(kind, f"{path}.")


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The model inside `Model`, `Model | None`, `tuple[Model, ...]` or `Annotated[...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if (found := _model_in(argument)) is not None:
            return found
    return None


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
"""Drops nulls among values under names of the user's own: what is null is not there."""
Texts = Annotated[dict[str, str], WITHOUT_NULLS]
WHOLE_NUMBER: Final = BeforeValidator(partial(_of_type, int))
"""Checks an item of a list; where it is a field, `ApiModel` does that."""


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
    """Names of its fields, outside and inside."""
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
