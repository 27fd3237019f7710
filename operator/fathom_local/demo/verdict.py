"""What the demo claims, each claim with the number that decides it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

from fathom_local.demo.measure import PhaseResult, SweepResult

NEVER_BELOW: Final = 0.97
"""Lower bound of tuned / static in every phase."""
ONCE_ABOVE: Final = 1.05
"""Lower bound of tuned / static in at least one phase."""
DEPTHS_APART: Final = 3
WRONG_DEPTH_LOSS: Final = 0.10


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim and whether it held."""

    text: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Served:
    """What became of the requests and the pods."""

    requests: int
    failed: int
    first_error: str
    restarts: int


def claims(
    phases: Sequence[PhaseResult], sweeps: Sequence[SweepResult], served: Served
) -> tuple[Claim, ...]:
    """Everything that must hold for exit code 0."""
    lows = [result.ratio.low for result in phases]
    apart, loss = _contrast(sweeps)
    return (
        Claim(
            f"never slower: tuned / static ≥ {NEVER_BELOW:.2f} in each phase "
            f"(lowest bound {min(lows):.2f})",
            min(lows) >= NEVER_BELOW,
        ),
        Claim(
            f"worth it: tuned / static ≥ {ONCE_ABOVE:.2f} in one phase or more "
            f"(highest bound {max(lows):.2f})",
            max(lows) >= ONCE_ABOVE,
        ),
        Claim(
            f"depth matters here: best depths {apart} apart, the other phase's best costs "
            f"{loss:.0%}",
            apart >= DEPTHS_APART and loss >= WRONG_DEPTH_LOSS,
        ),
        Claim(
            f"no request lost: {served.requests} requests, {served.failed} failed"
            + (f" ({served.first_error})" if served.first_error else ""),
            served.requests > 0 and served.failed == 0,
        ),
        Claim(f"no restart: {served.restarts} container restarts", served.restarts == 0),
    )


def _contrast(sweeps: Sequence[SweepResult]) -> tuple[int, float]:
    """The widest distance between two phases' best depths, and what mixing those two up costs."""
    return max(
        (abs(here.best - there.best), here.loss(there.best))
        for here, there in permutations(sweeps, 2)
    )
