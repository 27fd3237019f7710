"""What is kept of the training of a draft, so that no operator begins one twice.

A training costs GPU hours, so each is written down before its Job is made. What is lost between two
writes costs an approval, never a second Job.
"""

from dataclasses import dataclass, replace
from typing import Final, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fathom.api.training import MINUTES_PER_HOUR, TrainingPhase, TrainingSpec
from fathom.model_refs import ModelRef
from fathom.times import UnixSeconds

WEEK_S: Final = 7 * 24 * 3600.0
_NO_MODEL: Final = ModelRef("")
_MOST_STARTS: Final = 64
"""That are kept of a week. A budget that allows more begins no more than these."""
ENDED: Final = frozenset({None, TrainingPhase.ADOPTED, TrainingPhase.DISMISSED})
"""Phases in which nothing is under way and nothing is asked."""
AWAITS_APPROVAL: Final = frozenset({TrainingPhase.PROPOSED, TrainingPhase.FAILED})
TAKEN_IN: Final = frozenset({TrainingPhase.INTAKE, TrainingPhase.REFUSED})
ON_TRIAL: Final = frozenset({TrainingPhase.TRIAL, TrainingPhase.FASTER})
AWAITS_PERSON: Final = AWAITS_APPROVAL | {TrainingPhase.REFUSED, TrainingPhase.FASTER}
"""Phases that last until a person acts; what serves is well meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One training that was begun."""

    run: str
    at_s: UnixSeconds
    gpu_minutes: int
    """That it takes at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedDraft:
    """What came of a training."""

    id: str
    """Hugging Face id, or the directory in the cache."""
    revision: str = ""
    """Commit; empty for a directory, which is named after its content."""
    facts: str = ""
    """What the intake reported of a directory's config.json and headers (JSON)."""

    @property
    def ref(self) -> ModelRef:
        return ModelRef(self.id, self.revision)

    def is_of(self, ref: ModelRef) -> bool:
        """Whether a spec names it. A directory has one content, whatever revision stands there."""
        return ref == self.ref or (not self.revision and ref.id == self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The evidence that a draft no longer fits, as a proposal was made."""

    reference: tuple[float, ...] = ()
    """P(the first i drafts are all accepted) on the first day of the pair, by position."""
    now: tuple[float, ...] = ()
    """The same on the last day that is over, or in the last window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecord:
    """The training that is proposed or under way, or the last one; and what was begun lately."""

    # What a later Fathom knows beside, this one does without.
    __pydantic_config__ = ConfigDict(extra="ignore", allow_inf_nan=False)

    phase: TrainingPhase | None = None
    """None: none was ever proposed."""
    run: str = ""
    """What a person approves: a digest of what would be trained, from what, and how."""
    reason: str = ""
    """Why it was proposed: an alarm's reason, or `ASKED_FOR`."""
    why: str = ""
    """The same as a sentence."""
    since_s: UnixSeconds = 0.0
    """When it came to this phase."""
    target: str = ""
    """Id of the model that was served when it was proposed; empty: not known yet."""
    draft: ModelRef = _NO_MODEL
    """That the replicas had when it was proposed."""
    acceptance: Acceptance = Acceptance()
    proposed_at_s: UnixSeconds = 0.0
    """The same training, proposed again, is another run."""
    begun: str = ""
    """The run whose Jobs were made, or may be made now."""
    is_job_seen: bool = False
    """Whether its Job was there, or may have been. What is gone then is not made again."""
    result: TrainedDraft | None = None
    ending: str = ""
    """Why the last run ended, as a sentence."""
    asked: str = ""
    """The newest wish of a person for a proposal that asks for nothing any more: it was granted, or
    there was one."""
    starts: tuple[Start, ...] = ()
    """What was begun within seven days."""

    @classmethod
    def from_json(cls, text: str) -> Self | None:
        """None: it is none."""
        try:
            return _RECORD.validate_json(text)  # type: ignore[return-value]
        except ValidationError:
            return None

    def to_json(self) -> str:
        """Equal records are equal strings."""
        return _RECORD.dump_json(self, exclude_defaults=True).decode()

    def tries(self, ref: ModelRef) -> bool:
        """Whether this draft came of a training, and is or was to be tried."""
        return self.phase in ON_TRIAL and self.result is not None and self.result.ref == ref

    @property
    def is_active(self) -> bool:
        """Whether something is proposed or under way."""
        return self.phase not in ENDED

    def at(self, phase: TrainingPhase, now_s: float) -> "TrainingRecord":
        """In another phase from now on."""
        return self if phase is self.phase else replace(self, phase=phase, since_s=now_s)

    def begun_minutes(self, now_s: float) -> int:
        """GPU minutes begun within seven days, at most."""
        return sum(each.gpu_minutes for each in self.recent(now_s))

    def recent(self, now_s: float) -> tuple[Start, ...]:
        """Trainings begun within seven days.

        A clock that was set back forgets none: what it says is to come counts from now.
        """
        known = (replace(each, at_s=min(each.at_s, now_s)) for each in self.starts)
        return tuple(each for each in known if now_s - each.at_s < WEEK_S)

    def with_start(self, spec: TrainingSpec, now_s: float) -> "TrainingRecord":
        """With its run begun."""
        start = Start(run=self.run, at_s=now_s, gpu_minutes=spec.gpu_minutes)
        begun = replace(
            self,
            starts=(*self.recent(now_s), start),
            begun=self.run,
            is_job_seen=False,
            result=None,
            ending="",
        )
        return begun.at(TrainingPhase.TRAINING, now_s)

    def with_job(self, now_s: float) -> "TrainingRecord":
        """With its Job, which may have been made until now: its GPU hours count from now on."""
        if self.is_job_seen:
            return self
        starts = (
            replace(each, at_s=now_s) if each.run == self.begun else each for each in self.starts
        )
        return replace(self, starts=tuple(starts), is_job_seen=True)

    def without_start(self) -> "TrainingRecord":
        """With no GPU hours counted for its run, whose Job was never made."""
        return replace(self, starts=tuple(each for each in self.starts if each.run != self.begun))


_RECORD: Final = TypeAdapter(TrainingRecord)


def over_budget(record: TrainingRecord, spec: TrainingSpec, now_s: float) -> str:
    """Why no training may begin now, as half a sentence; empty: one may.

    Args:
        record: with what was begun lately.
        spec: what its user allows.
        now_s: Unix seconds.
    """
    begun, allowed = record.begun_minutes(now_s), spec.gpu_hours_per_week * MINUTES_PER_HOUR
    if begun + spec.gpu_minutes > allowed:
        return (
            f"it may take {hours(spec.gpu_minutes)} GPU hours, and {hours(begun)} of the "
            f"{spec.gpu_hours_per_week} that draft.training.gpuHoursPerWeek allows were begun "
            "within seven days"
        )
    if len(record.recent(now_s)) >= _MOST_STARTS:
        return f"{_MOST_STARTS} trainings were begun within seven days"
    return ""


def hours(minutes: int) -> str:
    """Minutes as hours, with two decimals at most: sums of two are right to the minute."""
    return f"{minutes / MINUTES_PER_HOUR:.2f}".rstrip("0").rstrip(".")
