"""One bucket at another depth: what is chosen among, and what several of them gain together."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import expm1

from fathom.engine.depth import BUDGET_SHARE
from fathom.tuning.policy.value import Gain


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthOption:
    """One bucket at another depth."""

    bucket: int
    start: int
    to: int
    gain: Gain
    share: float
    """Share of the busy time."""


class LeftOut(StrEnum):
    """Why a depth is no option: half a sentence after its number."""

    SLO = "would miss the SLO"
    BUDGET = "would fill more than half of a step's token budget"
    FAILED = "was slower when it was tried, and is left alone for half an hour"


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """What a probe would be, before it is begun."""

    seconds: float
    pods: int
    """Pods that profit by what it teaches; it costs one of them."""
    rested_s: float | None = None
    """Since the last one of its kind ended (seconds); None: there was none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    depths: tuple[int, ...]
    """What may be chosen, ascending."""
    tokens: int
    """The user's own: one of them."""
    min_gain: float
    token_budget: int | None = None
    """Tokens that a step may hold; None: not known."""

    def at(self, bucket: int) -> tuple[int, ...]:
        """What may be chosen in a bucket, ascending.

        vLLM schedules as many requests as the budget holds with all their drafts. The others wait,
        and the table is asked for a smaller batch than there is: a depth that fills the budget
        would keep itself in force. Half of it is left for prompts, and for a load that grows. What
        the user wrote is allowed at any batch.
        """
        if self.token_budget is None:
            return self.depths
        most = BUDGET_SHARE * self.token_budget / bucket - 1
        return tuple(each for each in self.depths if each <= max(self.tokens, most))


def expected_gain_sd(options: Iterable[DepthOption]) -> float:
    """Its error: all buckets have the traffic and the hardware's slope in common."""
    return sum(option.share * option.gain.sd for option in options)


def expected_gain(options: Iterable[DepthOption]) -> float:
    """Relative gain over all load, weighted by busy time."""
    return sum(option.share * expm1(option.gain.mean) for option in options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A depth that was tried in one bucket; when, and under which traffic."""

    bucket: int
    depth: int
    at_s: float
    epoch: int
    times: int = 1
    failed: bool = False
    """It was slower than what it replaced: left alone for a while (`policy.FAILED_S`)."""
