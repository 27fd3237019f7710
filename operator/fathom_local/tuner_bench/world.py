"""A world: hardware, traffic, noise and events, as its TOML file describes them.

`docs/worlds.md` explains every field to those who write one.
"""

import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from fathom.api.spec import Objective
from fathom.core.depth_set import grid_of
from fathom_local.tuner_bench.errors import WorldError

DEEPEST: Final = 8
"""Depths of 0 to 8 exist in a world: as far as acceptance lengths are published."""
LEAST_FIT: Final = 0.2
"""Drafts of which fewer than one in five are accepted at the first position do not fit."""

Share = Annotated[float, Field(ge=0, le=1)]
Span = tuple[NonNegativeFloat, NonNegativeFloat]
"""From, to; drawn uniformly for every seed."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class GraphsPart(_Part):
    """`[fleet.graphs]`: the engines capture CUDA graphs, and replay them by vLLM's rule."""

    depths: Literal["set", "all", "tokens"] | tuple[int, ...] = "set"
    """That are named at start: the operator's for `tokens`, all, the user's own alone, or these."""
    sizes: Literal["grid", "vllm"] = "grid"
    """That are captured: the operator's for these depths, or what vLLM chooses for them."""
    ceiling: PositiveInt = 512
    """The largest size, in tokens: 512 on an H100, 1024 on a GB200."""


class FleetPart(_Part):
    """`[fleet]`: what the user wrote, and how the cluster carries changes out."""

    replicas: PositiveInt = 4
    max_batch: Annotated[int, Field(ge=1, le=1024)] = 128
    tokens: Annotated[int, Field(ge=0, le=DEEPEST)] = 3
    min_tokens: Annotated[int, Field(ge=0, le=DEEPEST)] = 1
    max_tokens: Annotated[int, Field(ge=1, le=DEEPEST)] = 7
    window_seconds: Annotated[int, Field(ge=10, le=600)] = 30
    objective: Objective = Objective.THROUGHPUT
    tpot_milliseconds: PositiveFloat | None = None
    min_gain_percent: NonNegativeFloat = 1.0
    days: Annotated[int, Field(ge=1, le=7)] = 1
    delivery_seconds: Span = (1.0, 8.0)
    graphs: GraphsPart | None = None
    adaptive_verification: bool = False
    """The engines verify as many of their drafts as make a step fastest, and nobody knows which."""

    @property
    def named(self) -> tuple[int, ...]:
        """The depths that the engines have, ascending; all, unless `graphs` says otherwise."""
        asked = "all" if self.graphs is None else self.graphs.depths
        match asked:
            case "all":
                return tuple(range(self.max_tokens + 1))
            case "tokens":
                return (self.tokens,)
            case "set":
                grid = grid_of(self.tokens, self.max_tokens)
                return tuple(k for k in range(self.max_tokens + 1) if grid % (k + 1) == 0)
            case _:
                return tuple(sorted(set(asked)))

    @property
    def depths(self) -> tuple[int, ...]:
        """That may be chosen, ascending: those of the engines within the user's bounds."""
        return tuple(k for k in self.named if self.min_tokens <= k <= self.max_tokens)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.min_tokens <= self.tokens <= self.max_tokens:
            raise ValueError("tokens must lie between min_tokens and max_tokens")
        if self.objective is Objective.GOODPUT and self.tpot_milliseconds is None:
            raise ValueError("objective Goodput needs tpot_milliseconds")
        if self.tokens not in self.named:
            raise ValueError(f"depths must name tokens, {self.tokens}")
        if not 0 <= self.named[0] <= self.named[-1] <= self.max_tokens:
            raise ValueError(f"depths must lie between 0 and max_tokens, {self.max_tokens}")
        return self


class ExpertsPart(_Part):
    """`[step_time.moe]`: weights that are read only when a token is routed to their expert."""

    experts: PositiveInt = 256
    top: PositiveInt = 8
    expert_us: NonNegativeFloat = 40.0
    """Microseconds to read one expert in all layers."""
    own_experts: Share = 0.7
    """Share of a request's drafts that choose experts of their own, not its first token's."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.top > self.experts:
            raise ValueError("top must not exceed experts")
        return self


class StepTimePart(_Part):
    """`[step_time]`: seconds of one decode step at every batch and depth; in milliseconds."""

    spread: Annotated[float, Field(ge=0, le=1)] = 0.15
    """Standard deviation of the lognormal error that each seed puts on every time."""
    overhead_ms: NonNegativeFloat = 1.5
    weights_ms: NonNegativeFloat = 7.0
    compute_per_token_us: NonNegativeFloat = 20.0
    attention_per_request_us_per_1k: NonNegativeFloat = 12.0
    """Microseconds per request and thousand tokens of context."""
    knee: Annotated[float, Field(ge=1, le=16)] = 4.0
    """Sharpness of the roofline: 1 adds memory and compute, 16 takes nearly the larger."""
    draft_fixed_ms: NonNegativeFloat = 0.4
    draft_token_ms: NonNegativeFloat = 0.5
    draft_token_request_us: NonNegativeFloat = 2.0
    graph_sizes: tuple[PositiveInt, ...] = ()
    """Captured CUDA graph sizes in tokens, ascending; a step is padded to the next one."""
    moe: ExpertsPart | None = None
    table_ms: dict[str, tuple[PositiveFloat, ...]] | None = None
    """Explicit rows instead: batch to milliseconds at depths 0, 1, 2 …; linear in between."""

    @model_validator(mode="after")
    def _rows(self) -> Self:
        if self.table_ms is None:
            return self
        rows = self.table_ms
        if not rows or not all(key.isdecimal() and int(key) >= 1 for key in rows):
            raise ValueError('table_ms maps a batch, such as "16", to a row of milliseconds')
        if len({len(row) for row in rows.values()}) != 1:
            raise ValueError("all rows of table_ms must have the same length")
        return self


class NoisePart(_Part):
    """`[noise]`: what makes measurements differ from the truth, and pods from each other."""

    pod_speed_sd: NonNegativeFloat = 0.015
    pod_speed_memory_s: PositiveFloat = 120.0
    pod_spread_sd: NonNegativeFloat = 0.02
    step_spread: NonNegativeFloat = 0.25
    design_effect: Annotated[float, Field(ge=1, le=100)] = 12.0
    outliers_per_hour: NonNegativeFloat = 0.5
    outlier_slowdown: NonNegativeFloat = 0.3
    outlier_seconds: PositiveFloat = 30.0
    scrape_seconds: NonNegativeFloat = 0.0
    """0: read when asked; otherwise the newest scrape of so many seconds."""
    scrape_failures: Share = 0.0
    clock_error_s: NonNegativeFloat = 0.0
    """Standard deviation of the error of a scrape's time stamp."""


class TrafficPart(_Part):
    """`[traffic]`: how much work there is."""

    mode: Literal["closed", "open"] = "closed"
    concurrency: PositiveFloat = 24.0
    """Mean requests in flight per replica (closed)."""
    requests_per_second: PositiveFloat = 2.0
    """Mean arrivals per replica (open)."""
    queue_limit: PositiveInt = 256
    """Waiting requests per replica beyond which arrivals are turned away (open)."""
    diurnal: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Amplitude relative to the mean, over 24 hours."""
    peak_hour: Annotated[float, Field(ge=0, lt=24)] = 14.0
    fluctuation: NonNegativeFloat = 0.12
    """Standard deviation of the batch relative to its mean, per pod."""
    fluctuation_memory_s: PositiveFloat = 60.0
    bursts_per_hour: NonNegativeFloat = 0.0
    burst_factor: PositiveFloat = 3.0
    burst_seconds: PositiveFloat = 120.0
    skew: NonNegativeFloat = 0.03
    """Standard deviation of the replicas' shares of the load."""
    quiet_hours: tuple[Span, ...] = ()
    """Hours of the day without a request."""
    prompt_tokens: PositiveFloat = 1000.0
    output_tokens: PositiveFloat = 400.0
    prefill_us_per_token: NonNegativeFloat = 4.0
    prefill_chunk: PositiveInt = 8192
    kv_tokens: PositiveFloat = 4_000_000.0
    """Tokens of KV cache per replica; the batch that fits is this over the context."""
    preemption_cost: Share = 0.5
    """Share of the time lost when twice what fits is asked for."""


class ClassPart(_Part):
    """`[[classes]]`: requests that are alike."""

    name: str
    share: NonNegativeFloat = 1.0
    acceptance: tuple[Share, ...] = ()
    """Conditional acceptance by position; the last one carries on."""
    length: tuple[PositiveFloat, ...] = ()
    """Or: acceptance length at depths 1, 2, 3 …, as published."""
    tail: NonNegativeFloat = 0.1
    """Lognormal spread of tokens per step from request to request."""
    context: PositiveFloat = 2000.0

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if bool(self.acceptance) == bool(self.length):
            raise ValueError(f"class {self.name} needs either acceptance or length")
        increasing = all(b >= a for a, b in zip(self.length, self.length[1:], strict=False))
        if self.length and not (increasing and 1 <= self.length[0] <= 2):  # noqa: PLR2004
            raise ValueError(
                f"class {self.name}: length must rise with depth and begin between 1 and 2"
            )
        return self

    @property
    def first_accepted(self) -> float:
        """Share of first drafts that are accepted."""
        return self.length[0] - 1 if self.length else self.acceptance[0]


Minutes = NonNegativeFloat | Span


class _Event(_Part):
    at_minutes: Minutes


class ClassShift(_Event):
    """Other shares from now on."""

    kind: Literal["class_shift"]
    shares: dict[str, NonNegativeFloat]
    over_minutes: NonNegativeFloat = 0.0


class ClassCycle(_Event):
    """Each class in turn has nearly all of the traffic."""

    kind: Literal["class_cycle"]
    period_minutes: PositiveFloat
    dominance: Share = 0.9


class Mismatch(_Event):
    """Conditional acceptance is multiplied by a factor from now on: the draft does not fit."""

    kind: Literal["mismatch"]
    factor: Annotated[float, Field(ge=0, lt=1)] = 0.3
    minutes: PositiveFloat | None = None
    """For so long; without it, for good."""


class Decay(_Event):
    """Conditional acceptance falls with a pod's uptime, from now on."""

    kind: Literal["decay"]
    per_hour: Share = 0.02
    floor: Share = 0.6


class MetricsGap(_Event):
    """Metrics cannot be read, or stand still."""

    kind: Literal["missing_metrics", "frozen_metrics"]
    minutes: PositiveFloat = 10.0
    pods: tuple[NonNegativeInt, ...] = ()
    """Which replicas, from 0; none named: all."""


class Scale(_Event):
    """The fleet gets another size."""

    kind: Literal["scale"]
    replicas: PositiveInt


class ContextDrift(_Event):
    """All contexts grow or shrink by a factor."""

    kind: Literal["context_drift"]
    factor: PositiveFloat
    over_minutes: NonNegativeFloat = 60.0


class PodEvent(_Event):
    """What happens to one pod for some minutes."""

    pod: NonNegativeInt = 0
    """Which replica, from 0."""
    minutes: PositiveFloat = 30.0


class PodRestart(PodEvent):
    """Its engine restarts: its counters begin anew, and it is not ready for the minutes."""

    kind: Literal["pod_restart"]


class SlowPod(PodEvent):
    """Its steps take longer by a factor."""

    kind: Literal["slow_pod"]
    factor: PositiveFloat = 1.2


class DeafPod(PodEvent):
    """It does not adopt depth documents."""

    kind: Literal["deaf_pod"]


class Disobey(PodEvent):
    """Its engine drafts at a depth of its own, and counts so."""

    kind: Literal["disobey"]
    depth: Annotated[int, Field(ge=0, le=DEEPEST)] = 1


Event = Annotated[
    ClassShift
    | ClassCycle
    | Mismatch
    | Decay
    | MetricsGap
    | PodRestart
    | Scale
    | SlowPod
    | DeafPod
    | ContextDrift
    | Disobey,
    Field(discriminator="kind"),
]


class World(_Part):
    """All of one file."""

    name: str = ""
    """The file's name without `.toml`."""
    about: str = ""
    fleet: FleetPart = FleetPart()
    step_time: StepTimePart = StepTimePart()
    noise: NoisePart = NoisePart()
    traffic: TrafficPart = TrafficPart()
    classes: Annotated[tuple[ClassPart, ...], Field(min_length=1)] = (
        ClassPart(name="chat", acceptance=(0.75, 0.7, 0.66, 0.64, 0.62, 0.6, 0.58)),
    )
    events: tuple[Event, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if sum(each.share for each in self.classes) <= 0:
            raise ValueError("the shares of the classes must not all be 0")
        if self.traffic.mode == "open" and self.fleet.objective is Objective.GOODPUT:
            raise ValueError("objective Goodput needs closed traffic")
        if self.step_time.table_ms is not None and self.step_time.moe is not None:
            raise ValueError("step_time has either table_ms or moe")
        if self.fleet.graphs is not None:
            self._check_graphs()
        if self.fleet.adaptive_verification:
            self._check_cuts()
        for event in self.events:
            self._check(event)
        return self

    @property
    def most_replicas(self) -> int:
        """How many replicas there are at most."""
        scaled = (event.replicas for event in self.events if isinstance(event, Scale))
        return max(self.fleet.replicas, *scaled, 0)

    @property
    def drafts_stop_fitting(self) -> bool:
        """Whether traffic turns from requests that drafts fit to some that they do not fit.

        Then acceptance falls off a cliff though the draft is the right one: an alarm says no more
        than that.
        """
        fits = {each.name: each.first_accepted >= LEAST_FIT for each in self.classes}
        turned_to: set[str] = set()
        for event in self.events:
            if isinstance(event, ClassCycle):
                turned_to |= set(fits)
            elif isinstance(event, ClassShift):
                turned_to |= {name for name, share in event.shares.items() if share > 0}
        return any(fits.values()) and not all(fits[name] for name in turned_to)

    def _check_cuts(self) -> None:
        if self.fleet.graphs is not None or self.step_time.table_ms is not None:
            raise ValueError("adaptive_verification needs step times without graphs and table_ms")
        if self.traffic.mode == "open" or self.fleet.objective is Objective.GOODPUT:
            raise ValueError(
                "adaptive_verification needs closed traffic and an objective other than Goodput"
            )

    def _check_graphs(self) -> None:
        if self.step_time.graph_sizes:
            raise ValueError("a world has either graphs or graph_sizes")
        if self.traffic.mode == "open" or self.fleet.objective is Objective.GOODPUT:
            raise ValueError("graphs needs closed traffic and an objective other than Goodput")

    def _check(self, event: Event) -> None:
        known = {each.name for each in self.classes}
        if isinstance(event, ClassShift) and (
            set(event.shares) - known or sum(event.shares.values()) <= 0
        ):
            raise ValueError(
                f"class_shift must give shares above 0 to classes among "
                f"{', '.join(sorted(known))}, not {event.shares}"
            )
        pods: tuple[int, ...] = ()
        if isinstance(event, MetricsGap):
            pods = event.pods
        elif isinstance(event, PodEvent):
            pods = (event.pod,)
        if any(pod >= self.most_replicas for pod in pods):
            raise ValueError(
                f"{event.kind} names pod {max(pods)}, but pods count from 0 to "
                f"{self.most_replicas - 1}"
            )


def shipped() -> tuple[str, ...]:
    """Names of the worlds that come with the package."""
    folder = resources.files(__package__) / "worlds"
    return tuple(
        sorted(
            each.name.removesuffix(".toml")
            for each in folder.iterdir()
            if each.name.endswith(".toml")
        )
    )


def load(name_or_path: str) -> World:
    """A shipped world by its name, or any other by the path of its file.

    Raises:
        WorldError: there is no such world, or its file says what cannot be; in a sentence.
    """
    if name_or_path in shipped():
        text = (resources.files(__package__) / "worlds" / f"{name_or_path}.toml").read_text()
        return parse(text, name_or_path)
    path = Path(name_or_path)
    try:
        return parse(path.read_text(), path.stem)
    except (OSError, UnicodeDecodeError) as error:
        raise WorldError(
            f"There is no world {name_or_path}: neither a file that can be read nor one of "
            f"{', '.join(shipped())}."
        ) from error


def parse(text: str, name: str) -> World:
    """A world from the text of its file.

    Raises:
        WorldError: every mistake of the file, in one message.
    """
    try:
        return World.model_validate({**tomllib.loads(text), "name": name})
    except tomllib.TOMLDecodeError as error:
        raise WorldError(f"World {name} is not TOML: {error}.") from error
    except ValidationError as error:
        mistakes = "; ".join(
            f"{'.'.join(str(part) for part in each['loc']) or 'world'}: {each['msg']}"
            for each in error.errors()
        )
        raise WorldError(f"World {name}: {mistakes}. docs/worlds.md explains each field.") from None
