"""Writes the schema of a pod template (`pod_schema.json`) from the Kubernetes client's models.

What decides imports no client, and a file shows in a review what a newer client brings.
"""

import json
import sys
from typing import Any

from kubernetes.aio.client import models

ROOT = "V1PodTemplateSpec"


def schema() -> str:
    """By the name of a type, its fields with their types; one line for each type.

    A field's type is `str`, `int`, `bool`, `object` (anything), `datetime` or another type's name;
    `[T]` is a list of them, and `{T}` a map from text to them.
    """
    found: dict[str, dict[str, str]] = {}
    unread = [ROOT]
    while unread:
        name = unread.pop()
        if name in found:
            continue
        model: Any = getattr(models, name)
        found[name] = {
            model.attribute_map[field]: _written(said)
            for field, said in model.openapi_types.items()
        }
        unread += [
            inner for said in found[name].values() if hasattr(models, inner := said.strip("[]{}"))
        ]
    lines = (f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _written(said: str) -> str:
    """A type as the client writes it, `List[X]` or `Dict[str, X]`, in fewer letters."""
    for before, after in (("List[", "[]"), ("Dict[str, ", "{}")):
        if said.startswith(before):
            inner = _written(said.removeprefix(before).removesuffix("]"))
            return f"{after[0]}{inner}{after[1]}"
    return said


if __name__ == "__main__":
    sys.stdout.write(schema())
