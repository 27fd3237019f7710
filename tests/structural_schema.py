"""What an API server does with a structural schema: defaulting, pruning, and its own rules."""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]


def spec_schema(crd: Schema) -> Schema:
    (version,) = crd["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]["spec"]


def with_defaults(schema: Schema, value: Any) -> Any:
    """The value as the API server stores it, defaults filled in."""
    if isinstance(value, dict):
        filled = dict(value)
        for name, child in schema.get("properties", {}).items():
            if name not in filled and "default" in child:
                filled[name] = child["default"]
            if name in filled:
                filled[name] = with_defaults(child, filled[name])
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            filled = {name: with_defaults(extra, child) for name, child in filled.items()}
        return filled
    if isinstance(value, list):
        return [with_defaults(schema["items"], child) for child in value]
    return value


def nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every schema node with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(child := schema.get(key), dict):
            yield from nodes(child, f"{path}[{key}]")
