"""A world of whole requests, as its TOML file describes it; `docs/worlds.md` explains it all."""

from itertools import accumulate, repeat
from operator import mul
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from benchmarks.tuner.worlds.files import WorldFiles
from benchmarks.tuner.worlds.parts import DEEPEST, Share, Span, WorldPart

Acceptance = Annotated[float, Field(gt=0, lt=1)]


class EnginePart(WorldPart):
    """`[engine]`: vLLM's own settings."""

    max_batch: Annotated[int, Field(ge=1, le=1024)] = 256
    token_budget: PositiveInt = 8192
    chunked_prefill: bool = True
    asynchronous: bool = True
    """A request is in one more step than it needs, scheduled before its end was seen."""
    kv_tokens: PositiveInt = 4_000_000
    prefix_hits: Annotated[tuple[Share, ...], Field(min_length=1)] = (0.0,)
    """Share of a prompt that is cached, by the hour, over and over."""


class HardwarePart(WorldPart):
    """`[hardware]`: what a step takes."""

    device: str = "GPU"
    """Its name, as the engine tells it; empty: it does not."""
    overhead_ms: NonNegativeFloat = 1.5
    weights_ms: NonNegativeFloat = 7.0
    token_us: NonNegativeFloat = 20.0
    """For each token verified or prefilled, where a step computes for longer than it reads."""
    attention_ns: NonNegativeFloat = 12.0
    """For each request and token of its context."""
    knee: Annotated[float, Field(ge=1, le=16)] = 4.0
    draft_ms: NonNegativeFloat = 0.4
    """Once in a step that drafts …"""
    draft_token_ms: NonNegativeFloat = 0.5
    """… and for each token of the depth …"""
    draft_request_us: NonNegativeFloat = 2.0
    """… and for each request, too."""
    noise: NonNegativeFloat = 0.1
    """Standard deviation of the logarithm of each step's time."""


class PodsPart(WorldPart):
    """`[[pods]]`: engines that are alike."""

    count: PositiveInt = 1
    hardware: HardwarePart | None = None
    """Theirs; none: the world's."""
    text: str | None = None
    """The only class of requests that they get."""


class Change(WorldPart):
    """From a moment on there is another load."""

    at_minutes: NonNegativeFloat
    load: PositiveFloat


class TrafficPart(WorldPart):
    """`[traffic]`: for each pod."""

    mode: Literal["closed", "open"] = "closed"
    load: PositiveFloat = 24.0
    """Closed: requests in flight, waiting ones included. Open: arrivals a second."""
    changes: tuple[Change, ...] = ()
    turn_seconds: PositiveFloat | None = None
    """So long, only one class of requests comes, and then the next."""


class ClassPart(WorldPart):
    """`[[classes]]`: requests that are alike."""

    name: str = "text"
    share: PositiveFloat = 1.0
    acceptance: Acceptance | Annotated[tuple[Acceptance, ...], Field(min_length=1)] = 0.8
    """Chance of a draft whose forerunners were accepted; or by position, the last carries on."""
    prompt: PositiveInt = 200
    prompt_spread: NonNegativeFloat = 0.3
    """Standard deviation over the mean; lognormal."""
    answer: PositiveInt = 400
    answer_spread: NonNegativeFloat = 0.5

    @property
    def survival(self) -> tuple[float, ...]:
        """P(all drafts up to a position are accepted), by position."""
        given = self.acceptance if isinstance(self.acceptance, tuple) else (self.acceptance,)
        carried = (*given, *repeat(given[-1], DEEPEST))
        return tuple(accumulate(carried[:DEEPEST], mul))


class FleetPart(WorldPart):
    """`[fleet]`: what the user wrote."""

    tokens: Annotated[int, Field(ge=0, le=DEEPEST)] = 3
    min_tokens: Annotated[int, Field(ge=0, le=DEEPEST)] = 1
    max_tokens: Annotated[int, Field(ge=1, le=DEEPEST)] = 7
    depths: tuple[int, ...] = (1, 3, 7)
    """That the engines have."""
    window_seconds: Annotated[int, Field(ge=10, le=600)] = 30
    scrape_seconds: NonNegativeFloat = 0.0
    """0: metrics are read when asked; otherwise the newest scrape of so many seconds."""
    delivery_seconds: Span = (1.0, 8.0)
    hours: PositiveFloat = 1.0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.min_tokens <= self.tokens <= self.max_tokens:
            raise ValueError("tokens must lie between min_tokens and max_tokens")
        if self.tokens not in self.depths:
            raise ValueError(f"depths must name tokens, {self.tokens}")
        return self

    @property
    def allowed(self) -> tuple[int, ...]:
        """What may be chosen, ascending."""
        return tuple(k for k in sorted(self.depths) if self.min_tokens <= k <= self.max_tokens)


class RequestWorld(WorldPart):
    """All of one file."""

    name: str = ""
    about: str = ""
    fleet: FleetPart = FleetPart()
    engine: EnginePart = EnginePart()
    hardware: HardwarePart = HardwarePart()
    pods: Annotated[tuple[PodsPart, ...], Field(min_length=1)] = (PodsPart(),)
    traffic: TrafficPart = TrafficPart()
    classes: Annotated[tuple[ClassPart, ...], Field(min_length=1)] = (ClassPart(),)
    stalls: dict[str, PositiveFloat] = Field(default_factory=dict)
    """By depth: seconds that its first step of decodes takes longer, in each engine."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        known = {each.name for each in self.classes}
        for pods in self.pods:
            if pods.text is not None and pods.text not in known:
                raise ValueError(f"pods have text {pods.text}, and there is no such class")
        if not all(key.isdecimal() for key in self.stalls):
            raise ValueError('stalls maps a depth, such as "7", to seconds')
        return self


_FILES: Final = WorldFiles(RequestWorld, Path(__file__).with_name("shipped"))
shipped: Final = _FILES.shipped
load: Final = _FILES.load
parse: Final = _FILES.parse
