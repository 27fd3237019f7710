"""The checks of a preflight, in the order in which a reader wants their sentences.

Each looks at one thing and returns what it found, or None: nothing stands against the pair, or it
cannot be told. Refused is only what is certain to fail in the releases that were read; each check
names the module of vLLM that it judges by.
"""

from collections.abc import Callable
from typing import Final

from fathom.api.problem import Problem
from fathom.core.models.facts import Absence
from fathom.validation.models.findings import unknown
from fathom.validation.models.input import PreflightInput
from fathom.validation.models.pair_checks import (
    draft_architecture,
    draft_name,
    draft_to_target_table,
    draft_vocabulary,
    engine_age,
    hidden_size,
    multi_token_prediction,
    target_architecture,
    vocabularies,
)
from fathom.validation.models.size_checks import (
    draft_heads,
    kv_cache,
    maximum_length,
    memory,
    target_heads,
)

TABLE: Final = "Fathom's own table"
"""The source of what is known of a draft without its config.json."""


def at_hand(given: PreflightInput) -> Problem | None:
    """Whether both models could be looked at at all."""
    if given.spec.draft.method.looks_up_ngrams or given.draft.source == TABLE:
        return None
    said = "vLLM says at start whether this draft fits"
    for facts, named in ((given.draft, given.spec.draft.id), (given.target, given.spec.model.id)):
        if facts.config is None and facts.absence is not Absence.NO_MODEL:
            why = f" ({facts.explanation})" if facts.explanation else ""
            return unknown(f"the config.json of {named} is not at hand{why}: {said}.")
    if given.stated.rewrites_config:
        return unknown(
            "spec.engine.args have vLLM read the target otherwise than its config.json says: "
            f"{said}.",
            "spec.engine.args",
        )
    return None


def engine_known(given: PreflightInput) -> Problem | None:
    if given.version is not None:
        return None
    return unknown(
        f"which vLLM {given.spec.engine.image} holds is unknown: set spec.engine.version to have "
        f"{given.spec.draft.id or 'its speculation'} checked.",
        "spec.engine.version",
    )


CHECKS: Final[tuple[Callable[[PreflightInput], Problem | None], ...]] = (
    engine_age,
    draft_architecture,
    target_architecture,
    hidden_size,
    draft_vocabulary,
    vocabularies,
    draft_to_target_table,
    target_heads,
    draft_heads,
    multi_token_prediction,
    maximum_length,
    kv_cache,
    memory,
    draft_name,
    at_hand,
    engine_known,
)


CHECKS_OF_TARGET: Final = (target_heads, maximum_length, kv_cache, memory)
"""What can be judged where no draft is loaded."""
