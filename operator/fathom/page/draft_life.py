"""The life of a draft in steps: in use, trained when it no longer fits, tried, adopted. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from fathom.api.status import (
    ArmState,
    Compared,
    ComparisonStatus,
    ReportedStatus,
    SpeculativeDeploymentStatus,
)
from fathom.api.training import TrainingPhase, TrainingStatus
from fathom.page.history import comparison_in_words
from fathom.training.record import AWAITS_PERSON, ENDED
from fathom.training.status import cause_and_advice


class Step(StrEnum):
    """One step of a draft's life, in order."""

    IN_USE = "In use"
    PROPOSED = "Proposed"
    APPROVED = "Approved"
    TRAINING = "Training"
    INTAKE = "Intake"
    TRIAL = "Trial"
    ADOPTED = "Adopted"


class Place(StrEnum):
    """Where a step is, seen from the present one."""

    DONE = "done"
    NOW = "now"
    NEXT = "next"


class Mood(StrEnum):
    """What the present step is to a reader."""

    WAITS = "waits"
    UNDER_WAY = "under-way"
    OVER = "over"


WHO: Final[Mapping[Step, str]] = MappingProxyType(
    {
        Step.IN_USE: "operator",
        Step.PROPOSED: "operator",
        Step.APPROVED: "a person",
        Step.TRAINING: "trainer's Job",
        Step.INTAKE: "operator's Job",
        Step.TRIAL: "operator",
        Step.ADOPTED: "a person",
    }
)
"""Who takes each step; docs/draft-life.svg has the same."""
_OF_A_TRIAL: Final = (Step.IN_USE, Step.TRIAL, Step.ADOPTED)
"""Steps of a draft that the spec names: it is there already."""


@dataclass(frozen=True, slots=True)
class _Phase:
    step: Step
    title: str


_PHASES: Final[Mapping[TrainingPhase, _Phase]] = MappingProxyType(
    {
        TrainingPhase.PROPOSED: _Phase(Step.PROPOSED, "A training is proposed"),
        TrainingPhase.APPROVED: _Phase(Step.APPROVED, "A training is approved, and has not begun"),
        TrainingPhase.TRAINING: _Phase(Step.TRAINING, "A draft is being trained"),
        TrainingPhase.FAILED: _Phase(Step.TRAINING, "The training failed"),
        TrainingPhase.INTAKE: _Phase(Step.INTAKE, "The trained draft is being verified"),
        TrainingPhase.REFUSED: _Phase(Step.INTAKE, "The trained draft was not taken"),
        TrainingPhase.TRIAL: _Phase(Step.TRIAL, "The trained draft is to be tried in one replica"),
        TrainingPhase.FASTER: _Phase(Step.TRIAL, "The trained draft is faster"),
        TrainingPhase.ADOPTED: _Phase(Step.ADOPTED, "The trained draft is adopted"),
        TrainingPhase.DISMISSED: _Phase(Step.IN_USE, "The training is over: the draft stays"),
    }
)
_TRIES: Final = "One replica tries the trained draft"
"""Title of the trial once that replica is there, or is made."""
_OTHERWISE: Final = frozenset({TrainingPhase.FAILED, TrainingPhase.REFUSED, TrainingPhase.FASTER})
"""Phases that say more than the name of their step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeStep:
    """One step as it is shown."""

    name: str
    """The step, or at the present one how it ended, such as Failed."""
    who: str
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftLife:
    """How far one training, or one trial of another draft, is."""

    steps: tuple[LifeStep, ...]
    mood: Mood
    title: str
    """In plain words, and whether it waits for a person."""
    code: str
    """By which scripts and documents know it, such as Training/Proposed."""
    since: str
    """When it came to the present step; empty: it is not known."""
    cause: str
    """How it is, in sentences."""
    advice: str = ""
    """What a person may do, with the commands; empty: nothing."""
    run: str = ""
    """What a person approves or dismisses; empty: nothing was trained."""
    job: str = ""
    """The Job under way; empty: none is."""
    gpu_hours: str = ""
    """Begun within seven days, at most, of those that the spec allows; empty: it is not known."""

    @property
    def waits(self) -> bool:
        """Whether nothing follows until a person acts."""
        return self.mood is Mood.WAITS


def lives_in(status: ReportedStatus) -> tuple[DraftLife, ...]:
    """What a status says of trained drafts and drafts on trial; empty: there are none."""
    return tuple(_lives(status))


def _lives(status: ReportedStatus) -> Iterator[DraftLife]:
    if not isinstance(status, SpeculativeDeploymentStatus):
        return
    training, trial = status.training, status.draft_trial
    # The message of a training on trial repeats what its own comparison found.
    own = training and trial and trial.message.rstrip(".") in training.message
    if training is not None:
        tries = bool(own and trial and trial.state is not ArmState.WAITING)
        yield _of_training(training, tries=tries)
    if trial is not None and not own:
        yield _of_trial(trial)


def _of_training(training: TrainingStatus, *, tries: bool) -> DraftLife:
    phase, at = training.phase, _PHASES[training.phase]
    cause, advice = cause_and_advice(training.message)
    mood = Mood.OVER if phase in ENDED else Mood.UNDER_WAY
    title = _TRIES if tries and phase is TrainingPhase.TRIAL else at.title
    if phase in AWAITS_PERSON:
        mood, title = Mood.WAITS, f"{title}, and waits for a person"
    return DraftLife(
        steps=_steps(tuple(Step), at.step, phase.value if phase in _OTHERWISE else at.step.value),
        mood=mood,
        title=title,
        code=f"Training/{phase}",
        since=training.since,
        cause=cause,
        advice=advice,
        run=training.run,
        job=training.job,
        gpu_hours=training.gpu_hours_this_week,
    )


def _of_trial(trial: ComparisonStatus) -> DraftLife:
    failed, faster = trial.state is ArmState.FAILED, trial.result is Compared.FASTER
    found = trial.result or trial.state
    title = f"Another draft is on trial in {trial.pod or 'one replica'}"
    if trial.state is ArmState.WAITING:
        title = "Another draft is to be tried in one replica"
    elif failed:
        title = "The replica with another draft was given up"
    elif faster:
        title = "The draft on trial is faster"
    return DraftLife(
        steps=_steps(_OF_A_TRIAL, Step.TRIAL, found.value if failed or faster else Step.TRIAL),
        mood=Mood.UNDER_WAY,
        title=title,
        code=f"DraftTrial/{found}",
        since=trial.since,
        cause=comparison_in_words(trial) or trial.reason,
    )


def _steps(steps: tuple[Step, ...], now: Step, name: str) -> tuple[LifeStep, ...]:
    present = steps.index(now)
    places = (
        Place.DONE if i < present else Place.NOW if i == present else Place.NEXT
        for i in range(len(steps))
    )
    return tuple(
        LifeStep(name=name if place is Place.NOW else step.value, who=WHO[step], place=place)
        for step, place in zip(steps, places, strict=True)
    )
