"""What the demo claims, each claim with the number that decides it. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import permutations
from typing import Final, Literal

from local_cluster.demo.compare import Ratio
from local_cluster.demo.measure import Pairs, PhaseResult, SweepResult
from local_cluster.demo.phases import PHASES, title

NEVER_BELOW: Final = 0.97
"""Tuned / static in every phase."""
ONCE_ABOVE: Final = 1.05
"""Tuned / static in at least one phase."""
WRONG_DEPTH_BELOW: Final = 0.90
"""Share of the tokens of a phase's best depth that the best of another phase makes there."""


class DemoOutcome(IntEnum):
    """How the demo ends; the value is its exit code with --strict. 2 is a wrong command line's."""

    HELD = 0
    REFUTED = 1
    """The tuner is slower, or brings nothing, or a request or a pod was lost."""
    TOO_NOISY = 3
    """Nothing is refuted, but not everything could be told apart from chance."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim and whether it held. None: too noisy to tell."""

    text: str
    holds: bool | None


@dataclass(frozen=True, slots=True)
class Served:
    """What became of the requests and the pods."""

    requests: int
    failed: int
    first_error: str
    restarts: int


@dataclass(frozen=True, slots=True)
class Mixup:
    """Where the best depth of one phase would cost another phase most, as a sweep saw it."""

    here: SweepResult
    there: SweepResult


@dataclass(frozen=True, slots=True)
class MixupResult:
    """The tokens of the wrong depth (ours) and of the right one (theirs), measured again.

    A sweep has but a slice for each depth, and its extremes are chosen for being extreme.
    """

    mixup: Mixup
    pairs: Pairs


def reaches(ratio: Ratio, bound: float) -> bool | None:
    """Whether a ratio is at least `bound`; None: its interval does not tell."""
    if ratio.low >= bound:
        return True
    return False if ratio.high < bound else None


def bounds_to_decide(phases: Sequence[PhaseResult]) -> tuple[float, ...]:
    """The bounds that the next phase is measured against, after these phases.

    That it is worth it needs to be shown once, and most phases show it before they have shown
    anything else. So only the last one is asked for it, where none has.
    """
    last = len(phases) == len(PHASES) - 1
    worth_it = any(reaches(result.ratio, ONCE_ABOVE) for result in phases)
    return (NEVER_BELOW, ONCE_ABOVE) if last and not worth_it else (NEVER_BELOW,)


def is_decided(ratio: Ratio, bounds: Iterable[float]) -> bool:
    """Whether the interval lies on one side of each bound."""
    return all(reaches(ratio, bound) is not None for bound in bounds)


def worst_mixup(sweeps: Sequence[SweepResult]) -> Mixup:
    """The two phases in which one static depth for both costs most."""
    return max(
        (Mixup(here, there) for here, there in permutations(sweeps, 2)),
        key=lambda mixup: mixup.here.loss(mixup.there.best),
    )


def claims(phases: Sequence[PhaseResult], mixup: MixupResult, served: Served) -> tuple[Claim, ...]:
    """Everything that must hold for exit code 0."""
    return (
        _never_slower(phases),
        _worth_it(phases),
        _depth_matters(mixup),
        Claim(
            f"no request lost: {served.requests} requests, {served.failed} failed"
            + (f" ({served.first_error})" if served.first_error else ""),
            served.requests > 0 and served.failed == 0,
        ),
        Claim(f"no restart: {served.restarts} container restarts", served.restarts == 0),
    )


def outcome(claims: Iterable[Claim]) -> DemoOutcome:
    """What the claims amount to: a refuted one outweighs any that could not be told."""
    match _all(claim.holds for claim in claims):
        case True:
            return DemoOutcome.HELD
        case False:
            return DemoOutcome.REFUTED
        case None:
            return DemoOutcome.TOO_NOISY


def code_of(ended: DemoOutcome, *, strict: bool) -> int:
    """The exit code: what could not be told is no failure, unless it is asked for."""
    return 0 if ended is DemoOutcome.TOO_NOISY and not strict else ended.value


def last_word(ended: DemoOutcome, noisiest: float) -> str:
    """What the outcome means and what to do.

    Args:
        ended: the outcome.
        noisiest: the largest scatter of the comparisons, as a share.
    """
    match ended:
        case DemoOutcome.HELD:
            return "Everything held (exit code 0)."
        case DemoOutcome.REFUTED:
            return "Not everything held (exit code 1): what is marked ✘ was refuted."
        case DemoOutcome.TOO_NOISY:
            return (
                "Nothing was refuted, and not all could be told: by chance alone a pair of slices "
                f"differs by {noisiest:.0%}, and what is marked ? stayed open. That says nothing "
                "against the tuner. Run the demo again when nothing else runs on this machine; "
                "with --strict this is a failure (exit code 3)."
            )


def _never_slower(phases: Sequence[PhaseResult]) -> Claim:
    holds = _all(reaches(result.ratio, NEVER_BELOW) for result in phases)
    lowest = min(result.ratio.low for result in phases)
    return Claim(
        f"never slower: tuned / static ≥ {NEVER_BELOW:.2f} in each phase "
        + (f"(lowest bound {lowest:.2f})" if holds else f"({_blamed(phases, holds)})"),
        holds,
    )


def _worth_it(phases: Sequence[PhaseResult]) -> Claim:
    found = [reaches(result.ratio, ONCE_ABOVE) for result in phases]
    highest = max(result.ratio.low for result in phases)
    return Claim(
        f"worth it: tuned / static ≥ {ONCE_ABOVE:.2f} in one phase or more "
        f"(highest bound {highest:.2f})",
        True if any(found) else None if None in found else False,
    )


def _depth_matters(result: MixupResult) -> Claim:
    here, there, ratio = result.mixup.here, result.mixup.there, result.pairs.ratio
    kept = reaches(ratio, WRONG_DEPTH_BELOW)
    return Claim(
        f"depth matters here: the best depth of {title(there.phase)}, {there.best}, makes at most "
        f"{WRONG_DEPTH_BELOW:.2f} of the best of {title(here.phase)}, {here.best}, there ({ratio})",
        None if kept is None else not kept,
    )


def _blamed(phases: Sequence[PhaseResult], holds: Literal[False] | None) -> str:
    """The phases that keep a tuner from being never slower."""
    blamed = [
        f"{title(result.phase)} {result.ratio}"
        for result in phases
        if reaches(result.ratio, NEVER_BELOW) is holds
    ]
    return f"{'slower' if holds is False else 'cannot be told'}: {', '.join(blamed)}"


def _all(found: Iterable[bool | None]) -> bool | None:
    """False if any is, else None if any is, else True."""
    seen = set(found)
    return False if False in seen else None if None in seen else True
