"""Why a model cannot be fetched, and what to do about it, in half a sentence."""

import errno
import re

from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

LONGEST_QUOTE = 300
"""Characters of a library's own message."""


class NoCommitError(Exception):
    """A hub's answer does not say which commit a revision means."""


_USER_OF_A_URL = re.compile(r"(?<=://)[^/\s@]+@")
"""The user in a mirror's address, which goes into a pod's last words: anybody may read those."""


def reason(error: Exception, *, role: str, revision: str) -> str:
    """Explain whatever huggingface_hub raised.

    Args:
        error: that.
        role: of the model, as the spec calls it.
        revision: that was asked for.
    """
    why = _of_the_volume(error) or _of_the_hub(error, role, revision)
    return _USER_OF_A_URL.sub("(hidden)@", why)


def _of_the_volume(error: Exception) -> str:
    """Empty: it is not the volume's."""
    if _is_full(error):
        return (
            "the volume is full: enlarge the claim (spec.cache.size where the operator made it), "
            "or remove from it what no model needs"
        )
    if isinstance(error, PermissionError):
        return (
            f"{constants.HF_HUB_CACHE} may not be written: let the user that the pod runs as "
            "write to the claim, for example by securityContext.fsGroup in spec.podTemplate"
        )
    if isinstance(error, OSError) and error.errno == errno.EROFS:
        return (
            f"{constants.HF_HUB_CACHE} is mounted read-only: set spec.cache.prefetch to false if "
            "something else fills the claim"
        )
    return ""


def _of_the_hub(error: Exception, role: str, revision: str) -> str:
    """The order is that of huggingface_hub's subclasses."""
    at = constants.ENDPOINT
    match error:
        case GatedRepoError():
            why = (
                f"it is gated at {at}: give spec.model.tokenSecretRef a token that has been "
                "granted access"
            )
        case RevisionNotFoundError():
            why = f"{at} knows no revision {revision} of it: correct spec.{role}.revision"
        case RepositoryNotFoundError():
            why = (
                f"{at} shows no such repository: correct spec.{role}.id, or, if it is private, "
                "set spec.model.tokenSecretRef"
            )
        case NoCommitError():
            why = (
                f"{at} does not say which commit its revision means, so that pods cannot be held "
                "to it: set spec.cache.prefetch to false"
            )
        case HFValidationError():
            why = f"that is no Hugging Face id: correct spec.{role}.id"
        case OfflineModeIsEnabled():
            why = (
                "HF_HUB_OFFLINE is set where it runs: unset it there, or set spec.cache.prefetch "
                "to false"
            )
        case HfHubHTTPError():
            status = getattr(error.response, "status_code", "unknown")
            why = f"{at} answers with HTTP status {status}"
        case _:
            said = " ".join(str(error).split()) or type(error).__name__
            why = (
                f"{at} cannot be reached, or broke off ({said[:LONGEST_QUOTE]}): where the claim "
                "has been filled by hand, set spec.cache.prefetch to false"
            )
    return why


def _is_full(error: BaseException | None) -> bool:
    """Whether it is, or comes from, a disk or a quota without room."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return True
        error = error.__cause__ or error.__context__
    return False
