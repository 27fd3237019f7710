"""Time per output token as vLLM's histogram shows it: how many requests up to each bound."""

from dataclasses import dataclass
from math import erf, inf, log, sqrt
from typing import Final, Self

from benchmarks.tuner.course.course import WorldCourse

BOUNDS_S: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0, inf,
)  # fmt: skip
"""Bounds of vLLM's `vllm:request_time_per_output_token_seconds`."""
_NARROWEST: Final = 1e-3


@dataclass(frozen=True)
class Requests:
    """How requests differ: by class, and within one by a lognormal factor of mean 1."""

    tails: tuple[float, ...]
    shares: list[list[float]]
    """By tick and class."""
    slower: list[list[list[float]]]
    """By tick, class and depth: tokens per step of all over those of the class."""

    @classmethod
    def of(cls, course: WorldCourse) -> Self:
        return cls(
            tails=tuple(max(_NARROWEST, each.tail) for each in course.world.classes),
            shares=course.shares.tolist(),
            slower=course.slower.tolist(),
        )

    def up_to(self, tick: int, depth: int, mean_s: float) -> tuple[float, ...]:
        """Share of the requests up to each bound.

        Args:
            tick: of the course.
            depth: in force.
            mean_s: step time over tokens per step of all requests (seconds).
        """
        classes = [
            (share, mean_s * slower[depth], tail)
            for share, slower, tail in zip(
                self.shares[tick], self.slower[tick], self.tails, strict=True
            )
        ]
        return tuple(
            sum(share * _at_most(bound, seconds, tail) for share, seconds, tail in classes)
            for bound in BOUNDS_S
        )


def _at_most(bound_s: float, seconds: float, tail: float) -> float:
    """P(seconds / factor ≤ bound), the factor's logarithm normal about -tail² / 2."""
    if bound_s == inf:
        return 1.0
    z = (log(bound_s / seconds) - tail * tail / 2) / tail
    return (1 + erf(z / sqrt(2))) / 2
