"""Writes the chart's README: every value of it, from its schema and its defaults."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, cast

import yaml
from pydantic import JsonValue

CHART: Final = Path(__file__).parents[2] / "charts" / "fathom"
_DOCS: Final = "https://github.com/fathom-dev/fathom/blob/main/docs"

_HEAD: Final = f"""# Fathom's Helm chart

Generated from `values.yaml` and `values.schema.json` by `make regenerate`.

It installs the operator, its rights, and the CustomResourceDefinition of SpeculativeDeployment. How
to install, upgrade, roll back and uninstall it: [install]({_DOCS}/install.md). Helm refuses a value
that is not listed here.

| value | type | default | |
|---|---|---|---|
"""

_Schema = Mapping[str, JsonValue]


def reference() -> str:
    """The whole page."""
    schema: JsonValue = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    defaults: JsonValue = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    root = _mapping(schema)
    definitions = _mapping(root["definitions"])
    return _HEAD + "\n".join(_rows(root, _mapping(defaults), definitions)) + "\n"


def _rows(
    schema: _Schema, defaults: _Schema, definitions: _Schema, path: str = "", about: str = ""
) -> Iterator[str]:
    """A row for each value; an object with fields is the rows of those, and what they are about."""
    for name, child in _mapping(schema["properties"]).items():
        value = _mapping(child)
        said = _flat(value["description"])
        if "properties" in value:
            inner = _mapping(defaults.get(name, {}))
            yield from _rows(value, inner, definitions, f"{path}{name}.", f"{said} ")
        elif name in defaults:
            default = json.dumps(defaults[name])
            yield f"| `{path}{name}` | {_type(value, definitions)} | `{default}` | {about}{said} |"


def _type(schema: _Schema, definitions: _Schema) -> str:
    if isinstance(options := schema.get("enum"), list):
        return ", ".join(f"`{option}`" for option in options)
    if isinstance(reference := schema.get("$ref"), str):
        return _type(_mapping(definitions[reference.rpartition("/")[2]]), definitions)
    if isinstance(items := schema.get("items"), dict):
        return f"list of {_type(items, definitions)}"
    if isinstance(values := schema.get("additionalProperties"), dict):
        return f"map of {_type(values, definitions)}"
    kinds = schema.get("type", "object")
    return " or ".join(map(str, kinds)) if isinstance(kinds, list) else str(kinds)


def _flat(text: JsonValue) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def _mapping(value: JsonValue) -> _Schema:
    if not isinstance(value, dict):
        raise TypeError(f"expected an object of the chart's values, found {value!r}")
    return cast("_Schema", value)


if __name__ == "__main__":
    sys.stdout.write(reference())
