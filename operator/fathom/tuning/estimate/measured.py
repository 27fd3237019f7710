"""What people are shown of the last window; nothing is decided by it."""

from collections.abc import Sequence
from dataclasses import dataclass

from fathom.core.measurement import PodDelta, pooled_cells, pooled_drafts
from fathom.tuning.estimate.trials import trials


@dataclass(frozen=True, slots=True)
class Measured:
    """One window over all pods: sums of deltas, divided once."""

    at_s: float
    window_seconds: float
    tokens_per_second: float
    mean_batch: float | None
    acceptance_length: float | None
    """None: nothing was drafted. Unknown is not zero."""
    acceptance_rate: float | None
    """None: nothing was drafted, or nobody knows how much of it was verified."""
    survival: tuple[float, ...]
    tpot_seconds: float | None
    gain: float | None
    """Tokens per second over what `tokens` would give, relative; None: not measured yet."""


def measure(
    deltas: Sequence[PodDelta], at_s: float, gain: float | None, *, by_position: bool = True
) -> Measured | None:
    """Pool one window.

    Args:
        deltas: what each pod counted; windows may differ a little between pods.
        at_s: end of the window (Unix seconds).
        gain: relative gain over the user's depth, if it is known.
        by_position: whether it is known which drafts were verified.

    Returns:
        None when nothing was generated: no data is not zero.
    """
    if not any(each.engine.generation_tokens > 0 for each in deltas):
        return None
    cells, drafts = pooled_cells(deltas), pooled_drafts(deltas)
    steps = sum(counts.steps for counts in cells.values())
    drafted = sum(counts.drafts for counts in drafts.values())
    proposed = sum(counts.drafts * cell.depth for cell, counts in drafts.items())
    accepted = sum(sum(counts.accepted) for counts in drafts.values())
    if not cells:  # no plugin: vLLM's own counters know neither batch nor depth, but these
        drafted = sum(each.engine.drafts for each in deltas)
        proposed = sum(each.engine.draft_tokens for each in deltas)
        accepted = sum(each.engine.accepted_tokens for each in deltas)
    answered = sum(each.engine.tpot_count for each in deltas)
    return Measured(
        at_s=at_s,
        window_seconds=max(each.seconds for each in deltas),
        tokens_per_second=sum(each.engine.generation_tokens / each.seconds for each in deltas),
        mean_batch=sum(c.scheduled_requests for c in cells.values()) / steps if steps else None,
        acceptance_length=1 + accepted / drafted if drafted else None,
        acceptance_rate=accepted / proposed if proposed and by_position else None,
        survival=_survival(deltas) if by_position else (),
        tpot_seconds=(
            sum(each.engine.tpot_seconds_sum for each in deltas) / answered if answered else None
        ),
        gain=gain,
    )


def _survival(deltas: Sequence[PodDelta]) -> tuple[float, ...]:
    pooled = trials(pooled_drafts(deltas))
    result: list[float] = []
    survival = 1.0
    for reached, accepted in zip(pooled.reached, pooled.accepted, strict=True):
        if reached <= 0:
            break
        survival *= accepted / reached
        result.append(survival)
    return tuple(result)
