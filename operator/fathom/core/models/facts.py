"""What is known of a model without its weights, or why nothing is."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.core.models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class ModelRef:
    """Which model is meant."""

    id: str
    """Hugging Face id, or an absolute directory."""
    revision: str = ""
    """Branch, tag or commit; empty: the default."""


class Absence(Enum):
    """Why a model's config.json is not at hand."""

    NOT_LOCAL = "no such directory here"
    UNREADABLE = "there, and no config.json can be read from it"
    GATED = "the hub wants a token that has been given access"
    MISSING = "the hub knows no such repository, revision or file, or does not show it"
    UNREACHABLE = "the hub did not answer"
    OFFLINE = "the hub is not to be asked"
    NOT_YET = "it is being asked for"
    NO_MODEL = "the method has none"


@dataclass(frozen=True, slots=True)
class Weights:
    """What is known of a model's weight files. None of them is ever read beyond its header."""

    total_bytes: int | None = None
    """Of the files that vLLM loads by default; None: unknown."""
    has_d2t: bool | None = None
    """Whether they hold the table from draft tokens to target tokens; None: unknown."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model, as far as it is known."""

    config: ModelConfig | None = None
    source: str = "its config.json"
    """Where the config is from, in words."""
    weights: Weights = Weights()
    absence: Absence | None = None
    """Why there is no config; None: there is one."""
    explanation: str = ""
    """The absence as a sentence that names the model and says what to do, without the period."""

    @property
    def awaited(self) -> bool:
        """Whether the hub may tell more within seconds, so that it is worth a moment's waiting."""
        return self.config is None and self.absence in _MAY_PASS

    def or_before(self, before: "ModelFacts | None") -> "ModelFacts":
        """These, or what was known before: a hub that is down or forgets takes nothing back."""
        if before is None:
            return self
        if self.config is None:
            return before if before.config is not None else self
        if self.config != before.config:
            return self
        ours, theirs = self.weights, before.weights
        return replace(
            self,
            weights=Weights(
                theirs.total_bytes if ours.total_bytes is None else ours.total_bytes,
                theirs.has_d2t if ours.has_d2t is None else ours.has_d2t,
            ),
        )


_MAY_PASS: Final = frozenset({Absence.NOT_YET, Absence.UNREACHABLE, Absence.GATED, Absence.MISSING})
"""A hub that answers 401 or 404 for a moment is as common as one that does not answer."""


NO_MODEL: Final = ModelFacts(absence=Absence.NO_MODEL)
"""Of a draft, for methods that load none."""


def target_ref(spec: SpeculativeDeploymentSpec) -> ModelRef:
    return ModelRef(spec.model.id, spec.model.revision)


def model_refs(spec: SpeculativeDeploymentSpec) -> tuple[ModelRef, ...]:
    """Target and draft, as far as the spec names them."""
    return tuple(ref for ref in (target_ref(spec), draft_ref(spec)) if ref.id)


def draft_ref(spec: SpeculativeDeploymentSpec) -> ModelRef:
    """An empty id: the spec names no draft."""
    return ModelRef(spec.draft.id, spec.draft.revision) if spec.drafts else ModelRef("")
