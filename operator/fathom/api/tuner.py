"""A SpeculationTuner, v1alpha1: what users write, the rules across its fields, what is reported."""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from fathom.api.base import ApiModel, Texts
from fathom.api.choices import Objective, TuningMode
from fathom.api.metrics_rules import METRICS_RULES
from fathom.api.problem import Rule
from fathom.api.spec import MAX_TOKENS_LIMIT, SourceSpec, TuningGoals
from fathom.api.status import ReportedStatus


class Operator(StrEnum):
    """How a label is compared: Kubernetes' own."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class LabelRequirement(ApiModel):
    """One requirement of a label selector."""

    key: Annotated[str, Field(min_length=1, max_length=317)]
    """The label."""
    operator: Operator
    """How it is compared."""
    values: Annotated[tuple[Annotated[str, Field(max_length=63)], ...], Field(max_length=64)] = ()
    """With In and NotIn: what it is compared with."""


class PodSelector(ApiModel):
    """Which pods, of this namespace: a label selector, as Kubernetes has it."""

    match_labels: Annotated[Texts, Field(max_length=16)] = Field(default_factory=dict)
    """Labels that the pods have."""
    match_expressions: Annotated[tuple[LabelRequirement, ...], Field(max_length=16)] = ()
    """More that their labels have to fulfil."""

    def __str__(self) -> str:
        """As an API server takes it."""
        equal = [f"{label}={value}" for label, value in sorted(self.match_labels.items())]
        return ",".join((*equal, *map(_requirement, self.match_expressions)))


def _requirement(each: LabelRequirement) -> str:
    match each.operator:
        case Operator.EXISTS:
            return each.key
        case Operator.DOES_NOT_EXIST:
            return f"!{each.key}"
        case Operator.IN:
            return f"{each.key} in ({','.join(each.values)})"
        case Operator.NOT_IN:
            return f"{each.key} notin ({','.join(each.values)})"


class TunerMetricsSpec(SourceSpec):
    """Where measurements come from."""

    port: Annotated[int, Field(ge=1, le=65_535)] = 8000
    """Port of the pods' /metrics: vLLM's own."""


class TunerTuningSpec(TuningGoals):
    """How depth follows the traffic."""

    mode: Literal[TuningMode.ADVISE, TuningMode.AUTO] = TuningMode.ADVISE
    """Advise writes nothing, and says what it would do; Auto changes depth, where it is live."""


class SpeculationTunerSpec(ApiModel):
    """vLLM pods that Fathom did not start, and how deep they are to speculate."""

    selector: PodSelector
    """The pods, in this namespace. It cannot be changed: make another SpeculationTuner."""
    tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS_LIMIT)] | None = None
    """Your own depth, against which every change is judged, and to which all goes back; absent: the
    one that the engines say they were started with."""
    min_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS_LIMIT)] = 1
    """The shallowest the tuner may go; 0 allows it to stop speculating."""
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS_LIMIT)] | None = None
    """The deepest the tuner may go; absent: the deepest that all engines were started for."""
    metrics: TunerMetricsSpec = TunerMetricsSpec()
    tuning: TunerTuningSpec = TunerTuningSpec()


def _some_pods(selector: PodSelector) -> bool:
    return bool(selector.match_labels or selector.match_expressions)


def _values_where_compared(selector: PodSelector) -> bool:
    compared = {Operator.IN, Operator.NOT_IN}
    return all(
        (each.operator in compared) == bool(each.values) for each in selector.match_expressions
    )


TUNER_RULES: Final[tuple[Rule[SpeculationTunerSpec], ...]] = (
    Rule(
        field="selector",
        message="an empty selector would be every pod of the namespace: name a label.",
        cel="(has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0) "
        "|| size(self.selector.matchExpressions) > 0",
        holds=lambda spec: _some_pods(spec.selector),
    ),
    Rule(
        field="selector.matchExpressions",
        message="In and NotIn need values; Exists and DoesNotExist take none.",
        cel="self.selector.matchExpressions.all(e, "
        "(e.operator in ['In', 'NotIn']) == (size(e.values) > 0))",
        holds=lambda spec: _values_where_compared(spec.selector),
    ),
    Rule(
        field="tokens",
        message="tokens must lie between minTokens and maxTokens.",
        cel="!has(self.tokens) || (self.tokens >= self.minTokens "
        "&& (!has(self.maxTokens) || self.tokens <= self.maxTokens))",
        holds=lambda spec: (
            spec.tokens is None
            or spec.min_tokens <= spec.tokens <= (spec.max_tokens or MAX_TOKENS_LIMIT)
        ),
    ),
    Rule(
        field="maxTokens",
        message="maxTokens must be at least minTokens.",
        cel="!has(self.maxTokens) || self.maxTokens >= self.minTokens",
        holds=lambda spec: spec.max_tokens is None or spec.max_tokens >= spec.min_tokens,
    ),
    Rule(
        field="tuning.tpotMilliseconds",
        message="objective Goodput needs tpotMilliseconds.",
        cel="self.tuning.objective != 'Goodput' || has(self.tuning.tpotMilliseconds)",
        holds=lambda spec: (
            spec.tuning.objective is not Objective.GOODPUT
            or spec.tuning.tpot_milliseconds is not None
        ),
    ),
    *METRICS_RULES,
)


class Level(StrEnum):
    """What can be known of an engine, and done with it; each has all that the one before has."""

    METRICS = "Metrics"
    """A stock engine: acceptance, its alarms, and the break-even of a decode step."""
    COUNTED = "Counted"
    """With the plugin: steps and acceptance by batch, at the depths that run."""
    LIVE = "Live"
    """Depth can be changed while it runs: advice on depths, and mode Auto."""


class EnginesStatus(ApiModel):
    """Pods whose engines are alike, as they say themselves."""

    pods: int
    """How many of them there are."""
    level: Level | None = None
    """What can be done with them; absent: their metrics cannot be read."""
    reason: str = ""
    """What is missing first for more, in one word."""
    version: str = ""
    """vLLM's."""
    runner: str = ""
    """vLLM's model runner, V1 or V2."""
    depths: str = ""
    """That they were started with, such as 0,1,3,7."""
    max_num_seqs: int | None = None
    """Requests at a time."""


class BreakEven(ApiModel):
    """What a shallower depth keeps of the tokens of a decode step."""

    depth: int
    """In place of the depth that runs."""
    keeps_percent: str
    """Tokens per request and step over those at the depth that runs, percent."""
    pays_if_shorter_by_percent: str
    """It gives more tokens per second if a step gets shorter by more than this, percent."""


class SpeculationTunerStatus(ReportedStatus):
    """What the operator reports."""

    pods: int = 0
    """Pods that the selector finds."""
    readable_pods: int = 0
    """Those of them whose metrics could be read."""
    readable: str = ""
    """Readable pods and all, such as 3/3."""
    level: Level | None = None
    """What can be done with the engines that are judged."""
    tokens: int | None = None
    """Your own depth, as these engines have it: what changes are judged by; absent: not known."""
    tuned_pods: int = 0
    """Pods of these engines."""
    engines: Annotated[tuple[EnginesStatus, ...], Field(max_length=16)] = ()
    """By kind of engine, the judged ones first."""
    break_even: Annotated[tuple[BreakEven, ...], Field(max_length=64)] = ()
    """For decode steps alone, from acceptance; what it means for whole requests is not known."""

    @property
    def of_all(self) -> str:
        """Pods that can be read, of those that the selector finds."""
        return self.readable
