"""What a policy did in one world and seed, in truth."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from benchmarks.tuner.course.course import Floats, Ints, WorldCourse
from fathom.api.conditions import AlarmKind, Reason
from fathom.engine.depth import DepthDocument


@dataclass(frozen=True, slots=True)
class AlarmRaised:
    kind: AlarmKind
    reason: Reason
    at_s: float
    """Seconds of the course."""


@dataclass(frozen=True, slots=True)
class Logged:
    """One decision, for people who want to know why."""

    at_s: float
    action: str
    reason: str
    message: str
    document: DepthDocument


@dataclass(frozen=True)
class CourseOutcome:
    """Arrays over ticks (T) and replicas (R)."""

    tokens: Floats
    """(T, R): expected tokens."""
    depth: Ints
    """(T, R): depth in force at the end of each tick."""
    batch: Ints
    """(T, R): requests in each step."""
    request_seconds: float | None = None
    """Time that requests spent in flight. Open traffic."""
    actions: Mapping[str, int] = field(default_factory=dict)
    alarms: tuple[AlarmRaised, ...] = ()
    log: tuple[Logged, ...] = field(default=(), repr=False)


def outcome_of_depths(course: WorldCourse, depth: Ints) -> CourseOutcome:
    """The tokens of a policy that is nothing but a depth per tick and replica. Closed traffic."""
    rate = np.take_along_axis(course.rate, depth[:, :, None], axis=2)[:, :, 0]
    return CourseOutcome(tokens=rate * course.clock.tick_s, depth=depth, batch=course.batch)
