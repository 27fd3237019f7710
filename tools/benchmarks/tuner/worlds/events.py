"""What happens in a world: `[[events]]`."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from benchmarks.tuner.worlds.parts import DEEPEST, Share, Span, WorldPart

Minutes = NonNegativeFloat | Span


class _Event(WorldPart):
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
