"""Does this draft work with this target on this engine? As far as can be told before it runs.

What cannot be told is Unknown, and never refused. What is looked at: docs/preflight.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from fathom.api.choices import Method
from fathom.api.conditions import ConditionStatus, Reason
from fathom.api.problem import Problem, Severity
from fathom.core.models.config import ModelConfig
from fathom.core.models.facts import ModelFacts
from fathom.validation.models.checks import CHECKS, CHECKS_OF_TARGET, TABLE
from fathom.validation.models.input import PreflightInput

EAGLE_3_1: Final = "EAGLE-3.1"
EAGLE_3: Final = "EAGLE-3"

_FAMILIES: Final[Mapping[Method, str]] = MappingProxyType(
    {
        Method.EAGLE: "EAGLE",
        Method.MTP: "MTP",
        Method.DRAFT_MODEL: "draft model",
        Method.NGRAM: "n-gram",
        Method.NGRAM_GPU: "n-gram",
        Method.SUFFIX: "suffix",
        Method.DFLASH: "DFlash",
        Method.DSPARK: "DSpark",
    }
)
_CHECKED: Final = frozenset(
    {Method.EAGLE3, Method.MTP, Method.DRAFT_MODEL, Method.NGRAM, Method.NGRAM_GPU}
)
"""Methods whose requirements are all looked at. Of the others only what is certain is said."""

KNOWN_DRAFTS: Final[Mapping[str, ModelFacts]] = MappingProxyType(
    {
        # As far as its config.json decides anything: `fc_norm` and `norm_output` at the top level,
        # and a `kv_lora_rank`.
        "lightseekorg/kimi-k2.6-eagle3.1-mla": ModelFacts(
            ModelConfig(fc_norm=True, norm_output=True, kv_lora_rank=512), source=TABLE
        ),
    }
)
"""What stands in for a config.json that is not at hand."""


@dataclass(frozen=True, slots=True)
class DraftVerdict:
    """What is known of a draft; the DraftCompatible condition says the same."""

    status: ConditionStatus
    reason: Reason
    message: str
    family: str
    """Such as EAGLE-3.1; empty: unknown."""
    field: str = "spec.draft.id"
    """Path in the spec that the message is about."""

    @property
    def refused(self) -> bool:
        """Whether it is known not to work. Unknown is not refused."""
        return self.status is ConditionStatus.FALSE


def check_draft(given: PreflightInput) -> DraftVerdict:
    """Judge a draft from what is at hand.

    The first refusal counts, else the first doubt, else the first thing that is not known.
    """
    given = _with_table(given)
    family, method = _family(given), given.spec.draft.method
    worst = _worst(given)
    if worst is not None:
        refused = worst.severity is Severity.ERROR
        return DraftVerdict(
            ConditionStatus.FALSE if refused else ConditionStatus.UNKNOWN,
            worst.reason,
            worst.message,
            family,
            worst.field,
        )
    if not given.spec.drafts:
        return DraftVerdict(
            ConditionStatus.TRUE,
            Reason.NO_DRAFT,
            "speculation.drafting is Disabled, so no draft is loaded.",
            family,
        )
    if method not in _CHECKED:
        return DraftVerdict(
            ConditionStatus.UNKNOWN,
            Reason.NOT_CHECKED,
            f"drafts of method {method} are not checked in full: vLLM says at start whether this "
            "one fits.",
            family,
        )
    from_table = given.draft.source == TABLE
    return DraftVerdict(
        ConditionStatus.TRUE,
        Reason.KNOWN_PAIR if from_table else Reason.COMPATIBLE,
        f"{_subject(given, family)}, which vLLM {given.version} runs.",
        family,
    )


def _with_table(given: PreflightInput) -> PreflightInput:
    """Let the table stand in for what is not at hand of a pair with a known draft."""
    known = KNOWN_DRAFTS.get(given.spec.draft.id) if given.has_draft else None
    if known is None or (given.draft.config is not None and given.target.config is not None):
        return given
    config = given.draft.config or known.config
    return replace(given, draft=replace(given.draft, config=config, source=known.source))


def _worst(given: PreflightInput) -> Problem | None:
    """The surest objection, and of equally sure ones the first; None: there is none."""
    checks = CHECKS if given.spec.drafts else CHECKS_OF_TARGET
    found = [objection for check in checks if (objection := check(given)) is not None]
    return max(found, key=lambda objection: objection.severity, default=None)


def _family(given: PreflightInput) -> str:
    """What the draft is; empty: unknown."""
    method, draft = given.spec.draft.method, given.draft_config
    if not given.spec.drafts:
        return ""
    if method is not Method.EAGLE3:
        return _FAMILIES[method]
    if draft is None:
        return ""
    # EAGLE 3.1 is told from 3 by these two. `norm_before_fc` and `norm_before_residual` are other
    # things.
    return EAGLE_3_1 if draft.fc_norm and draft.norm_output else EAGLE_3


def _subject(given: PreflightInput, family: str) -> str:
    draft, model = given.spec.draft, given.spec.model
    if draft.method is Method.EAGLE3:
        return f"{draft.id} is {family} ({given.draft.source})"
    source = draft.id or "no draft of its own"
    return f"{model.id} is served with method {draft.method} and {source}"
