"""Where the intake of what a trainer left stands, by its Job and that one's message. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from fathom.cluster.job_pods import last_end, newest_pod, why_not_begun
from fathom.cluster.observed import ObservedJob
from fathom.cluster.observed_pods import ObservedPod
from fathom.model_facts import ModelConfig, ModelFacts
from fathom.model_refs import STORED_DRAFTS
from fathom.training.record import TrainedDraft
from fathom_intake.model_weights import Tensor, Weights
from fathom_intake.verdict import Refusal

CONTAINER: Final = "intake"
_FOLDER: Final = r"^[0-9a-f]{8,64}$"
_HUB_ID: Final = r"^\w[\w.-]{0,95}(/\w[\w.-]{0,95})?$"
_COMMIT: Final = r"^[0-9a-f]{40}$"
_FROZEN: Final = ConfigDict(frozen=True, extra="ignore")


class _Facts(BaseModel):
    """What preflight judges a stored draft by."""

    model_config = _FROZEN

    bytes: Annotated[int, Field(ge=0)]
    config: dict[str, JsonValue]
    tensors: tuple[tuple[str, str, tuple[int, ...]], ...]
    """Name, type and shape of each that matters."""


class _Stored(_Facts):
    """What the program reports of a draft that it stored."""

    folder: Annotated[str, Field(pattern=_FOLDER)]


class _OnHub(BaseModel):
    """A draft that the trainer uploaded."""

    model_config = _FROZEN

    id: Annotated[str, Field(pattern=_HUB_ID)]
    revision: Annotated[str, Field(pattern=_COMMIT)]


class _Message(BaseModel):
    model_config = _FROZEN

    schema_: Annotated[Literal[1], Field(alias="schema")]
    draft: _Stored | None = None
    hub: _OnHub | None = None


class IntakeStage(Enum):
    MISSING = "no Job takes it in yet"
    UNDER_WAY = "a Job takes it in"
    FORGOTTEN = "a Job has taken it in, and its report is lost"
    REFUSED = "it was not taken"
    TAKEN = "it is taken in"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeStanding:
    """Where an intake stands."""

    stage: IntakeStage = IntakeStage.MISSING
    draft: TrainedDraft | None = None
    """What was taken in; None: nothing yet."""
    refusal: str = ""
    """Why nothing was, in sentences of ours; empty: it is not refused."""
    waits: str = ""
    """What keeps its pod from starting, in Kubernetes' words; empty: nothing that is known."""


def intake_of(
    job: ObservedJob | None, pods: Sequence[ObservedPod], refused_pods: Mapping[str, str]
) -> IntakeStanding:
    """Where an intake stands, by what the cluster holds.

    Args:
        job: that takes it in; None: there is none.
        pods: the resource's.
        refused_pods: by Job: why no pod of it is created.
    """
    if job is None:
        return IntakeStanding()
    pod = newest_pod(job, pods, CONTAINER)
    ended = last_end(pod, CONTAINER)
    message = ended.message if ended is not None else ""
    if (draft := draft_in(message)) is not None:
        return IntakeStanding(stage=IntakeStage.TAKEN, draft=draft)
    if (refusal := Refusal.from_json(message)) is not None:
        return IntakeStanding(stage=IntakeStage.REFUSED, refusal=refusal.sentence)
    if job.complete:
        return IntakeStanding(stage=IntakeStage.FORGOTTEN)
    if job.reason:
        said = f"Its Job was given up: {job.reason}."
        return IntakeStanding(stage=IntakeStage.REFUSED, refusal=said)
    waits = refused_pods.get(job.name, "") or why_not_begun(pod)
    return IntakeStanding(stage=IntakeStage.UNDER_WAY, waits=waits)


def draft_in(message: str) -> TrainedDraft | None:
    """The draft that a message of the program names; None: it names none."""
    try:
        found = _Message.model_validate_json(message)
    except ValidationError:
        return None
    if found.hub is not None:
        return TrainedDraft(id=found.hub.id, revision=found.hub.revision)
    if found.draft is None:
        return None
    facts = found.draft.model_dump_json(include=set(_Facts.model_fields))
    return TrainedDraft(id=f"{STORED_DRAFTS}/{found.draft.folder}", facts=facts)


def facts_of(draft: TrainedDraft) -> ModelFacts | None:
    """What preflight judges a stored draft by; None: the hub is asked, as of any other."""
    try:
        found = _Facts.model_validate_json(draft.facts)
    except ValidationError:
        return None
    tensors = tuple(Tensor(name, dtype, shape) for name, dtype, shape in found.tensors)
    return ModelFacts(
        config=ModelConfig.from_json(found.config),
        weights=Weights(total_bytes=found.bytes, tensors=tensors, pickled=False),
    )
