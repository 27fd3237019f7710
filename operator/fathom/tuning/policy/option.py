"""One bucket at another depth: what is chosen among, and what several of them gain together."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import expm1

from fathom.tuning.policy.value import Gain


@dataclass(frozen=True, slots=True)
class DepthOption:
    """One bucket at another depth."""

    bucket: int
    start: int
    to: int
    gain: Gain
    share: float
    """Of the busy time."""


class LeftOut(StrEnum):
    """Why a depth is no option: half a sentence after its number."""

    SLO = "would miss the SLO"
    FAILED = "was slower when it was tried, and is left alone for half an hour"


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """What a probe would be, before it is begun."""

    seconds: float
    pods: int
    """Pods that profit by what it teaches; it costs one of them."""
    rested_s: float | None = None
    """Since the last one of its kind ended (seconds); None: there was none yet."""


@dataclass(frozen=True, slots=True)
class Bounds:
    depths: tuple[int, ...]
    """What may be chosen, ascending."""
    tokens: int
    """The user's own: one of them."""
    min_gain: float


def expected_gain_sd(options: Iterable[DepthOption]) -> float:
    """Its error: all buckets have the traffic and the hardware's slope in common."""
    return sum(option.share * option.gain.sd for option in options)


def expected_gain(options: Iterable[DepthOption]) -> float:
    """Relative gain over all load, weighted by busy time."""
    return sum(option.share * expm1(option.gain.mean) for option in options)
