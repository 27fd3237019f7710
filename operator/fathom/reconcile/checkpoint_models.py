"""What is known of models, as the tuning ConfigMap keeps it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fathom.core.models.config import ModelConfig
from fathom.core.models.facts import ModelFacts, ModelRef, Weights


@dataclass(frozen=True, slots=True)
class _KnownModel:
    # What a later Fathom knows beside, this one does without.
    __pydantic_config__ = ConfigDict(extra="ignore")

    id: str
    revision: str
    config: ModelConfig
    weights: Weights


_MODELS: Final = TypeAdapter(tuple[_KnownModel, ...])


def models_text(models: Mapping[ModelRef, ModelFacts]) -> str:
    """Canonical text of those of which something is known; empty: of none."""
    known = tuple(
        _KnownModel(ref.id, ref.revision, facts.config, facts.weights)
        for ref, facts in sorted(models.items(), key=lambda item: (item[0].id, item[0].revision))
        if facts.config is not None
    )
    return _MODELS.dump_json(known, exclude_defaults=True).decode() if known else ""


def models_from(text: str) -> dict[ModelRef, ModelFacts] | None:
    """The models that a text tells of; None: it cannot be read."""
    try:
        known = _MODELS.validate_json(text)
    except ValidationError:
        return None
    return {
        ModelRef(each.id, each.revision): ModelFacts(each.config, weights=each.weights)
        for each in known
    }


def with_kept(
    found: Mapping[ModelRef, ModelFacts], kept: Mapping[ModelRef, ModelFacts]
) -> dict[ModelRef, ModelFacts]:
    """What is known by now of each model that was looked for."""
    return {ref: facts.or_before(kept.get(ref)) for ref, facts in found.items()}


def worth_keeping(models: Mapping[ModelRef, ModelFacts]) -> dict[ModelRef, ModelFacts]:
    """Of the models in use, those of which something is known, and that alone."""
    return {
        ref: ModelFacts(facts.config, weights=facts.weights)
        for ref, facts in models.items()
        if facts.config is not None
    }


def named(refs: Iterable[ModelRef]) -> str:
    """Models in words."""
    return " and ".join(ref.id for ref in refs)
