"""CustomResourceDefinitions of others, cut down to what Fathom uses of them."""

from pathlib import Path
from typing import Any

import yaml

CRDS = Path(__file__).parent / "crds"


def crd(file: str) -> dict[str, Any]:
    """One CustomResourceDefinition, to install."""
    found: dict[str, Any] = yaml.safe_load((CRDS / file).read_text(encoding="utf-8"))
    return found


def schema_of(file: str) -> dict[str, Any]:
    """Its schema, in which a field that it does not know is an error; a server would prune it."""
    (version,) = crd(file)["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    _close(schema["properties"]["spec"])
    return schema


def _close(schema: dict[str, Any]) -> None:
    if "properties" in schema:
        schema["additionalProperties"] = False
        for each in schema["properties"].values():
            _close(each)
    if "items" in schema:
        _close(schema["items"])
