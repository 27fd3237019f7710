"""The parts of a world's file that stand alone: its fleet, hardware, noise, traffic and classes."""

from typing import Annotated, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from fathom.api.choices import Objective
from fathom.engine.depth_set import grid_of

DEEPEST: Final = 8
"""Depths of 0 to 8 exist in a world: as far as acceptance lengths are published."""

Share = Annotated[float, Field(ge=0, le=1)]
Span = tuple[NonNegativeFloat, NonNegativeFloat]
"""From, to; drawn uniformly for every seed."""


class WorldPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class GraphsPart(WorldPart):
    """`[fleet.graphs]`: the engines capture CUDA graphs, and replay them by vLLM's rule."""

    depths: Literal["set", "all", "tokens"] | tuple[int, ...] = "set"
    """That are named at start: the operator's for `tokens`, all, the user's own alone, or these."""
    sizes: Literal["grid", "vllm"] = "grid"
    """That are captured: the operator's for these depths, or what vLLM chooses for them."""
    ceiling: PositiveInt = 512
    """The largest size, in tokens: 512 on an H100, 1024 on a GB200."""


class FleetPart(WorldPart):
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
        if self.objective.keeps_slo and self.tpot_milliseconds is None:
            raise ValueError("objective Goodput needs tpot_milliseconds")
        if self.tokens not in self.named:
            raise ValueError(f"depths must name tokens, {self.tokens}")
        if not 0 <= self.named[0] <= self.named[-1] <= self.max_tokens:
            raise ValueError(f"depths must lie between 0 and max_tokens, {self.max_tokens}")
        return self


class ExpertsPart(WorldPart):
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


class StepTimePart(WorldPart):
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


class NoisePart(WorldPart):
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


class TrafficPart(WorldPart):
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


class ClassPart(WorldPart):
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
