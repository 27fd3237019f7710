"""Whether a draft that reads hidden states was made for this target: some of the checks.

Which layers they come from: the target hands over those that the draft's config.json names, else
three of vLLM's own choice (`get_eagle3_aux_layers_from_config` in
vllm/v1/worker/gpu/spec_decode/eagle/eagle3_utils.py, `_get_eagle3_aux_layers_from_config` in
gpu_model_runner.py for Model Runner V1, `get_eagle3_default_aux_hidden_state_layers` in
model_executor/models/interfaces.py). How many the draft has space for is another rule, of the class
that loads it (`num_aux_hidden_states` in llama_eagle3.py and others). Read in 0.24 to 0.33.
"""

from dataclasses import dataclass
from typing import Final

from packaging.specifiers import SpecifierSet

from fathom.api.methods import Method
from fathom.api.problem import Problem
from fathom.engine.capability_table import has_release
from fathom.model_facts import ModelConfig
from fathom.model_refs import draft_ref, target_ref
from fathom.text import shortened
from fathom.validation.model_input import PreflightInput, doubtful, refused, was_read
from fathom.validation.pair_checks import eagle3_name, has_eagle3_class
from fathom_intake.model_weights import WantedWeights, faults_of

_READ: Final = SpecifierSet(">=0.24.0,<0.34")
"""Releases whose rules for layers are known."""
DRAFT_POSITIONS_STRETCHED: Final = SpecifierSet(">=0.27.0")
"""Releases that take a draft for as many positions as its target has."""
WITHOUT_TABLE: Final = SpecifierSet(">=0.30.0")
"""Releases that have no place for `d2t` in a draft that proposes all tokens of its target."""
_OTHER_WEIGHTS: Final = frozenset({"quantization", "draft_load_config"})
"""Options of a draft after which its weights are not loaded as they lie."""
_USUAL_LAYERS: Final = 3
_LONGEST_PATH: Final = 80
LAYER_TYPES: Final = frozenset({"", "llama", "qwen3"})
"""What drafts in the speculators format may have (`update_eagle3` in
vllm/transformers_utils/configs/speculators/algos.py, 0.24 to 0.33); a llama where none is named."""
_TRAINED_APART: Final = frozenset({Method.EAGLE3, Method.EAGLE, Method.DFLASH})
"""Methods whose draft is never a part of the target's own files."""
_MOST_LAYERS_OF_A_DRAFT: Final = 8
"""More than any draft of EAGLE 3 has that was seen; a model has more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuxLayers:
    """Layers of the target whose hidden states a draft gets."""

    layers: tuple[int, ...] | None
    """Their numbers; None: three of vLLM's choice, of a target whose size is not known."""
    named: bool
    """Whether the draft's config.json names them, and vLLM reads it."""
    capacity: int
    """As many as the draft's `fc` is made for."""
    unread: tuple[int, ...] = ()
    """Layers that it names where vLLM does not read them."""

    @property
    def given(self) -> int:
        """How many the target hands over."""
        return _USUAL_LAYERS if self.layers is None else len(self.layers)

    @property
    def shown(self) -> str:
        """As in `3 layers (2, 30, 58)`."""
        if self.layers is None:
            return f"{self.given} layers of vLLM's choice"
        meant = self.named or self.unread == self.layers
        whose = "" if meant else ": vLLM's choice, as the draft names none"
        return f"{self.given} layers ({_listed(self.layers)}{whose})"


def aux_layers_of(given: PreflightInput) -> AuxLayers | None:
    """Which layers an EAGLE 3 draft gets; None: it reads none, or the rules are not known."""
    draft, target, version = given.draft_config, given.target_config, given.version
    if given.spec.draft.method is not Method.EAGLE3 or draft is None or version is None:
        return None
    if not has_release(_READ, version) or not draft.use_aux_hidden_state:
        return None
    named = draft.aux_layers
    if not named and given.engine.start.model_runner_v1:
        named = draft.eagle_config_layers
    capacity, counted = draft.aux_hidden_states, draft.eagle_config_layers
    if _is_qwen3(draft):
        capacity = capacity if draft.aux_layer_count is None else draft.aux_layer_count
        counted = draft.aux_layers or counted
    if capacity is None:
        capacity = len(counted) or _USUAL_LAYERS
    layers = target.layers if target is not None else None
    chosen = (2, layers // 2, layers - 3) if layers else None
    unread = () if named else draft.eagle_config_layers
    return AuxLayers(layers=named or chosen, named=bool(named), capacity=capacity, unread=unread)


def _is_qwen3(draft: ModelConfig) -> bool:
    """Whether its class is that of qwen3_eagle3.py, which counts otherwise than all others."""
    if draft.speculators_type:
        return draft.layer_type == "qwen3"
    return eagle3_name(draft.architecture) == "Eagle3Qwen3ForCausalLM"


def plain_model(given: PreflightInput) -> Problem | None:
    """A model that is no draft has none of the weights that vLLM looks for in an EAGLE 3 draft.

    `fc` and what else is not in its files is "not initialized from checkpoint"
    (`track_weights_loading` in vllm/model_executor/model_loader/default_loader.py).
    """
    spec, draft = given.spec, given.draft_config
    method = spec.draft.method
    itself = draft_ref(spec) == target_ref(spec)
    cure = "use a draft that was trained for this target, or another spec.draft.method."
    if itself and method in _TRAINED_APART:
        return refused(f"{spec.draft.id} is the target itself, and no draft of it: {cure}")
    if itself and method is Method.DRAFT_MODEL:
        return doubtful(
            f"{spec.draft.id} is the target itself, so that a draft token costs as much as one of "
            "its own: use a smaller model of the same vocabulary."
        )
    if method is not Method.EAGLE3 or draft is None or draft.like_eagle3 or not draft.layers:
        return None
    what = f"{draft.architecture or 'model'} of {draft.layers} layers"
    if draft.layers > _MOST_LAYERS_OF_A_DRAFT:
        return refused(
            f"{spec.draft.id} is a plain {what}: nothing in its config.json is of an EAGLE 3 "
            f"draft, and its weights have no part that reads hidden states. {cure.capitalize()}"
        )
    return doubtful(
        f"{spec.draft.id} is a {what}, and nothing in its config.json is of an EAGLE 3 draft: vLLM "
        "stops at start if it is none. Set spec.draft.method to what it is."
    )


def hidden_size(given: PreflightInput) -> Problem | None:
    """The draft's `fc` takes hidden states of one width (llama_eagle3.py, deepseek_eagle3.py).

    EAGLE drafts take them without `fc` and into a buffer as wide as the draft
    (vllm/v1/spec_decode/llm_base_proposer.py).
    """
    target, reads = given.target_config, width_read(given)
    if target is None or reads is None or target.hidden_size is None or target.hidden_streams:
        return None
    if reads == target.hidden_size:
        return None
    return refused(
        f"{given.spec.draft.id} reads hidden states of size {reads}, and {given.spec.model.id} has "
        f"hidden_size {target.hidden_size}: use a draft that was trained for this target."
    )


def width_read(given: PreflightInput) -> int | None:
    """Width of the hidden states that the draft reads; None: none, or it does not say."""
    draft, method = given.draft_config, given.spec.draft.method
    if not method.row.reads_hidden_states or draft is None:
        return None
    through_fc = method is Method.EAGLE3 and draft.use_aux_hidden_state
    return (draft.target_hidden_size if through_fc else None) or draft.hidden_size


def aux_layers(given: PreflightInput) -> Problem | None:
    """As many layers as the draft has space for, and such as the target has.

    A draft whose weights have space for more or for fewer does not load; one that gets more or
    fewer stops at its first pass.
    """
    found, target = aux_layers_of(given), given.target_config
    if found is None:
        return None
    draft, model, version = given.spec.draft.id, given.spec.model.id, given.version
    if found.given != found.capacity:
        layers = f"{found.given} layers of the target ({_listed(found.layers or ())})"
        wrong = f"{draft} names {layers}, and vLLM {version} has space for {found.capacity}"
        if not found.named:
            where = " outside of eagle_config" if found.unread else ""
            wrong = (
                f"{draft} names no layers{where}, so that vLLM {version} takes {found.given}, and "
                f"it has space for {found.capacity}"
            )
        return refused(
            f"{wrong}: it does not load. Use another draft or, if this one was trained with "
            f"{_trained_with(found)}, a copy {_cure(given, found)}."
        )
    beyond = [each for each in (found.layers or ()) if each < 0 or each > _layers_of(target)]
    if found.named and beyond:
        return refused(
            f"{draft} reads layer {beyond[0]}, and {model} has {_layers_of(target):.0f}: use a "
            "draft that was trained for this target."
        )
    if found.unread and found.layers is not None and found.unread != found.layers:
        return doubtful(
            f"{draft} was trained on the layers {_listed(found.unread)}, which its config.json "
            f"names in eagle_config alone, where vLLM {version} does not read them: it takes "
            f"{_listed(found.layers)}. Use a copy of the draft with the list at the top of its "
            "config.json, as eagle_aux_hidden_state_layer_ids."
        )
    return _unlike_vllms_choice(given, found)


def _unlike_vllms_choice(given: PreflightInput, found: AuxLayers) -> Problem | None:
    """A width of its own is of another trainer than the one whose layers vLLM chooses.

    Of such a draft 1.2 % was accepted (https://github.com/vllm-project/vllm/pull/50170).
    """
    draft = given.draft_config
    if found.named or found.unread or draft is None or draft.aux_hidden_states:
        return None
    width, reads = draft.hidden_size, width_read(given)
    if width is None or width == reads:
        return None
    taken = f" ({_listed(found.layers)})" if found.layers else ""
    return doubtful(
        f"{given.spec.draft.id} does not say which layers of the target it reads, so that vLLM "
        f"takes three of its own choice{taken}, and its width ({width}, where the target has "
        f"{reads}) is a sign of a trainer that takes others: nearly none of its drafts may be "
        "accepted. Watch ACCEPT, or use a copy whose config.json names them at the top, as "
        "eagle_aux_hidden_state_layer_ids."
    )


def _layers_of(target: ModelConfig | None) -> float:
    return float("inf") if target is None or target.layers is None else target.layers


def _trained_with(found: AuxLayers) -> int:
    """As many layers as its config.json speaks of, wherever vLLM reads them."""
    return len(found.unread) or (found.given if found.named else found.capacity)


def _cure(given: PreflightInput, found: AuxLayers) -> str:
    """What to write where all layers are meant."""
    draft = given.draft_config
    if not found.named:
        return "whose config.json names them at the top, as eagle_aux_hidden_state_layer_ids"
    within = draft is not None and draft.speculators_type
    where = " in transformer_layer_config" if within else ""
    return f'with "num_aux_hidden_states": {found.given}{where} of its config.json'


def draft_weights(given: PreflightInput) -> Problem | None:
    """The headers of the draft's files against its config.json: `fathom_intake.model_weights`."""
    name, draft, weights = given.spec.draft.id, given.draft_config, given.draft.weights
    if draft is None:
        return None
    read = given.version is not None and was_read(given.version)
    if read and weights.index_lacks:
        return refused(
            f"the index of {name} names {shortened(weights.index_lacks, _LONGEST_PATH)}, which is "
            "not among its files: vLLM stops at start. Use a whole copy of the draft."
        )
    if given.spec.draft.method is not Method.EAGLE3 or weights.tensors is None:
        return None
    changed = given.stated.rewrites_weights or {*given.spec.draft.options} & _OTHER_WEIGHTS
    certain = read and not changed and has_eagle3_class(draft)
    faults = faults_of(weights.tensors, _wanted(given, draft))
    found = [each for each in faults if certain or not each.certain]
    fault = max(found, key=lambda each: each.certain, default=None)
    if fault is None:
        return None
    sentence = f"the weights of {name} hold {fault.message}. {fault.cure}."
    return refused(sentence) if fault.certain else doubtful(sentence)


def _wanted(given: PreflightInput, draft: ModelConfig) -> WantedWeights:
    layers, target = aux_layers_of(given), given.target_config or ModelConfig()
    proposed = draft.vocab_size if draft.draft_vocab_size is None else draft.draft_vocab_size
    dropped = given.version is not None and has_release(WITHOUT_TABLE, given.version)
    return WantedWeights(
        hidden_size=draft.hidden_size,
        target_hidden_size=draft.target_hidden_size or draft.hidden_size,
        hidden_states=layers.capacity if layers else None if draft.use_aux_hidden_state else 0,
        vocab_size=draft.vocab_size,
        draft_vocab_size=proposed,
        fc_norm=draft.fc_norm,
        norm_before_fc=draft.norm_before_fc,
        embedding_width=None if target.hidden_streams else target.hidden_size,
        table_unread=dropped and proposed is not None and proposed == target.vocab_size,
    )


def trained_for(given: PreflightInput) -> Problem | None:
    """What a draft's config.json says of the target that it was trained for; vLLM reads none of it.

    And the layers of a draft in the speculators format, of which vLLM knows two kinds.
    """
    spec, draft, target = given.spec, given.draft_config, given.target_config
    if draft is None or spec.draft.method is Method.DRAFT_MODEL:
        return None
    read = given.version is not None and has_release(_READ, given.version)
    if read and draft.speculators_type == "eagle3" and draft.layer_type not in LAYER_TYPES:
        return refused(
            f"{spec.draft.id} has layers of type {draft.layer_type}, and vLLM {given.version} "
            "takes drafts in the speculators format with llama and qwen3 alone: use another draft."
        )
    if target is None:
        return None
    theirs, ours = draft.trained_for, target.architectures
    if theirs and ours and not {*theirs} & {*ours}:
        return doubtful(
            f"{spec.draft.id} was trained for a {theirs[0]}, and {spec.model.id} is a {ours[0]}: "
            "few of its drafts may be accepted. Watch ACCEPT, or use a draft of this target."
        )
    if draft.target_layers and target.layers and draft.target_layers != target.layers:
        return doubtful(
            f"{spec.draft.id} was trained for a target of {draft.target_layers} layers, and "
            f"{spec.model.id} has {target.layers}: few of its drafts may be accepted. Watch "
            "ACCEPT, or use a draft of this target."
        )
    return None


def _listed(layers: tuple[int, ...]) -> str:
    return ", ".join(map(str, layers))


def draft_positions(given: PreflightInput) -> Problem | None:
    """Before 0.27 a draft's rotary table has as many rows as its config.json says.

    The first position beyond is an assertion that ends the engine, or a read of other memory
    (https://github.com/vllm-project/vllm/issues/48894). From then on
    `_maybe_override_draft_max_position_embeddings` in vllm/config/speculative.py gives it as many
    as the target has; it was trained on no more than before.
    """
    draft, version, length = given.draft_config, given.version, longest_request(given)
    if not given.spec.draft.method.row.reads_hidden_states or draft is None or length is None:
        return None
    positions = draft.max_position_embeddings
    if not positions or draft.rope_scaled or positions >= length:
        return None
    asked = given.stated.max_model_len is not None
    whose = "--max-model-len" if asked else "as --max-model-len is not given"
    what = f"{given.spec.draft.id} has {positions} positions, and requests may have {length} "
    cure = f"--max-model-len {positions} in spec.engine.args"
    if version is not None and not has_release(DRAFT_POSITIONS_STRETCHED, version):
        return refused(
            f"{what}({whose}): in vLLM {version} the first one beyond {positions} ends the engine. "
            f"Use vLLM 0.27 or later, or set {cure}."
        )
    older = "" if version is not None else " In vLLM before 0.27 the first such request ends it."
    return doubtful(
        f"{what}({whose}): beyond {positions} few of its drafts may be accepted.{older} Watch "
        f"ACCEPT there, use a draft that was trained for more, or set {cure}."
    )


def longest_request(given: PreflightInput) -> int | None:
    """Tokens of the longest request that vLLM takes; None: not known."""
    target = given.target_config
    if given.stated.max_model_len is not None or target is None:
        return given.stated.max_model_len
    stated = (target.max_position_embeddings, target.model_max_length)
    return min(filter(None, stated), default=None)
