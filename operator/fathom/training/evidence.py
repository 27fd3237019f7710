"""What a trainer is told: names and numbers, never the text of a request."""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

_MODEL: Final = ConfigDict(
    frozen=True,
    extra="forbid",
    alias_generator=to_camel,
    validate_by_name=True,
    serialize_by_alias=True,
)


class EvidenceModel(BaseModel):
    """A model that takes part."""

    model_config = _MODEL

    id: str
    """Hugging Face id, or a directory in the pods."""
    commit: str = ""
    """That the pods load; empty: not known."""


class Evidence(BaseModel):
    """The document that the pod of a training has as a file, `FATHOM_EVIDENCE`."""

    model_config = _MODEL

    schema_version: Annotated[int, Field(alias="schema")] = 1
    run: str
    """That a person approved."""
    target: EvidenceModel
    draft: EvidenceModel
    method: str
    """As vLLM names it, such as eagle3."""
    vllm_version: str
    """Release of the engine that is to load the draft; empty: not known."""
    tensor_parallel_size: int
    reason: str
    """Why it is trained: an alarm's reason, or AskedFor."""
    survival_reference: tuple[float, ...] = ()
    """P(the first i drafts are all accepted) on the first day of the pair, by position."""
    survival_now: tuple[float, ...] = ()
    """The same of late."""
    depths: tuple[int, ...] = ()
    """Tokens per step that the engines can speculate."""

    def to_json(self) -> str:
        """Compact, keys as they are declared."""
        return self.model_dump_json()
