"""Why a model cannot be fetched, and what to do about it, in half a sentence."""

import errno

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


def reason(error: Exception, *, role: str, revision: str) -> str:
    """Of what huggingface_hub raised. The order is that of its subclasses.

    Args:
        error: whatever it raised.
        role: of the model, as the spec calls it.
        revision: that was asked for.
    """
    at = constants.ENDPOINT
    match error:
        case _ if _is_full(error):
            why = (
                "the volume is full: enlarge the claim (spec.cache.size where the operator made "
                "it), or remove from it what no model needs"
            )
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
        case HFValidationError():
            why = f"that is no Hugging Face id: correct spec.{role}.id"
        case OfflineModeIsEnabled():
            why = (
                "HF_HUB_OFFLINE is set where it runs: unset it there, or set spec.cache.prefetch "
                "to false"
            )
        case PermissionError():
            why = (
                f"{constants.HF_HUB_CACHE} may not be written: let the user that the pod runs as "
                "write to the claim, for example by securityContext.fsGroup in spec.podTemplate"
            )
        case OSError(errno=errno.EROFS):
            why = (
                f"{constants.HF_HUB_CACHE} is mounted read-only: set spec.cache.prefetch to false "
                "if something else fills the claim"
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
