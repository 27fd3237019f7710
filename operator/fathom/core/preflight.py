"""Does this draft work with this target on this engine? As far as can be told before it runs.

What cannot be told is Unknown, and never refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from fathom.api.conditions import ConditionStatus, Reason
from fathom.api.spec import Method, SpeculativeDeploymentSpec
from fathom.core.capability import EAGLE31_ON_MLA
from fathom.core.engine_version import engine_version

EAGLE_3_1: Final = "EAGLE-3.1"
EAGLE_3: Final = "EAGLE-3"

_FAMILIES: Final[Mapping[Method, str]] = MappingProxyType(
    {
        Method.EAGLE: "EAGLE",
        Method.MTP: "MTP",
        Method.DRAFT_MODEL: "draft model",
        Method.NGRAM: "n-gram",
        Method.SUFFIX: "suffix",
        Method.DFLASH: "DFlash",
        Method.DSPARK: "DSpark",
    }
)


@dataclass(frozen=True, slots=True)
class DraftVerdict:
    """What is known of a draft; the DraftCompatible condition says the same."""

    status: ConditionStatus
    reason: Reason
    message: str
    family: str
    """Such as EAGLE-3.1; empty: unknown."""

    @property
    def refused(self) -> bool:
        """Whether it is known not to work. Unknown is not refused."""
        return self.status is ConditionStatus.FALSE


@dataclass(frozen=True, slots=True)
class _Draft:
    """What decides about a draft, from its config or from the table."""

    family: str
    mla: bool
    """Multi-head latent attention, as in Kimi and DeepSeek."""
    source: str


KNOWN_DRAFTS: Final[Mapping[str, _Draft]] = MappingProxyType(
    {
        # Its config.json has `fc_norm` and `norm_output` at the top level, and `kv_lora_rank`.
        "lightseekorg/kimi-k2.6-eagle3.1-mla": _Draft(
            EAGLE_3_1, mla=True, source="Fathom's own table"
        ),
    }
)


def check_draft(
    spec: SpeculativeDeploymentSpec,
    target_config: Mapping[str, JsonValue] | None,
    draft_config: Mapping[str, JsonValue] | None,
) -> DraftVerdict:
    """Judge a draft from what is at hand.

    Args:
        spec: a valid spec.
        target_config: the target's config.json; None: not at hand.
        draft_config: the draft's config.json; None: not at hand.
    """
    if spec.draft.method is not Method.EAGLE3:
        return DraftVerdict(
            ConditionStatus.UNKNOWN,
            Reason.NOT_CHECKED,
            f"drafts of method {spec.draft.method} are not checked: vLLM says at start whether "
            "this one fits.",
            _FAMILIES[spec.draft.method],
        )
    draft = _describe(spec.draft.id, target_config, draft_config)
    if draft is None:
        return DraftVerdict(
            ConditionStatus.UNKNOWN,
            Reason.NOT_CHECKED,
            f"the config.json of {spec.draft.id} is not at hand: vLLM says at start whether this "
            "draft fits.",
            "",
        )
    version = engine_version(spec.engine)
    if version is None:
        return DraftVerdict(
            ConditionStatus.UNKNOWN,
            Reason.NOT_CHECKED,
            f"{spec.draft.id} is {draft.family} ({draft.source}), and which vLLM "
            f"{spec.engine.image} holds is unknown: set spec.engine.version to have it checked.",
            draft.family,
        )
    if draft.family == EAGLE_3_1 and draft.mla and not EAGLE31_ON_MLA.in_version(version):
        return DraftVerdict(
            ConditionStatus.FALSE,
            Reason.ENGINE_TOO_OLD,
            f"{spec.draft.id} is an EAGLE 3.1 draft with MLA ({draft.source}), which vLLM "
            f"{version} loads without applying its fc_norm: use vLLM {_lowest()} or later.",
            draft.family,
        )
    return DraftVerdict(
        ConditionStatus.TRUE,
        Reason.KNOWN_PAIR if draft_config is None else Reason.COMPATIBLE,
        f"{spec.draft.id} is {draft.family} ({draft.source}), which vLLM {version} runs.",
        draft.family,
    )


def _describe(
    draft_id: str,
    target_config: Mapping[str, JsonValue] | None,
    draft_config: Mapping[str, JsonValue] | None,
) -> _Draft | None:
    if draft_config is None:
        return KNOWN_DRAFTS.get(draft_id)
    # EAGLE 3.1 is told from 3 by these two, at the top level. `norm_before_fc` and
    # `norm_before_residual` are other things.
    is_3_1 = draft_config.get("fc_norm") is True and draft_config.get("norm_output") is True
    mla = _is_mla(draft_config) or (target_config is not None and _is_mla(target_config))
    return _Draft(EAGLE_3_1 if is_3_1 else EAGLE_3, mla, "its config.json")


def _is_mla(config: Mapping[str, JsonValue]) -> bool:
    """Whether a model caches a latent instead of keys and values."""
    text = config.get("text_config")
    inner: Mapping[str, JsonValue] = text if isinstance(text, dict) else {}
    return bool(config.get("kv_lora_rank") or inner.get("kv_lora_rank"))


def _lowest() -> str:
    return str(EAGLE31_ON_MLA.versions).removeprefix(">=")
