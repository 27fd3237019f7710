"""What is wrong with a manifest, and the rules of the API that say so."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

from fathom.api.conditions import Reason


class Severity(IntEnum):
    """What comes of a problem. The worst one decides."""

    UNKNOWN = 1
    """Something could not be checked."""
    WARNING = 2
    """The spec is carried out, and its user should know this."""
    ERROR = 3
    """The spec is not carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with a manifest, in words a user can act on."""

    field: str
    """Path of the field as the user writes it, such as `spec.speculation.tokens`."""
    message: str
    """A sentence: what is wrong and what to do."""
    severity: Severity = Severity.ERROR
    reason: Reason = Reason.INVALID_SPEC
    """The condition that reports it has this reason."""
    rule: str = ""
    """The id of the rule that found it (docs/rules.md); empty: the schema did."""
    silenced: str = ""
    """Why its user wants to hear no more of this warning; empty: it is not silenced."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def warning(field: str, message: str) -> Problem:
    """A problem of a spec that is carried out."""
    return Problem(field=field, message=message, severity=Severity.WARNING)


SpecT_contra = TypeVar("SpecT_contra", contravariant=True)
_Spec = TypeVar("_Spec")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[SpecT_contra]):
    """One rule over the whole spec."""

    field: str
    """Path below `spec` that the message is about."""
    message: str
    """What is wrong and what to do, without knowing the values."""
    cel: str
    """The rule in CEL, `self` being the spec after defaulting."""
    holds: Callable[[SpecT_contra], bool]


def broken(rules: Iterable[Rule[_Spec]], spec: _Spec) -> tuple[Problem, ...]:
    """Every rule that a spec breaks, in their order."""
    return tuple(
        Problem(field=f"spec.{rule.field}", message=rule.message)
        for rule in rules
        if not rule.holds(spec)
    )
