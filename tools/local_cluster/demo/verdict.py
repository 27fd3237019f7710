"""What the demo claims, each claim with the number that decides it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from fathom.text import counted
from local_cluster.demo.measure import Comparison
from local_cluster.demo.phases import Scene, title
from local_cluster.engine.traffic import Phase


class DemoOutcome(IntEnum):
    """How the demo ends; the value is its exit code with --strict. 2 is a wrong command line's."""

    HELD = 0
    REFUTED = 1
    """Depth did not follow traffic, or a request or a pod was lost."""
    TOO_NOISY = 3
    """The loop worked; whether the tuner is faster than the static depth is not clear."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim and whether it held. None: not clear."""

    text: str
    holds: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What depth did in a scene."""

    scene: Scene
    before: int
    after: int
    seconds: float
    """From the first request of the scene."""

    @property
    def as_asked(self) -> bool:
        """Whether depth went where the traffic asked it to go."""
        return self.scene.asks.moved(self.before, self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What became of the requests and the pods."""

    requests: int
    failed: int
    first_error: str
    restarts: int


def loop_claims(moves: Sequence[Move], served: Served) -> tuple[Claim, ...]:
    """What must hold for exit code 0."""
    return (
        *map(_followed, moves),
        Claim(
            f"no request lost: {counted(served.requests, 'request')}, {served.failed} failed"
            + (f" ({served.first_error})" if served.first_error else ""),
            served.requests > 0 and served.failed == 0,
        ),
        Claim(f"no restart: {counted(served.restarts, 'container restart')}", served.restarts == 0),
    )


def speed_claim(comparison: Comparison) -> Claim:
    """Whether tuned depth is faster than the static one."""
    if comparison.depth == comparison.static_depth:
        why = f"tuned depth is {comparison.depth}, too, so there is nothing to compare"
        return not_compared(comparison.phase, why)
    ratio = comparison.turns.ratio
    text = (
        f"{title(comparison.phase)}: {ratio.estimate:.2f} times the tokens of the static depth "
        f"(95 %: {ratio.low:.2f} to {ratio.high:.2f})"
    )
    if ratio.low > 1:
        return Claim(text, holds=True)
    if ratio.high < 1:
        return Claim(text, holds=False)
    return Claim(f"{text}: which one is faster is not clear", holds=None)


def not_compared(phase: Phase, why: str) -> Claim:
    """What a comparison that ended early says about speed."""
    return Claim(f"{title(phase)}: not compared: {why}", holds=None)


def outcome(loop: Sequence[Claim], speed: Sequence[Claim], *, strict: bool) -> DemoOutcome:
    """What the claims amount to.

    Args:
        loop: whether the loop worked.
        speed: whether the tuner is faster.
        strict: whether these count, and one that is not clear is a failure.
    """
    if not all(claim.holds for claim in loop):
        return DemoOutcome.REFUTED
    if not strict:
        return DemoOutcome.HELD
    if any(claim.holds is False for claim in speed):
        return DemoOutcome.REFUTED
    return DemoOutcome.HELD if all(claim.holds for claim in speed) else DemoOutcome.TOO_NOISY


def last_word(ended: DemoOutcome, speed: Sequence[Claim]) -> str:
    """What the outcome means and what to do."""
    match ended:
        case DemoOutcome.REFUTED:
            return "Not everything held (exit code 1): see ✘ above."
        case DemoOutcome.TOO_NOISY:
            return (
                "Depth followed the traffic. Whether that is faster is not clear: see ? above. "
                "With --strict this is a failure (exit code 3). Run it again when less else runs."
            )
        case DemoOutcome.HELD if all(claim.holds for claim in speed):
            return "Depth followed the traffic (exit code 0)."
        case DemoOutcome.HELD:
            return (
                "Depth followed the traffic (exit code 0). What is not marked ✔ is about speed, on "
                "this machine and at this moment; --strict makes it a failure."
            )


def _followed(move: Move) -> Claim:
    where = title(move.scene.phase)
    after = f"{move.seconds:.0f} s"
    if move.as_asked:
        return Claim(f"{where}: depth {move.before} → {move.after} after {after}", holds=True)
    return Claim(
        f"{where}: depth was {move.before} and is {move.after} after {after}; this traffic asks "
        f"for a {move.scene.asks.value} one",
        holds=False,
    )
