"""The fields of a manifest as its writer sees them: paths, and the names at each of them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from pydantic import BaseModel

Location = Sequence[str | int]
"""Of a value in a manifest: names of fields, and numbers of items."""


def path_of(location: Location) -> str:
    """Such as `spec.engine.args[1]`."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.removeprefix(".")


def names_of(model: type[BaseModel] | None) -> list[str]:
    """Of a model's fields, as they are written in a manifest."""
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
