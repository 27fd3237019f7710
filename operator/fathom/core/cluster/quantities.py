"""Quantities such as `500m` and `1Gi`, which Kubernetes keeps in a spelling of its own."""

from decimal import Decimal

from kubernetes.utils.quantity import parse_quantity
from pydantic import JsonValue


def same_quantity(one: JsonValue, other: JsonValue) -> bool:
    """Whether both are quantities, and of one value."""
    ours = _value(one)
    return ours is not None and ours == _value(other)


def _value(quantity: JsonValue) -> Decimal | None:
    try:
        # As text, since the parser takes true for 1.
        found: Decimal = parse_quantity(str(quantity))  # type: ignore[no-untyped-call] # the client has no types
    except ValueError:
        return None
    # It also takes NaN, which cannot always be compared.
    return found if found.is_finite() else None
