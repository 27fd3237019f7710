"""Which models are served: the target, its draft, and a draft on trial."""

from typing import Annotated

from pydantic import Field

from fathom.api.base import ApiModel, Texts
from fathom.api.methods import Method
from fathom.api.pod_fields import SecretKeyRef
from fathom.api.training import TrainingSpec


class ModelSpec(ApiModel):
    """The target model."""

    id: Annotated[str, Field(min_length=1, max_length=512)]
    """Hugging Face id, or an absolute path in the pod."""
    revision: Annotated[str, Field(max_length=128)] = ""
    """Branch, tag or commit to pin; empty means the repository's default."""
    served_name: Annotated[str, Field(max_length=512)] = ""
    """Name that clients ask for; empty means the id."""
    trust_remote_code: bool = False
    """Let the repositories of model and draft run their own Python code in the engine."""
    token_secret_ref: SecretKeyRef | None = None
    """Hugging Face token, for gated repositories."""


class DraftTrial(ApiModel):
    """Another draft, which one replica has instead."""

    id: Annotated[str, Field(min_length=1, max_length=512)]
    """Hugging Face id or absolute path of the draft model; its method is `draft.method`."""
    revision: Annotated[str, Field(max_length=128)] = ""
    """Branch, tag or commit to pin; empty means the repository's default."""


class DraftSpec(ApiModel):
    """What proposes the tokens."""

    id: Annotated[str, Field(max_length=512)] = ""
    """Hugging Face id or absolute path of the draft model; empty for methods without one."""
    revision: Annotated[str, Field(max_length=128)] = ""
    """Branch, tag or commit to pin; empty means the repository's default."""
    method: Method = Method.EAGLE3
    """Speculation method as vLLM names it. EAGLE 3 and EAGLE 3.1 are both `eagle3`."""
    tensor_parallel_size: Annotated[int, Field(ge=1, le=64)] | None = None
    """1 or the target's; absent means vLLM's own default."""
    options: Texts = Field(default_factory=dict)
    """More keys of vLLM's speculative configuration, such as prompt_lookup_max: "4". Values are
    text; what reads as JSON is passed on as such. What has a field of its own may not be repeated
    here."""
    trial: DraftTrial | None = None
    """Another draft to try: one replica has it, all others keep `id`, each side at its own best
    depth, and status.draftTrial says what it is worth. To adopt it, make it `id` and `revision`."""
    training: TrainingSpec | None = None
    """How another draft may be trained: proposed by the operator, begun once a person approves it,
    taken in, and tried as `trial` would be. Absent: none is proposed."""

    @property
    def name(self) -> str:
        """As people name it."""
        return f"{self.id} at {self.revision}" if self.revision else self.id

    @property
    def tries_another(self) -> bool:
        """Whether `trial` names another draft than all replicas have."""
        trial = self.trial
        return trial is not None and (trial.id, trial.revision) != (self.id, self.revision)

    @property
    def on_trial(self) -> str:
        """The other draft, as people name it; empty: none is tried."""
        return self.with_trial().name if self.tries_another else ""

    def with_trial(self) -> "DraftSpec":
        """As the replica on trial has it."""
        if self.trial is None:
            return self
        trial = {"id": self.trial.id, "revision": self.trial.revision}
        return self.model_copy(update={**trial, "trial": None})
