"""The models that a spec names, and what vLLM takes for a name."""

import re
from dataclasses import dataclass
from typing import Final

from fathom.api.spec import SpeculativeDeploymentSpec

STORED_DRAFTS: Final = "/cache/fathom/drafts"
"""Where drafts that were trained are stored, in the pods of the intake and of engines alike."""
_HUB_ID: Final = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?(:\w[\w.-]*)?", re.ASCII)
"""`organisation/name` or `name`; after a colon, the quantisation of a GGUF file."""
_STREAMED: Final = ("s3://", "gs://", "az://")
"""`SUPPORTED_SCHEMES` in vllm/transformers_utils/runai_utils.py."""


@dataclass(frozen=True, slots=True)
class ModelRef:
    """Which model is meant."""

    id: str
    """Hugging Face id, or an absolute directory."""
    revision: str = ""
    """Branch, tag or commit; empty: the default."""


def target_ref(spec: SpeculativeDeploymentSpec) -> ModelRef:
    return ModelRef(spec.model.id, spec.model.revision)


def model_refs(spec: SpeculativeDeploymentSpec) -> tuple[ModelRef, ...]:
    """Target, draft and a draft on trial, as far as the spec names them."""
    return tuple(ref for ref in (target_ref(spec), draft_ref(spec), trial_ref(spec)) if ref.id)


def draft_ref(spec: SpeculativeDeploymentSpec) -> ModelRef:
    """An empty id: the spec names no draft."""
    return ModelRef(spec.draft.id, spec.draft.revision) if spec.drafts else ModelRef("")


def trial_ref(spec: SpeculativeDeploymentSpec) -> ModelRef:
    """An empty id: no other draft is tried."""
    trial = spec.draft.trial
    return ModelRef(trial.id, trial.revision) if trial is not None and spec.drafts else ModelRef("")


def is_model_name(name: str) -> bool:
    """Whether vLLM would look for a model under this name, be there one or not.

    `$(NAME)` is what a variable of the container holds, which nobody knows here.
    """
    if not name.isprintable():
        return False
    if name.startswith(("/", *_STREAMED)) or "$(" in name:
        return True
    return _HUB_ID.fullmatch(name) is not None
