"""What an API server does with a structural schema: defaulting, pruning, and its own rules."""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]


def spec_schema(crd: Schema) -> Schema:
    (version,) = crd["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]["spec"]


def with_defaults(schema: Schema, value: Any) -> Any:
    """The value as the API server stores it: nulls that may not be dropped, defaults filled in."""
    return _defaulted(schema, _without_nulls(schema, value))


def _without_nulls(schema: Schema, value: Any) -> Any:
    """Without nulls of fields that are not nullable, and have no default to stand there instead."""
    if isinstance(value, dict):
        return {
            name: child if of is None else _without_nulls(of, child)
            for name, child in value.items()
            if (of := _schema_of(schema, name)) is None or child is not None or "default" in of
        }
    if isinstance(value, list) and "items" in schema:
        return [_without_nulls(schema["items"], child) for child in value]
    return value


def _schema_of(schema: Schema, name: str) -> Schema | None:
    extra = schema.get("additionalProperties")
    of: Schema | None = schema.get("properties", {}).get(name)
    return extra if of is None and isinstance(extra, dict) else of


def _defaulted(schema: Schema, value: Any) -> Any:
    if isinstance(value, dict):
        filled = dict(value)
        for name, child in schema.get("properties", {}).items():
            if filled.get(name) is None and "default" in child:
                filled[name] = child["default"]
        return {
            name: child if (of := _schema_of(schema, name)) is None else _defaulted(of, child)
            for name, child in filled.items()
        }
    if isinstance(value, list) and "items" in schema:
        return [_defaulted(schema["items"], child) for child in value]
    return value


def nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every schema node with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(child := schema.get(key), dict):
            yield from nodes(child, f"{path}[{key}]")
