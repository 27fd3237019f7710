"""The whole resource, and how it is read: a manifest becomes a model, or a list of problems."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from fathom.api.base import NullIsAbsent
from fathom.api.bounded_json import DEEPEST
from fathom.api.cel_rules import violations
from fathom.api.conditions import AlarmKind, ConditionStatus, ConditionType, Reason, advice_of
from fathom.api.names import (
    API_VERSION,
    KIND,
    LONGEST_NAME,
    LONGEST_NAMESPACE,
    NAME_PATTERN,
    NAMESPACE_PATTERN,
    TUNER_KIND,
)
from fathom.api.newer_release import Pruned, pruned
from fathom.api.problem import Problem
from fathom.api.refusals import refusals
from fathom.api.spec import LONGEST_WINDOW_S, SpeculativeDeploymentSpec
from fathom.api.status import Condition, GainedStatus, SpeculativeDeploymentStatus
from fathom.engine.profile import EngineProfile, profile_of
from fathom.times import unix_seconds

UNKNOWN: Final = "–"
"""In a table: it is not zero."""
NOT_MEASURED: Final = "not measured"
UNWATCHED_S: Final = 1500.0
"""Age of a status that nobody keeps: an operator writes to it every ten minutes."""
UNWATCHED_ADVICE: Final = "Check that an operator runs, and that it watches this namespace."

LATE_S: Final = 90.0
"""What a window may be late by: a status is written once a minute."""
_MEASURES_NOTHING: Final = frozenset(
    {
        *(Reason.NO_TRAFFIC, Reason.PODS_NOT_READY),
        *(Reason.NO_METRICS, Reason.METRICS_REFUSED, Reason.STALE_METRICS),
    }
)
"""Reasons of Tuning with which nothing is known of the present."""
AS_ASKED: Final = frozenset({Reason.STATIC, Reason.DRAFTING_DISABLED})
"""Reasons why nothing is tuned that are what the spec asks for."""


class Metadata(NullIsAbsent):
    """What the operator needs of ObjectMeta; the rest passes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: Annotated[str, Field(pattern=NAME_PATTERN, max_length=LONGEST_NAME)]
    namespace: Annotated[str, Field(pattern=NAMESPACE_PATTERN, max_length=LONGEST_NAMESPACE)] = ""
    """Empty: whoever applies the manifest decides. In a cluster it is always there."""
    uid: str = ""
    generation: int = 0
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class _Manifest(NullIsAbsent):
    model_config = ConfigDict(frozen=True, extra="forbid")

    api_version: Annotated[Literal["fathom.dev/v1alpha1"], Field(alias="apiVersion")]
    kind: Literal["SpeculativeDeployment"]
    metadata: Metadata
    spec: SpeculativeDeploymentSpec
    status: Mapping[str, JsonValue] = Field(default_factory=dict)


@dataclass(frozen=True)
class SpeculativeDeployment:
    """One resource as its user wrote it, valid, and the engine that follows from it."""

    metadata: Metadata
    spec: SpeculativeDeploymentSpec

    @cached_property
    def engine(self) -> EngineProfile:
        """What its pods run; derived once."""
        return profile_of(self.spec)

    def with_spec(self, spec: SpeculativeDeploymentSpec) -> "SpeculativeDeployment":
        """The same resource, were this its spec."""
        return self if spec is self.spec else replace(self, spec=spec)


def is_speculative_deployment(manifest: Mapping[str, JsonValue]) -> bool:
    """Whether a document of a manifest file is meant to be one of ours.

    By kind or by group: if the other one is misspelt, `parse` says so.
    """
    kind, group = manifest.get("kind"), str(manifest.get("apiVersion", "")).split("/", 1)[0]
    return kind != TUNER_KIND and (kind == KIND or group == API_VERSION.split("/", 1)[0])


def parse(
    manifest: Mapping[str, JsonValue],
) -> SpeculativeDeployment | tuple[Problem, ...]:
    """Read a manifest; every problem found is returned, none raised."""
    if (field := _nested_too_deeply(manifest.get("spec"))) is not None:
        return (
            Problem(
                field=f"spec.{field}",
                message=f"nested more than {DEEPEST} deep: no pod template is.",
            ),
        )
    try:
        # By alias only: the names of Python's attributes are none that an API server knows.
        parsed = _Manifest.model_validate(manifest, by_alias=True, by_name=False)
    except ValidationError as error:
        return refusals(_Manifest, error.errors(include_url=False))
    problems = violations(parsed.spec)
    return problems or SpeculativeDeployment(parsed.metadata, parsed.spec)


def known_part(manifest: Mapping[str, JsonValue]) -> Pruned:
    """A resource of a cluster without the fields that only a CRD of another release knows.

    In a manifest that a user writes they are misspelt, and `parse` refuses them.
    """
    return pruned(_Manifest, manifest)


def _nested_too_deeply(spec: JsonValue) -> str | None:
    """The field of a spec below which it is; None: none is. No recursion, which has an end."""
    level = list(spec.items()) if isinstance(spec, dict) else []
    for _ in range(1, DEEPEST):
        level = [(field, child) for field, value in level for child in _children(value)]
    return level[0][0] if level else None


def _children(value: JsonValue) -> Iterable[JsonValue]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def unwatched_since(status: SpeculativeDeploymentStatus, now_s: float) -> str:
    """When an operator last looked after it, if that is long ago; empty: one does.

    Also empty where its operator is too old to say.
    """
    last = status.last_reconcile_time or ""
    at_s = unix_seconds(last)
    return last if at_s is not None and now_s - at_s > UNWATCHED_S else ""


def unwatched_in_words(since: str) -> str:
    """That nobody watches, and what to do."""
    return (
        f"No operator has watched it since {since}, and all that is shown is from then. "
        f"{UNWATCHED_ADVICE}"
    )


def holds(condition: Condition) -> bool:
    """Whether it is True."""
    return condition.status is ConditionStatus.TRUE


def cause_of(condition: Condition) -> str:
    """Its message without what to do, which `advice_of` says."""
    advice = advice_of(condition.reason)
    return condition.message.replace(f" {advice}", "") if advice else condition.message


def in_words(condition: Condition, name: str) -> str:
    """Its cause, then what a person does about it."""
    return f"{cause_of(condition)} {advice_of(condition.reason, name)}".strip()


def advice_on(condition: Condition, status: SpeculativeDeploymentStatus, name: str) -> str:
    """What a person does about a condition of this status; empty: nothing.

    Nobody waits for what is under way while something is wrong.
    """
    degraded = status.condition(ConditionType.DEGRADED)
    waits = condition.type is ConditionType.PROGRESSING and holds(condition)
    vain = waits and degraded is not None and holds(degraded)
    return "" if vain else advice_of(condition.reason, name)


def is_measured_now(status: SpeculativeDeploymentStatus, now_s: float) -> bool:
    """Whether what was measured last is of now (Unix seconds); else nobody shows it as such."""
    tuning, ready = (status.condition(each) for each in (ConditionType.TUNING, ConditionType.READY))
    blind = tuning is not None and tuning.reason in _MEASURES_NOTHING
    idle = ready is not None and ready.reason == Reason.SCALED_TO_ZERO
    ended_s = unix_seconds(status.measured.at)
    if ended_s is None or blind or idle:
        return False
    # How long the next one takes is not known: the last may have been one of a probe.
    return now_s - ended_s <= LONGEST_WINDOW_S + LATE_S


def standing(status: SpeculativeDeploymentStatus, now_s: float) -> tuple[str, ...]:
    """What somebody should look at: that nobody watches, and conditions as `Degraded/PodFailing`.

    Args:
        status: of a resource.
        now_s: Unix seconds.
    """
    since = unwatched_since(status, now_s)
    unwatched = (f"Unwatched since {since}",) if since else ()
    return (*unwatched, *(f"{each.type}/{each.reason}" for each in alarming(status)))


def alarming(status: SpeculativeDeploymentStatus) -> Iterator[Condition]:
    """Conditions that somebody should look at: active alarms, and Degraded."""
    for each in status.conditions:
        if holds(each) and (
            each.type is ConditionType.DEGRADED or isinstance(each.type, AlarmKind)
        ):
            yield each


def why_not_live(resource: SpeculativeDeployment, status: SpeculativeDeploymentStatus) -> str:
    """Why depth is not live; empty: it is.

    The operator sees how its pods were started; the spec alone tells less.
    """
    actuation = status.engine.actuation
    if actuation:
        said = status.engine.reason or f"status.engine.actuation is {actuation}."
        return "" if actuation == "Live" else said
    refusal = resource.engine.not_live
    return refusal.sentence if refusal else ""


def gained_in_words(gained: GainedStatus) -> str:
    """What following the traffic brought and, of GPUs, over which hours that is known."""
    share = f"{signed(gained.percent)} % ± {gained.error_percent}"
    if not gained.measured_gpu_hours:
        return f"{share if gained.percent else NOT_MEASURED} since {gained.since}"
    hours = (
        f"{gained.measured_gpu_hours} busy GPU hours measured, {gained.unmeasured_gpu_hours} not"
    )
    if not gained.percent:
        return f"{NOT_MEASURED} since {gained.since} ({hours})"
    return (
        f"{share}, {signed(gained.gpu_hours)} ± {gained.error_gpu_hours} GPU hours since "
        f"{gained.since} ({hours})"
    )


def signed(number: str) -> str:
    """A number of the status with its sign, as it stands there."""
    return number if number.startswith("-") else f"+{number}"


class Headline(StrEnum):
    """As a headline ends."""

    WELL = "is well"
    ALARMED = "serves, and an alarm is active"
    PAUSED = "is paused"
    UNDER_WAY = "is changing"
    NOT_WELL = "is not well"
    UNKNOWN = "is not known to be well"


@dataclass(frozen=True, slots=True)
class Wellness:
    headline: Headline
    cause: str = ""
    """What happens, or what to do, in sentences; empty: nothing."""

    @property
    def is_well(self) -> bool:
        """Whether no person has to act."""
        return self.headline in {Headline.WELL, Headline.PAUSED}


def wellness_in(
    status: SpeculativeDeploymentStatus | None, *, name: str, newest: int, now_s: float
) -> Wellness:
    """Judge what a status says of its resource.

    Args:
        status: None: there is none.
        name: of the resource.
        newest: generation of the resource.
        now_s: Unix seconds.
    """
    if status is not None and (since := unwatched_since(status, now_s)):
        return Wellness(Headline.UNKNOWN, unwatched_in_words(since))
    if status is None or not status.conditions:
        return Wellness(
            Headline.UNKNOWN,
            f"No operator has reported on it yet. {UNWATCHED_ADVICE}",
        )
    if status.observed_generation < newest:
        return Wellness(
            Headline.UNKNOWN,
            f"The operator has reported on generation {status.observed_generation} and not yet on "
            f"{newest}, the newest. If that lasts for a minute: does it run?",
        )
    found = (judge(status, name) for judge in _JUDGES)
    return next((each for each in found if each is not None), Wellness(Headline.WELL))


def _degraded(status: SpeculativeDeploymentStatus, name: str) -> Wellness | None:
    degraded = status.condition(ConditionType.DEGRADED)
    if degraded is None or not holds(degraded):
        return None
    return Wellness(Headline.NOT_WELL, f"{degraded.reason}: {in_words(degraded, name)}")


def _progressing(status: SpeculativeDeploymentStatus, _: str) -> Wellness | None:
    progressing = status.condition(ConditionType.PROGRESSING)
    if progressing is None:
        return None
    if progressing.reason == Reason.ROLLOUT_BLOCKED:
        return Wellness(Headline.NOT_WELL, f"{progressing.reason}: {progressing.message}")
    return Wellness(Headline.UNDER_WAY, progressing.message) if holds(progressing) else None


def _not_ready(status: SpeculativeDeploymentStatus, _: str) -> Wellness | None:
    ready = status.condition(ConditionType.READY)
    if ready is not None and (holds(ready) or ready.reason == Reason.SCALED_TO_ZERO):
        return None
    return Wellness(Headline.NOT_WELL, ready.message if ready else "It says nothing of Ready.")


def _alarmed(status: SpeculativeDeploymentStatus, name: str) -> Wellness | None:
    found = (status.condition(kind) for kind in AlarmKind)
    alarms = [in_words(each, name) for each in found if each is not None and holds(each)]
    return Wellness(Headline.ALARMED, " ".join(alarms)) if alarms else None


def _paused(status: SpeculativeDeploymentStatus, _: str) -> Wellness | None:
    progressing = status.condition(ConditionType.PROGRESSING)
    paused = progressing is not None and progressing.reason == Reason.PAUSED
    return Wellness(Headline.PAUSED) if paused else None


_JUDGES: Final[tuple[Callable[[SpeculativeDeploymentStatus, str], Wellness | None], ...]] = (
    _degraded,
    _progressing,
    _not_ready,
    _alarmed,
    _paused,
)
"""In this order: the first that answers is the verdict."""
