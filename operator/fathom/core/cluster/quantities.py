"""Quantities such as `500m` and `1Gi`, which Kubernetes keeps in a spelling of its own."""

from decimal import ROUND_CEILING, Decimal
from typing import Final

from kubernetes.utils.quantity import parse_quantity
from pydantic import JsonValue

_THOUSANDTHS: Final = 1000
"""What is finer the API server rounds up (`SetDefaults_ResourceList`)."""


def same_quantity(one: JsonValue, other: JsonValue) -> bool:
    """Whether both are quantities, and of one value."""
    ours = _value(one)
    return ours is not None and ours == _value(other)


def _value(quantity: JsonValue) -> Decimal | None:
    try:
        # As text, since the parser takes true for 1.
        found: Decimal = parse_quantity(str(quantity))  # type: ignore[no-untyped-call] # the client has no types
        # It also takes NaN, which cannot always be compared.
        if not found.is_finite():
            return None
        return (found * _THOUSANDTHS).to_integral_value(ROUND_CEILING)
    except (ValueError, ArithmeticError):
        return None
