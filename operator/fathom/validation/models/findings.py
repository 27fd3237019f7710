"""What a check of a pair finds, and how sure that is. Pure."""

from typing import Final

from fathom.api.conditions import Reason
from fathom.api.problem import Problem, Severity

_DRAFT: Final = "spec.draft.id"


def refused(sentence: str, field: str = _DRAFT, reason: Reason = Reason.INCOMPATIBLE) -> Problem:
    """It is certain to fail."""
    return Problem(field, sentence, Severity.ERROR, reason)


def doubtful(sentence: str, field: str = _DRAFT) -> Problem:
    """It is likely to fail."""
    return Problem(field, sentence, Severity.WARNING, Reason.DOUBTFUL)


def unknown(sentence: str, field: str = _DRAFT) -> Problem:
    """It cannot be told."""
    return Problem(field, sentence, Severity.UNKNOWN, Reason.NOT_CHECKED)
