"""How a new draft is trained: what a user allows beforehand, and what is reported of it."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, JsonValue

from fathom.api.base import ApiModel
from fathom.api.choices import Proposals
from fathom.api.pod_fields import QUANTITY_OR_NOTHING

MINUTES_PER_HOUR: Final = 60
ASKED_FOR: Final = "AskedFor"
"""Reason of a training that a person asked for."""
_MOST_GPUS: Final = 4096
_LONGEST_MINUTES: Final = 7 * 24 * MINUTES_PER_HOUR
_MOST_GPU_HOURS: Final = 1_000_000


class TrainingSpec(ApiModel):
    """How another draft is trained where `id` no longer fits: never before a person approves."""

    proposals: Proposals = Proposals.ON_ALARM
    """OnAlarm: a training is proposed when the draft no longer fits the traffic. Manual: only when
    a person asks for it."""
    gpus: Annotated[int, Field(ge=0, le=_MOST_GPUS)]
    """GPUs that one training occupies, wherever they are: at least those of the template."""
    deadline_minutes: Annotated[int, Field(ge=1, le=_LONGEST_MINUTES)]
    """How long one training may take, in minutes; then its Job is ended."""
    gpu_hours_per_week: Annotated[int, Field(ge=0, le=_MOST_GPU_HOURS)]
    """GPU hours that may be begun within seven days: gpus × deadlineMinutes / 60 of each training,
    however long it takes."""
    data_claim: Annotated[str, Field(max_length=253)] = ""
    """A PersistentVolumeClaim with the data to train on, which the trainer reads; empty: none."""
    max_draft_size: Annotated[
        str, Field(min_length=1, max_length=32, pattern=QUANTITY_OR_NOTHING)
    ] = "16Gi"
    """The largest size of a draft's files, such as 16Gi; what is larger is not taken."""
    template: dict[str, JsonValue] = Field(
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}
    )
    """The pod that trains, as the template of a Job. Its container `train` gets the variables and
    the volumes that docs/training.md lists."""

    @property
    def gpu_minutes(self) -> int:
        """GPU minutes that one training takes at most."""
        return self.gpus * self.deadline_minutes


class TrainingPhase(StrEnum):
    """How far the training of a draft is."""

    PROPOSED = "Proposed"
    APPROVED = "Approved"
    TRAINING = "Training"
    INTAKE = "Intake"
    REFUSED = "Refused"
    TRIAL = "Trial"
    FASTER = "Faster"
    ADOPTED = "Adopted"
    DISMISSED = "Dismissed"
    FAILED = "Failed"


class AdoptedDraft(ApiModel):
    """What `draft.id` and `draft.revision` are to be for all replicas to have the new draft."""

    id: str
    """Hugging Face id, or the directory in the cache that it was stored in."""
    revision: str = ""
    """Its commit; empty: the directory is named after its content."""


class TrainingStatus(ApiModel):
    """The training of a draft: proposed, under way, or the last one."""

    phase: TrainingPhase
    """Proposed: it waits for a person. Approved: it waits to begin. Training: its Job runs. Intake:
    what it left is verified. Refused: that was not taken. Trial: one replica has the new draft.
    Faster: it waits for the edit that adopts it. Adopted. Dismissed. Failed: `run` is the next."""
    run: str = ""
    """What a person approves or dismisses: `fathom.dev/approve-training`."""
    since: str = ""
    """When it came to this phase."""
    reason: str = ""
    """Why it was proposed, in one word: an alarm's reason, or AskedFor."""
    message: str = ""
    """How it is, and what would follow, in sentences."""
    job: str = ""
    """The Job under way."""
    adopt: AdoptedDraft | None = None
    """The new draft, once it is there."""
    gpu_hours_this_week: str = ""
    """GPU hours begun within seven days, at most, of those that the spec allows, such as 12/24."""
