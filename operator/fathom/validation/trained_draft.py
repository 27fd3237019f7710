"""What the intake of a trained draft is told of what that is for. Pure."""

from fathom.api.methods import Method
from fathom.engine.capability_table import has_release
from fathom.manifests.intake_job import IntakeTarget
from fathom.model_facts import EAGLE3_SPECULATORS, ModelConfig
from fathom.validation.hidden_state_checks import LAYER_TYPES, WITHOUT_TABLE
from fathom.validation.model_input import PreflightInput
from fathom.validation.pair_checks import EAGLE3_DRAFTS

_PREFIX = "Eagle3"
"""vLLM puts it before an architecture that lacks it."""


def intake_target(given: PreflightInput) -> IntakeTarget:
    """What a draft must fit, as far as it is known.

    Args:
        given: target and draft that serve.
    """
    target = given.target_config or ModelConfig()
    unprefixed = (each.removeprefix(_PREFIX) for each in EAGLE3_DRAFTS)
    known = {*EAGLE3_DRAFTS, *unprefixed, *EAGLE3_SPECULATORS, *LAYER_TYPES} - {""}
    return IntakeTarget(
        eagle3=given.spec.draft.method is Method.EAGLE3,
        hidden_size=None if target.hidden_streams else target.hidden_size,
        vocab_size=target.vocab_size,
        table_unread=given.version is not None and has_release(WITHOUT_TABLE, given.version),
        known=tuple(sorted(known)),
    )
