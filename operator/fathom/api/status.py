"""What the operator reports. Decimals are strings: the API's conventions discourage floats."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from fathom.api.base import ApiModel
from fathom.api.conditions import AlarmKind, ConditionStatus, ConditionType
from fathom.api.training import TrainingStatus


class Condition(ApiModel):
    """A standard Kubernetes condition."""

    type: ConditionType | AlarmKind
    """What it is about, such as Ready, Degraded or Tuning."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: str
    """Why, in one word that alerts may rely on."""
    message: str = ""
    """Why, in a sentence."""
    observed_generation: int = 0
    """The generation of the resource that this was reported for."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When `status` last changed."""


class EngineStatus(ApiModel):
    """The engine, and whether its depth can be changed while it runs."""

    version: str = ""
    """vLLM version in use, as far as known."""
    actuation: str = ""
    """How depth is changed: Live or None."""
    reason: str = ""
    """Why depth cannot be changed live, if it cannot, or could not be any more after a rollout."""


class DraftStatus(ApiModel):
    """What proposes the tokens."""

    family: str = ""
    """What the draft is, such as EAGLE-3.1, as far as known."""


class FetchedModel(ApiModel):
    """One model whose files lie in the cache."""

    id: str
    """Its Hugging Face id."""
    commit: str
    """What its revision meant when it was fetched; pods load this and nothing else."""


class WeightsStatus(ApiModel):
    """The weights in the cache that the newest spec asks for."""

    summary: str = ""
    """How far the fetch is, such as 412 GiB of 554 GiB, 1.2 GiB/s, 2 min left."""
    percent: int | None = None
    """Percentage of the bytes, rounded down; absent while the total is not known."""
    models: tuple[FetchedModel, ...] = ()
    """What was fetched; empty until all of it was."""


class DepthStatus(ApiModel):
    """Tokens that are speculated per step, by batch size."""

    summary: str = ""
    """The depth, or depths by batch, such as 7 at 1-4, 3 beyond; off: without drafting."""
    schedule: tuple[tuple[int, ...], ...] = ()
    """Ranges of [first batch, last batch, depth]."""
    generation: int = 0
    """Generation of the depth document."""
    applied_replicas: int = 0
    """Replicas whose engine reports this generation in force."""
    since: str = ""
    """When this schedule was written."""


class MeasuredStatus(ApiModel):
    """What the engines did in the last window."""

    at: str = ""
    """End of the last window with data."""
    window_seconds: int = 0
    """Length of that window, seconds."""
    acceptance_length: str = ""
    """Tokens per verification step: 1 + accepted / drafts."""
    acceptance_rate: str = ""
    """Accepted / drafted tokens."""
    survival: tuple[str, ...] = ()
    """Probability that the first i drafts are all accepted, i = 1, 2, ..."""
    tokens_per_second: int | None = None
    """Generated tokens per second over all replicas; absent: not measured yet."""
    mean_batch: str = ""
    """Requests per engine step."""
    tpot_milliseconds: str = ""
    """Time per output token, milliseconds."""
    gain_percent: str = ""
    """Tokens per second over what `tokens` would give, percent, measured."""
    tokens_per_step: str = ""
    """Tokens that a request got in one decode step, those without drafts included."""
    headroom_tokens_per_second: int | None = None
    """What all ready replicas that can be read could at least serve in addition at the depths in
    force, with objective Goodput within the SLO; absent: unknown."""


class GainedStatus(ApiModel):
    """What following the traffic brought over `tokens` since the first window with traffic."""

    since: str
    """Begin of the first window with traffic."""
    percent: str = ""
    """Tokens per second over what `tokens` would have given, percent, over the measured hours."""
    error_percent: str = ""
    """Half the width of its 95 % interval, percent."""
    gpu_hours: str = ""
    """The same in GPU hours: what `tokens` would have taken longer for the same tokens. Empty, as
    what follows, without GPUs."""
    error_gpu_hours: str = ""
    """Half the width of its 95 % interval, GPU hours."""
    measured_gpu_hours: str = ""
    """Busy GPU hours of which that is the sum."""
    unmeasured_gpu_hours: str = ""
    """Busy GPU hours in which the gain was not measured: they add nothing."""


class DecisionStatus(ApiModel):
    """One decision of the tuner."""

    at: str
    """When it was made."""
    action: str
    """What was done, such as Move, Probe or Hold."""
    reason: str
    """Why, in one word that alerts may rely on."""
    message: str = ""
    """Why, in a sentence."""
    expected_gain_percent: str = ""
    """Gain in tokens per second that was expected of it, percent."""
    expected_gain_interval_percent: str = ""
    """95 % interval of the expected gain, such as 3.1 to 9.0."""
    measured_gain_percent: str = ""
    """Gain in tokens per second measured since, percent, where it judges an earlier decision."""


class TuningStatus(ApiModel):
    """What the tuner does, and why."""

    summary: str = ""
    """Mode and what the tuner does, such as Auto/AtBest."""
    last_decision: DecisionStatus | None = None
    """The newest decision worth a line in the history."""
    history: Annotated[tuple[DecisionStatus, ...], Field(max_length=10)] = ()
    """The last ten of these, newest first."""


class QualityResult(StrEnum):
    """What a quality check found."""

    LOSSLESS = "Lossless"
    DIFFERS = "Differs"
    NOT_CHECKED = "NotChecked"


class QualityStatus(ApiModel):
    """The last check, on request, that speculation does not change what the engine says."""

    request_id: str
    """The request that this answers: annotation `fathom.dev/check-quality`."""
    at: str
    """When the check ended."""
    result: QualityResult
    """Lossless: the same tokens, near-ties aside; Differs; NotChecked: it is not known."""
    prompts: int = 0
    """Prompts that were compared."""
    tokens: int = 0
    """Tokens that were compared: of each prompt up to and including the first difference."""
    ties: int = 0
    """Prompts whose first difference is a near-tie, which rounding alone may decide."""
    message: str = ""
    """What was compared, where it differs first, or why it could not be checked."""


class Compared(StrEnum):
    """What came of comparing one replica with the others."""

    FASTER = "Faster"
    SLOWER = "Slower"
    NO_DIFFERENCE = "NoDifference"
    CANNOT_TELL = "CannotTell"


class ArmState(StrEnum):
    """How far a comparison is."""

    WAITING = "Waiting"
    STARTING = "Starting"
    COMPARING = "Comparing"
    COMPARED = "Compared"
    FAILED = "Failed"


class ComparisonStatus(ApiModel):
    """One replica that has something otherwise than the others, to be compared with them."""

    state: ArmState
    """Waiting: not begun yet; Starting; Comparing; Compared: `result` says what was found, and the
    replica stays; Failed: it was given up."""
    revision: str = ""
    """Revision of that replica."""
    pod: str = ""
    """Its pod; of a replica that is a group, the leader."""
    result: Compared | None = None
    """Faster, Slower, NoDifference: within 1 %, or CannotTell, which may yet become another."""
    percent: str = ""
    """Tokens per second and request over those of the others at equal batch, percent."""
    interval_percent: str = ""
    """95 % interval of that, such as +1.1 to +5.8."""
    since: str = ""
    """When the result was found."""
    reason: str = ""
    """The reason, in one word."""
    message: str = ""
    """What is known so far, and which edit would follow."""


COMPLETE: Final = "Complete"
"""Stage of a rollout that is over."""
OFFERED: Final = "Offered"
"""Stage of a rollout that begins when somebody asks for it: `fathom.dev/rollout`."""


class RolloutStatus(ApiModel):
    """The rollout under way, or offered, or the last one."""

    revision: str = ""
    """The revision that the spec asks for, or that is offered."""
    stable: str = ""
    """The one that served before."""
    stage: str = ""
    """Settling, Canary, Promoted, RolledBack or Complete; Offered: what runs is of another build,
    and this one would render it otherwise."""
    since: str = ""
    """When it came to this stage."""
    reason: str = ""
    """Why it came to this stage, in one word."""
    message: str = ""
    """Why it came to this stage, in a sentence."""
    why: str = ""
    """The first difference between the pods of both revisions."""


class ReportedStatus(ApiModel):
    """What the operator reports of a resource of either kind."""

    observed_generation: int = 0
    """The newest generation of the resource that this was reported for."""
    reason: str = ""
    """What to know of it first, in one word: a condition's reason."""
    conditions: tuple[Condition, ...] = Field(
        default=(),
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
    """How it is, by subject: each True, False or Unknown, with the reason."""
    depth: DepthStatus = DepthStatus()
    measured: MeasuredStatus = MeasuredStatus()
    gained: GainedStatus | None = None
    tuning: TuningStatus = TuningStatus()
    last_reconcile_time: Annotated[str | None, Field(json_schema_extra={"format": "date-time"})] = (
        None
    )
    """When an operator last reconciled it: written with whatever else is, and by itself every ten
    minutes. Older than 25 minutes: no operator watches, and all the rest is from then."""

    def condition(self, kind: ConditionType | AlarmKind) -> Condition | None:
        """What it says of one subject; None: nothing."""
        return next((each for each in self.conditions if each.type == kind), None)

    @property
    def of_all(self) -> str:
        """Pods that serve, or can be read, and all, such as 2/2; empty: not known."""
        return ""


class SpeculativeDeploymentStatus(ReportedStatus):
    """What the operator reports."""

    replicas: int = 0
    """Serving pods that exist."""
    ready_replicas: int = 0
    """Those of them that are ready."""
    ready: str = ""
    """Ready and wanted replicas, such as 2/2."""
    selector: str = ""
    """Label selector of the leaders, for autoscalers."""
    engine: EngineStatus = EngineStatus()
    draft: DraftStatus = DraftStatus()
    weights: WeightsStatus | None = None
    rollout: RolloutStatus | None = None
    adaptive_verification: ComparisonStatus | None = None
    """While `speculation.adaptiveVerification` is Canary: the replica that has it."""
    drafting: ComparisonStatus | None = None
    """While `speculation.drafting` is Canary: the replica without drafts."""
    draft_trial: ComparisonStatus | None = None
    """While `draft.trial` names another draft: the replica that has it."""
    training: TrainingStatus | None = None
    """The training that is proposed or under way, or the last, also once `draft.training` is gone;
    absent: none was ever proposed."""
    warnings: tuple[str, ...] = ()
    """What the spec is warned of, as `fathom check` warns; each begins with a field."""
    left_out: tuple[str, ...] = ()
    """Optional objects that are not made, each with the reason and what follows from it."""
    quality: QualityStatus | None = None

    @property
    def of_all(self) -> str:
        """Replicas that serve, of those that are wanted."""
        return self.ready

    @property
    def comparison(self) -> ComparisonStatus | None:
        """The one replica that is compared, whatever it has otherwise; None: there is none."""
        return self.adaptive_verification or self.drafting or self.draft_trial
