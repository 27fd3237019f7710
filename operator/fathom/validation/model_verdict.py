"""Does this draft work with this target on this engine? As far as can be told before it runs.

What cannot be told is Unknown, and never refused. What is looked at: docs/preflight.md.

Each looks at one thing and returns what it found, or None: nothing stands against the pair, or it
cannot be told. Refused is only what is certain to fail in the releases that were read; each check
names the module of vLLM that it judges by.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from fathom.api.conditions import ConditionStatus, Reason
from fathom.api.methods import METHODS, Method
from fathom.api.problem import Problem, Severity
from fathom.engine.capability_table import ARCHITECTURES, READ, has_release
from fathom.model_facts import Absence, ModelConfig, ModelFacts
from fathom.text import shortened
from fathom.validation.gpu_memory_checks import (
    draft_heads,
    kv_cache,
    maximum_length,
    memory,
    target_heads,
)
from fathom.validation.hidden_state_checks import (
    aux_layers,
    aux_layers_of,
    draft_positions,
    draft_weights,
    hidden_size,
    plain_model,
    trained_for,
    width_read,
)
from fathom.validation.model_input import PreflightInput, doubtful, unknown
from fathom.validation.pair_checks import (
    decode_context,
    draft_architecture,
    draft_name,
    draft_vocabulary,
    engine_age,
    multi_token_prediction,
    quantization,
    target_architecture,
    vocabularies,
)

_LONGEST_NAME: Final = 80
TABLE: Final = "Fathom's own table"
"""The source of what is known of a draft without its config.json."""
CHECKS_OF_TARGET: Final = (
    *(target_heads, decode_context, quantization),
    *(maximum_length, kv_cache, memory),
)
"""What can be judged where no draft is loaded."""
EAGLE_3_1: Final = "EAGLE-3.1"
EAGLE_3: Final = METHODS[Method.EAGLE3].family
KNOWN_DRAFTS: Final[Mapping[str, ModelFacts]] = MappingProxyType(
    {
        # As far as its config.json decides anything: `fc_norm` and `norm_output` at the top level,
        # and a `kv_lora_rank`.
        "lightseekorg/kimi-k2.6-eagle3.1-mla": ModelFacts(
            config=ModelConfig(fc_norm=True, norm_output=True, kv_lora_rank=512), source=TABLE
        ),
    }
)
"""What stands in for a config.json that is not at hand."""
KNOWN_TARGETS: Final = frozenset({"nvidia/Kimi-K2.6-NVFP4", "moonshotai/Kimi-K2.6"})
"""What those drafts were trained for. With another target the table knows the draft and no pair."""


def at_hand(given: PreflightInput) -> Problem | None:
    """Without the config.json of both models little is known."""
    in_table = given.draft.source == TABLE
    known = in_table and given.spec.model.id in KNOWN_TARGETS
    if known or given.spec.draft.method.looks_up_ngrams:
        return None
    said = "vLLM says at start whether this draft fits"
    if in_table:
        return unknown(
            f"{TABLE} knows {given.spec.draft.id}, and not with {given.spec.model.id}, and not "
            f"both config.json files are at hand: {said}."
        )
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


def linked(given: PreflightInput) -> Problem | None:
    """A link out of a draft's folder, which this machine follows and a pod may not."""
    link = given.draft.weights.link
    if not link:
        return None
    return doubtful(
        f"{shortened(link, _LONGEST_NAME)} in {given.spec.draft.id} is a link to somewhere else: a "
        "pod that mounts the folder alone does not have it. Use a copy that holds the files "
        "themselves (cp -rL)."
    )


def says_enough(given: PreflightInput) -> Problem | None:
    """Whether both config.json files say what a pair is compared by."""
    if given.draft.source == TABLE:
        return None
    for config, named in (
        (given.draft_config if given.has_draft else None, given.spec.draft.id),
        (given.target_config, given.spec.model.id),
    ):
        lacks = [] if config is None else [*_lacks(config, given.spec.draft.method)]
        if lacks:
            return unknown(
                f"the config.json of {named} does not say its {' and '.join(lacks)}, so that the "
                "pair cannot be compared: vLLM says at start whether it fits."
            )
    return None


def _lacks(config: ModelConfig, method: Method) -> Iterator[str]:
    if method.takes_no_draft:
        return
    if not config.architectures and not config.speculators_type:
        yield "architecture"
    if method.row.reads_hidden_states and config.hidden_size is None:
        yield "hidden_size"
    if method is not Method.MTP and config.vocab_size is None:
        yield "vocab_size"


def engine_known(given: PreflightInput) -> Problem | None:
    """Releases differ, so which one it is must be known."""
    version = given.version
    if version is not None and not READ.in_version(version):
        return unknown(
            f"vLLM {version} is a later release than those that were read, so that it is not known "
            f"if it runs {given.spec.draft.id or 'such speculation'}: vLLM says at start.",
            "spec.engine.version" if given.spec.engine.version else "spec.engine.image",
        )
    if version is not None:
        return None
    return unknown(
        f"which vLLM {given.spec.engine.image} holds is unknown: set spec.engine.version to have "
        f"{given.spec.draft.id or 'its speculation'} checked.",
        "spec.engine.version",
    )


CHECKS: Final[tuple[Callable[[PreflightInput], Problem | None], ...]] = (
    engine_age,
    plain_model,
    draft_architecture,
    target_architecture,
    hidden_size,
    aux_layers,
    trained_for,
    draft_vocabulary,
    vocabularies,
    draft_weights,
    target_heads,
    decode_context,
    quantization,
    draft_heads,
    multi_token_prediction,
    maximum_length,
    draft_positions,
    kv_cache,
    memory,
    draft_name,
    linked,
    at_hand,
    says_enough,
    engine_known,
)


@dataclass(frozen=True, slots=True, kw_only=True)
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
            status=ConditionStatus.FALSE if refused else ConditionStatus.UNKNOWN,
            reason=worst.reason,
            message=worst.message,
            family=family,
            field=worst.field,
        )
    if not given.spec.drafts:
        return DraftVerdict(
            status=ConditionStatus.TRUE,
            reason=Reason.NO_DRAFT,
            message="speculation.drafting is Disabled, so no draft is loaded.",
            family=family,
        )
    if not method.row.requirements_known:
        return DraftVerdict(
            status=ConditionStatus.UNKNOWN,
            reason=Reason.NOT_CHECKED,
            message=f"drafts of method {method} are not checked in full: vLLM says at start "
            "whether this one fits.",
            family=family,
        )
    from_table = given.draft.source == TABLE
    return DraftVerdict(
        status=ConditionStatus.TRUE,
        reason=Reason.KNOWN_PAIR if from_table else Reason.COMPATIBLE,
        message=f"{_subject(given, family)}{_run(given)}; {_compared(given)}.",
        family=family,
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
        return method.row.family
    if draft is None:
        return ""
    if not draft.like_eagle3:
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


def _run(given: PreflightInput) -> str:
    """That its engine runs such drafts, where it does: else `engine-capabilities` says so."""
    version, since = given.version, given.spec.draft.method.row.since
    known = version is not None and has_release(since, version)
    return f", which vLLM {version} runs" if known else ""


def _compared(given: PreflightInput) -> str:
    """What was compared, in words: nothing else is claimed."""
    if not given.has_draft and given.spec.draft.method.takes_no_draft:
        return "it loads no draft, so that there is nothing to compare"
    found = ", ".join(_points(given))
    return f"compared: {found}" if found else "nothing of it was compared"


def _points(given: PreflightInput) -> Iterator[str]:
    target, method = given.target_config, given.spec.draft.method
    draft = given.draft_config if given.has_draft else target
    if target is None or draft is None or given.version is None:
        return
    if method in ARCHITECTURES.methods and ARCHITECTURES.in_version(given.version):
        yield "architecture"
    if method is Method.MTP:
        yield from _said("multi-token prediction layers", draft.nextn_predict_layers)
        return
    if width_read(given) is not None:
        yield from _said("hidden size", target.hidden_size)
    yield from _said("vocabulary", target.vocab_size)
    if layers := aux_layers_of(given):
        yield layers.shown
    if draft.attention_heads and target.attention_heads:
        yield "attention heads"
    if method.row.reads_hidden_states:
        yield from _said("positions", draft.max_position_embeddings)


def _said(what: str, number: int | None) -> Iterator[str]:
    if number is not None:
        yield f"{what} {number}"
