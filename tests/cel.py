"""The CRD's CEL rules, evaluated as an API server would: on the spec after defaulting.

By CEL's own parser and evaluator (the C++ twin of the Go one in API servers): others accept what an
API server refuses, such as an escape that CEL does not know, and then no CRD at all is installed.
"""

import functools
from collections.abc import Mapping
from typing import Any

from cel_expr_python import cel

from fathom.api.cel_rules import CREATION_RULES, RULES
from fathom.api.crd import custom_resource_definition
from structural_schema import spec_schema, with_defaults

SPEC_SCHEMA = spec_schema(custom_resource_definition())


_ENVIRONMENT = cel.NewEnv(variables={"self": cel.Type.DYN})


@functools.cache
def _compiled(expression: str) -> cel.Expression:
    return _ENVIRONMENT.compile(expression)


def _holds(expression: str, given: Mapping[str, Any]) -> bool:
    answer = _compiled(expression).eval(data={"self": given}).value()
    assert isinstance(answer, bool), f"{expression} is {answer}"
    return answer


def broken_by_cel(spec: Mapping[str, Any]) -> list[str]:
    """Fields of the rules that CEL finds broken."""
    stored = with_defaults(SPEC_SCHEMA, dict(spec))
    return [rule.field for rule in RULES if not _holds(rule.cel, stored)]


def refused_on_creation(document: Mapping[str, Any]) -> list[str]:
    """Fields of the rules for new resources that CEL finds broken in a whole resource."""
    stored = {**document, "spec": with_defaults(SPEC_SCHEMA, dict(document["spec"]))}
    return [rule.field for rule in CREATION_RULES if not _holds(rule.cel, stored)]
