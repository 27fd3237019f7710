"""The document of `fathom explain -o json`."""

from collections.abc import Iterable
from math import expm1
from typing import Literal

from fathom.api.choices import TuningMode
from fathom.api.tuner import Level, SpeculationTunerStatus
from fathom.cli.documents import Document, Part, ResourceKind, number, resource_kind
from fathom.cli.history import Happened, decisions
from fathom.page.subject import AnySubject
from fathom.tuning.explanation import Explanation, Worth


class WorthPart(Part):
    """What a depth is worth in a bucket, over the user's own depth; null: nothing is known."""

    depth: int
    gain_percent: float | None
    error_percent: float | None
    """One standard error."""
    measured: bool


class BucketPart(Part):
    batches: str
    share: float
    """Share of the recent busy time, 0 to 1."""
    depth: int
    why: str
    worths: tuple[WorthPart, ...]


class PositionPart(Part):
    """One draft position, counted from 1."""

    position: int
    acceptance: float
    """P(accepted | all before it were)."""
    error: float
    survival: float
    """P(this and all before it accepted)."""
    acceptance_length: float
    """Tokens per step at a depth of this position."""
    measured: bool


class ContextPart(Part):
    """Drafts of requests whose context lies in one range, over the last half hour or so."""

    context_ge: int
    """The shortest context, in tokens."""
    context_le: int | None
    """The longest; null: the range has no end."""
    drafts: float
    """How many it rests on; older ones count for less."""
    share: float
    """Its part of all drafts, 0 to 1."""
    first: float | None
    """P(the first token is accepted); null here and below: too few drafts."""
    error: float | None
    """One standard error of it."""
    accepted: float | None
    """Tokens accepted of a draft, on average."""
    drafted: float | None
    """Tokens of a draft, on average."""


class PodsPart(Part):
    """What is known of pods that are tuned together."""

    pods: str
    """Empty: all that are not tuned apart."""
    nothing: str
    """Why nothing is known; empty: something is."""
    buckets: tuple[BucketPart, ...]
    positions: tuple[PositionPart, ...]
    contexts: tuple[ContextPart, ...]
    """Empty: not known, or the plugin is from before it counted them."""
    unsure_of: tuple[str, ...]
    next_step: str
    turning_points: tuple[str, ...]
    reference: str = ""
    """What acceptance is held against; empty: that is not known."""
    alarms: tuple[str, ...]


class BreakEvenPart(Part):
    """What a shallower depth keeps of the tokens of a decode step."""

    depth: int
    keeps_percent: float | None
    pays_if_shorter_by_percent: float | None
    """It gives more tokens per second if a step gets shorter by more than this."""


class ExplanationReport(Document):
    """The document of `fathom explain`."""

    kind: Literal["ExplanationReport"] = "ExplanationReport"
    namespace: str
    name: str
    resource_kind: ResourceKind
    level: Level | None
    """What can be done with the engines of a SpeculationTuner; null: not known, or it is none."""
    mode: TuningMode
    tokens: int | None
    """The user's own depth; null: of a SpeculationTuner, where it is not known."""
    tuned: tuple[PodsPart, ...]
    """First all pods, then those that are tuned apart; empty: nothing is tuned."""
    attention: tuple[str, ...]
    decisions: tuple[Happened, ...]
    survival: tuple[float, ...]
    """P(this and all before it accepted), by position, where the level is Metrics."""
    break_even: tuple[BreakEvenPart, ...]
    """For decode steps alone, from acceptance."""


def explanation_report(
    subject: AnySubject, found: Explanation | None, attention: Iterable[str]
) -> ExplanationReport:
    """All that is known of one resource.

    Args:
        subject: it, with a spec that is not refused.
        found: what its tuner knows; None: nothing is tuned.
        attention: what is not as it should be, in sentences.

    Raises:
        ValueError: its spec is refused.
    """
    tuned, status = subject.tuned, subject.status
    if tuned.goals is None:
        raise ValueError(tuned.nothing)
    tuner = status if isinstance(status, SpeculationTunerStatus) else SpeculationTunerStatus()
    everyone = [("", found), *found.apart] if found else []
    return ExplanationReport(
        namespace=subject.key.namespace,
        name=subject.key.name,
        resource_kind=resource_kind(subject.key.kind),
        level=tuner.level,
        mode=tuned.goals.mode,
        tokens=tuned.tokens,
        tuned=tuple(_pods(pods, each) for pods, each in everyone),
        attention=tuple(attention),
        decisions=tuple(decisions(status)),
        survival=tuple(each.survival for each in subject.positions()),
        break_even=tuple(
            BreakEvenPart(
                depth=each.depth,
                keeps_percent=number(each.keeps_percent),
                pays_if_shorter_by_percent=number(each.pays_if_shorter_by_percent),
            )
            for each in tuner.break_even
        ),
    )


def _pods(pods: str, found: Explanation) -> PodsPart:
    buckets = (
        BucketPart(
            batches=each.batches,
            share=each.share,
            depth=each.depth,
            why=each.why,
            worths=tuple(map(_worth_part, each.worths)),
        )
        for each in found.buckets
    )
    return PodsPart(
        pods=pods,
        nothing=found.nothing,
        buckets=tuple(buckets),
        positions=tuple(
            PositionPart.model_validate(each, from_attributes=True)
            for each in found.positions
            if each.error is not None  # else `survival` has it
        ),
        contexts=tuple(
            ContextPart.model_validate(each, from_attributes=True) for each in found.contexts
        ),
        unsure_of=found.doubts,
        next_step=found.next_step,
        turning_points=found.turning_points,
        reference=found.reference,
        alarms=tuple(map(str, found.alarms)),
    )


def _worth_part(worth: Worth) -> WorthPart:
    gain = worth.gain
    return WorthPart(
        depth=worth.depth,
        gain_percent=None if gain is None else 100 * expm1(gain.mean),
        error_percent=None if gain is None else 100 * gain.sd,
        measured=gain is not None and gain.measured,
    )
