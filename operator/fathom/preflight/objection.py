"""What a check finds: one thing that stands against a pair, and how sure that is."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from fathom.api.conditions import Reason

_DRAFT: Final = "spec.draft.id"


class Certainty(IntEnum):
    """How sure an objection is. The surest decides."""

    UNKNOWN = 1
    DOUBTFUL = 2
    REFUSED = 3


@dataclass(frozen=True, slots=True)
class Objection:
    """One thing that stands against a pair, or against knowing."""

    certainty: Certainty
    reason: Reason
    field: str
    """Path in the spec that the sentence is about."""
    sentence: str


def refused(sentence: str, field: str = _DRAFT, reason: Reason = Reason.INCOMPATIBLE) -> Objection:
    return Objection(Certainty.REFUSED, reason, field, sentence)


def doubtful(sentence: str, field: str = _DRAFT) -> Objection:
    return Objection(Certainty.DOUBTFUL, Reason.DOUBTFUL, field, sentence)


def unknown(sentence: str, field: str = _DRAFT) -> Objection:
    return Objection(Certainty.UNKNOWN, Reason.NOT_CHECKED, field, sentence)
