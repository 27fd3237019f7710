"""Generates the CustomResourceDefinition from the models. `make verify` keeps `crds/` in step."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, cast

from pydantic import JsonValue

from fathom.api import names
from fathom.api.base import ApiModel
from fathom.api.cel_rules import CREATION_RULES, RULES
from fathom.api.names import LONGEST_NAME, NAME_PATTERN
from fathom.api.problem import Rule
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.api.tuner import TUNER_RULES, SpeculationTunerSpec, SpeculationTunerStatus

Schema = dict[str, JsonValue]

# What a structural schema knows of what pydantic emits; the rest is dropped.
_KEPT: Final = (
    "description",
    "enum",
    "format",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-preserve-unknown-fields",
)

_Columns = tuple[tuple[str, str, str, int], ...]
_OF_BOTH: Final[_Columns] = (
    ("Reason", "string", ".status.reason", 0),
    ("Depth", "string", ".status.depth.summary", 0),
    ("Accept", "string", ".status.measured.acceptanceLength", 0),
    ("Gain", "string", ".status.measured.gainPercent", 0),
    ("Tuning", "string", ".status.tuning.summary", 0),
    ("Watched", "date", ".status.lastReconcileTime", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)
_DEPLOYMENT_COLUMNS: Final[_Columns] = (
    ("Ready", "string", ".status.ready", 0),
    *_OF_BOTH,
    ("Model", "string", ".spec.model.id", 1),
    ("Draft", "string", ".status.draft.family", 1),
    ("Engine", "string", ".status.engine.version", 1),
    ("Actuation", "string", ".status.engine.actuation", 1),
    ("Tok/s", "integer", ".status.measured.tokensPerSecond", 1),
)
_TUNER_COLUMNS: Final[_Columns] = (
    ("Pods", "string", ".status.readable", 0),
    ("Level", "string", ".status.level", 0),
    *_OF_BOTH,
    ("Tok/s", "integer", ".status.measured.tokensPerSecond", 1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Definition:
    """What one kind has otherwise than the other."""

    description: str
    names: Schema
    spec: type[ApiModel]
    status: type[ApiModel]
    columns: _Columns
    spec_rules: Sequence[JsonValue]
    creation_rules: Sequence[JsonValue] = ()
    subresources: Schema = field(default_factory=dict)


def _on_spec(rules: Iterable[Rule[Any]]) -> list[JsonValue]:
    return [
        {"rule": rule.cel, "message": rule.message, "fieldPath": f".{rule.field}"} for rule in rules
    ]


_DEPLOYMENT: Final = _Definition(
    description="A target model served with speculative decoding whose depth follows live "
    "measurements.",
    names={
        "kind": names.KIND,
        "listKind": names.LIST_KIND,
        "plural": names.PLURAL,
        "singular": names.SINGULAR,
        "shortNames": list(names.SHORT_NAMES),
        "categories": list(names.CATEGORIES),
    },
    spec=SpeculativeDeploymentSpec,
    status=SpeculativeDeploymentStatus,
    columns=_DEPLOYMENT_COLUMNS,
    spec_rules=_on_spec(RULES),
    # No fieldPath: the server's own schema of metadata is another.
    creation_rules=[
        {"rule": rule.cel, "message": f"{rule.field}: {rule.message}"} for rule in CREATION_RULES
    ],
    subresources={
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    },
)
_TUNER: Final = _Definition(
    description="vLLM pods that Fathom did not start, whose speculation depth is to follow live "
    "measurements. It owns no pods.",
    names={
        "kind": names.TUNER_KIND,
        "listKind": names.TUNER_LIST_KIND,
        "plural": names.TUNER_PLURAL,
        "singular": names.TUNER_SINGULAR,
        "shortNames": list(names.TUNER_SHORT_NAMES),
        "categories": list(names.CATEGORIES),
    },
    spec=SpeculationTunerSpec,
    status=SpeculationTunerStatus,
    columns=_TUNER_COLUMNS,
    spec_rules=[
        *_on_spec(TUNER_RULES),
        {
            "rule": "self.selector == oldSelf.selector",
            "message": "a selector cannot be changed: make another SpeculationTuner.",
            "fieldPath": ".selector",
        },
    ],
)


_DEFINITIONS: Final = {names.KIND: _DEPLOYMENT, names.TUNER_KIND: _TUNER}


def custom_resource_definition(kind: str = names.KIND) -> Schema:
    """The CRD of a kind, as a plain object, ready to be written as YAML."""
    return _definition(_DEFINITIONS[kind])


def _definition(kind: _Definition) -> Schema:
    spec = _structural(kind.spec)
    spec["x-kubernetes-validations"] = [*kind.spec_rules]
    schema: Schema = {
        "type": "object",
        "description": kind.description,
        "required": ["spec"],
    }
    if kind.creation_rules:
        schema["x-kubernetes-validations"] = [*kind.creation_rules]
    schema["properties"] = {
        # The server describes these itself, and takes no description.
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": LONGEST_NAME, "pattern": NAME_PATTERN}
            },
        },
        "spec": spec,
        "status": _structural(kind.status),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.names['plural']}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": kind.names,
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}, **kind.subresources},
                    "additionalPrinterColumns": [
                        {"name": name, "type": shown, "jsonPath": path}
                        | ({"priority": priority} if priority else {})
                        for name, shown, path, priority in kind.columns
                    ],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _structural(model: type[ApiModel]) -> Schema:
    schema = model.model_json_schema(by_alias=True)
    definitions = schema.pop("$defs", {})
    return _convert(schema, definitions)


def _convert(schema: Mapping[str, JsonValue], definitions: Mapping[str, JsonValue]) -> Schema:
    """One node of pydantic's JSON schema as a structural schema: no $ref, no anyOf, no null."""
    node = _resolve(schema, definitions)
    if "x-kubernetes-int-or-string" in node:
        return {"x-kubernetes-int-or-string": True}
    if isinstance(description := node.get("description"), str):
        # `kubectl explain` breaks lines itself, and keeps those that it finds.
        node["description"] = " ".join(description.split())
    if "x-kubernetes-preserve-unknown-fields" in node:
        node.pop("additionalProperties", None)
    result: Schema = {key: node[key] for key in _KEPT if key in node}
    if "exclusiveMinimum" in node:
        result["minimum"], result["exclusiveMinimum"] = node["exclusiveMinimum"], True
    if (default := node.get("default")) is not None:
        result["default"] = default
    properties = node.get("properties")
    if isinstance(properties, dict):
        result["properties"] = {
            name: _convert(_mapping(child), definitions) for name, child in properties.items()
        }
        if "required" in node:
            result["required"] = node["required"]
    elif isinstance(extra := node.get("additionalProperties"), dict):
        result["additionalProperties"] = _convert(extra, definitions)
    if isinstance(items := node.get("items"), dict):
        result["items"] = _convert(items, definitions)
    return result


def _resolve(schema: Mapping[str, JsonValue], definitions: Mapping[str, JsonValue]) -> Schema:
    """Follow $ref and drop the null of an optional; what stands beside the $ref wins."""
    node = dict(schema)
    if isinstance(ref := node.pop("$ref", None), str):
        target = _resolve(_mapping(definitions[ref.rsplit("/", 1)[1]]), definitions)
        # A default of the whole object is spelled out by the defaults of its fields.
        if isinstance(node.get("default"), dict):
            node["default"] = {}
        node = {**target, **node}
    if isinstance(options := node.get("anyOf"), list) and "x-kubernetes-int-or-string" not in node:
        node.pop("anyOf")
        node.pop("default", None)
        kept = [option for option in map(_mapping, options) if option.get("type") != "null"]
        node = {**_united([_resolve(each, definitions) for each in kept]), **node}
    return node


def _united(options: Sequence[Schema]) -> Schema:
    """What one of several may be: the only one; or of enums, any of their values."""
    first, *others = options
    if not others:
        return first
    values = (cast("list[JsonValue]", option["enum"]) for option in options)
    return {**first, "enum": list(chain.from_iterable(values))}


def _mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    if not isinstance(value, dict):
        raise TypeError(f"expected a JSON schema object, found {value!r}")
    return value
