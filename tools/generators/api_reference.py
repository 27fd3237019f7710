"""Writes the API reference (docs/api.md) from the CRD: one table for each object of the spec."""

import json
import sys
from collections.abc import Iterator, Mapping
from typing import cast

from pydantic import JsonValue

from fathom.api.crd import custom_resource_definition
from fathom.api.names import API_VERSION, KIND

Schema = Mapping[str, JsonValue]


def _head(definition: Schema) -> str:
    names = _mapping(definition["names"])
    short = cast("list[str]", names["shortNames"])
    listed = ", ".join(f"`{name}`" for name in short)
    several = "short names" if len(short) > 1 else "short name"
    return f"""# {names["kind"]}

`{API_VERSION}`, kind `{names["kind"]}`, {several} {listed}.
Generated from the CRD by `make regenerate`; the same is in
`kubectl explain {short[-1]} --recursive`.
"""


def reference(kind: str) -> str:
    """The whole page of a kind."""
    definition = _mapping(custom_resource_definition(kind)["spec"])
    (version,) = cast("list[Schema]", definition["versions"])
    root = _mapping(_mapping(version["schema"])["openAPIV3Schema"])
    properties = {name: _mapping(child) for name, child in _mapping(root["properties"]).items()}
    sections = [_head(definition)]
    for name in ("spec", "status"):
        sections += _sections(name, properties[name])
    sections.append(_rules(properties["spec"], root))
    return "\n".join(sections)


def _sections(path: str, schema: Schema) -> Iterator[str]:
    """A table of an object's own fields, then the objects in it."""
    properties = _mapping(schema["properties"])
    required = schema.get("required", [])
    lines = [f"## {path}", ""]
    if "." in path and "description" in schema:
        lines += [_flat(schema["description"]), ""]
    lines += ["| field | type | default | |", "|---|---|---|---|"]
    lines += [
        f"| `{name}` | {_type(_mapping(child))} | {_default(name, child, required)} "
        f"| {_description(_mapping(child))} |"
        for name, child in properties.items()
    ]
    yield "\n".join(lines) + "\n"
    for name, child in properties.items():
        inner = _mapping(child)
        suffix = ""
        if isinstance(items := inner.get("items"), dict):
            inner, suffix = items, "[]"
        if "properties" in inner:
            yield from _sections(f"{path}.{name}{suffix}", inner)


def _rules(spec: Schema, root: Schema) -> str:
    rules = cast("list[Schema]", spec["x-kubernetes-validations"])
    of_new = cast("list[Schema]", root.get("x-kubernetes-validations", []))
    lines = ["## Rules across fields", "", "| about | refused with |", "|---|---|"]
    lines += [f"| `spec{rule['fieldPath']}` | {_flat(rule['message'])} |" for rule in rules]
    for rule in of_new:
        field, _, message = str(rule["message"]).partition(": ")
        lines.append(f"| `{field}` | {_flat(message)} |")
    return "\n".join(lines) + "\n"


def _type(schema: Schema) -> str:
    if isinstance(options := schema.get("enum"), list):
        return ", ".join(f"`{option}`" for option in options)
    if isinstance(items := schema.get("items"), dict):
        return f"list of {_type(items)}"
    if isinstance(values := schema.get("additionalProperties"), dict):
        return f"map of {_type(values)}"
    if "x-kubernetes-int-or-string" in schema:
        return "quantity"
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None or high is None:
        return str(schema.get("type", "object"))
    above = "above " if schema.get("exclusiveMinimum") else ""
    return f"{schema['type']}, {above}{low} to {high}"


def _default(name: str, schema: JsonValue, required: JsonValue) -> str:
    default = _mapping(schema).get("default")
    if isinstance(required, list) and name in required:
        return "**required**"
    if default is None or default in ("", {}, []):
        return ""
    return f"`{json.dumps(default) if not isinstance(default, str) else default}`"


def _description(schema: Schema) -> str:
    return _flat(schema.get("description", ""))


def _flat(text: JsonValue) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def _mapping(value: JsonValue) -> Schema:
    if not isinstance(value, dict):
        raise TypeError(f"expected an object of the CRD's schema, found {value!r}")
    return value


if __name__ == "__main__":
    sys.stdout.write(reference(sys.argv[1] if len(sys.argv) > 1 else KIND))
