"""The CRD's CEL rules, evaluated as an API server would: on the spec after defaulting."""

import functools
from collections.abc import Mapping
from typing import Any

import celpy

from fathom.api.crd import custom_resource_definition
from fathom.api.rules import CREATION_RULES, RULES
from structural_schema import spec_schema, with_defaults

SPEC_SCHEMA = spec_schema(custom_resource_definition())


# Made at import: celpy raises the recursion limit, and hypothesis warns of that during a test.
_ENVIRONMENT = celpy.Environment()


@functools.cache
def _program(expression: str) -> celpy.Runner:
    return _ENVIRONMENT.program(_ENVIRONMENT.compile(expression))


def broken_by_cel(spec: Mapping[str, Any]) -> list[str]:
    """Fields of the rules that CEL finds broken."""
    stored = celpy.json_to_cel(with_defaults(SPEC_SCHEMA, dict(spec)))
    return [rule.field for rule in RULES if not _program(rule.cel).evaluate({"self": stored})]


def refused_on_creation(document: Mapping[str, Any]) -> list[str]:
    """Fields of the rules for new resources that CEL finds broken in a whole resource."""
    stored = {**document, "spec": with_defaults(SPEC_SCHEMA, dict(document["spec"]))}
    given = {"self": celpy.json_to_cel(stored)}
    return [rule.field for rule in CREATION_RULES if not _program(rule.cel).evaluate(given)]
