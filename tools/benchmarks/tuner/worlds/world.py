"""A world: hardware, traffic, noise and events, as its TOML file describes them.

`docs/worlds.md` explains every field to those who write one.
"""

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from benchmarks.tuner.worlds.events import (
    ClassCycle,
    ClassShift,
    Event,
    MetricsGap,
    PodEvent,
    Scale,
)
from benchmarks.tuner.worlds.parts import (
    ClassPart,
    FleetPart,
    NoisePart,
    StepTimePart,
    TrafficPart,
    WorldPart,
)

LEAST_FIT: Final = 0.2
"""Drafts of which fewer than one in five are accepted at the first position do not fit."""


class SimulatedWorld(WorldPart):
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
        if self.traffic.mode == "open" and self.fleet.objective.keeps_slo:
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
        if self.traffic.mode == "open" or self.fleet.objective.keeps_slo:
            raise ValueError(
                "adaptive_verification needs closed traffic and an objective other than Goodput"
            )

    def _check_graphs(self) -> None:
        if self.step_time.graph_sizes:
            raise ValueError("a world has either graphs or graph_sizes")
        if self.traffic.mode == "open" or self.fleet.objective.keeps_slo:
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
