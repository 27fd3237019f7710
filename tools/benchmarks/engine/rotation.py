"""Who runs when: all arms take turns in one engine, so that they share whatever disturbs it. Pure.

A phase of the trace has two halves. In the first the tuner learns, and every static depth is
measured; in the second, the *steady part*, the tuner and the fastest depths so far alternate in
slices of equal length, whose order rotates from round to round. A slow drift of the machine then
falls on all of them alike, and the time goes to the comparison that is close.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.engine.timing import EngineBenchTiming

_Arm = TypeVar("_Arm")


@dataclass(frozen=True, slots=True)
class Turn:
    """One arm has the engine for a while."""

    depth: int | None
    """The static depth; None: the tuner."""
    seconds: float
    round: int
    steady: bool
    """Whether it belongs to the steady part."""


def learning_turns(timing: EngineBenchTiming, depths: Sequence[int], phase: int) -> Iterator[Turn]:
    """The first half of phase number `phase`.

    The tuner comes first: it is the one that has to live through the change of traffic.
    """
    for number in range(timing.learning_rounds):
        yield Turn(None, timing.learning_turn_seconds, number, steady=False)
        for depth in rotated(depths, phase + number):
            yield Turn(depth, timing.learning_slice_seconds, number, steady=False)


def steady_turns(
    timing: EngineBenchTiming, contenders: Sequence[int], phase: int
) -> Iterator[Turn]:
    """The second half, between the tuner and these depths."""
    arms: tuple[int | None, ...] = (None, *contenders)
    for number in range(timing.steady_rounds):
        for depth in rotated(arms, phase + number):
            yield Turn(depth, timing.steady_slice_seconds, number, steady=True)


def fastest(rates: Mapping[int, float], count: int) -> tuple[int, ...]:
    """The `count` depths with the highest rates, ascending."""
    return tuple(sorted(sorted(rates, key=rates.__getitem__, reverse=True)[:count]))


def rotated(arms: Sequence[_Arm], by: int) -> tuple[_Arm, ...]:
    """The same arms in the same order, begun `by` places further on."""
    at = by % len(arms)
    return (*arms[at:], *arms[:at])
