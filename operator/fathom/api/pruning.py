"""A resource without what this release does not know of: as an API server with its CRD prunes it.

An API server keeps nothing that its own CRD does not know. So what is left of that in a resource of
a cluster is of a CRD of another release: see docs/design/0031-crds-of-other-releases.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, JsonValue

from fathom.api.model_fields import models_of_fields


@dataclass(frozen=True, slots=True)
class Pruned:
    known: dict[str, JsonValue]
    unknown: tuple[str, ...]
    """Paths of what was left out, such as `spec.rollout.pace`."""


def pruned(model: type[BaseModel], document: Mapping[str, JsonValue]) -> Pruned:
    """The document with the fields of a model that refuses others."""
    unknown: list[str] = []
    return Pruned(_known(model, document, "", unknown), tuple(unknown))


def _known(
    model: type[BaseModel], document: Mapping[str, JsonValue], place: str, unknown: list[str]
) -> dict[str, JsonValue]:
    fields = models_of_fields(model)
    known: dict[str, JsonValue] = {}
    for name, value in document.items():
        path = f"{place}{name}"
        if name in fields:
            known[name] = _value(fields[name], value, path, unknown)
        else:
            unknown.append(path)
    return known


def _value(
    model: type[BaseModel] | None, value: JsonValue, path: str, unknown: list[str]
) -> JsonValue:
    if model is None or model.model_config.get("extra") != "forbid":
        return value
    if isinstance(value, list):
        return [
            _known(model, item, f"{path}[{index}].", unknown) if isinstance(item, dict) else item
            for index, item in enumerate(value)
        ]
    return _known(model, value, f"{path}.", unknown) if isinstance(value, dict) else value
