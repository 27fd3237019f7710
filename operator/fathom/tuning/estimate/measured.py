"""What people are shown of the last window; nothing is decided by it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from fathom.measurement.counters import Cell, CellCounts, StepKind
from fathom.measurement.deltas import PodDelta, pooled_cells, pooled_drafts
from fathom.tuning.estimate.acceptance_length import trials

_OF_ONE_DEPTH: Final = 0.02
"""Share by which drafts may be shorter than the depth on average: a request's last one is cut."""
LATELY_WINDOWS: Final = 2.0
"""Whose last window with data ended so many windows before the newest one's does not serve now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One window over pods that are alike: sums of deltas, divided once. Else see `pooled`."""

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
    tokens_per_step: float | None = None
    """Tokens that a request got in one decode step, with drafts or without; None: not counted."""


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
        survival=(_survival(deltas) if drafts else _by_position(deltas)) if by_position else (),
        tpot_seconds=(
            sum(each.engine.tpot_seconds_sum for each in deltas) / answered if answered else None
        ),
        gain=gain,
        tokens_per_step=_tokens_per_step(cells),
    )


def _tokens_per_step(cells: Mapping[Cell, CellCounts]) -> float | None:
    decodes = [counts for cell, counts in cells.items() if cell.step is StepKind.DECODE]
    requests = sum(counts.scheduled_requests for counts in decodes)
    return sum(counts.tokens for counts in decodes) / requests if requests else None


def pooled(parts: Sequence[Measured]) -> Measured:
    """One window over pods that are tuned apart: those that served lately.

    Rates add up. What is a mean over drafts is weighted by drafts per second, one over drafted
    tokens by these, one over steps by steps per second, and time per token by tokens per second; a
    gain by the tokens per second that there would be at `tokens`.

    Args:
        parts: the last window with data of each, one at least.
    """
    newest_s = max(each.at_s for each in parts)
    parts = [each for each in parts if newest_s - each.at_s <= LATELY_WINDOWS * each.window_seconds]
    if len(parts) == 1:
        return parts[0]
    rates = [each.tokens_per_second for each in parts]
    drafts = [
        each.tokens_per_second / each.acceptance_length if each.acceptance_length else 0.0
        for each in parts
    ]
    # Deepest positions stand in where nothing was accepted, so that nobody knows.
    proposed = [
        made * ((each.acceptance_length or 1.0) - 1) / each.acceptance_rate
        if each.acceptance_rate
        else made * len(each.survival)
        for each, made in zip(parts, drafts, strict=True)
    ]
    steps = [
        each.tokens_per_second / (each.mean_batch * (each.acceptance_length or 1.0))
        if each.mean_batch
        else 0.0
        for each in parts
    ]
    return Measured(
        at_s=max(each.at_s for each in parts),
        window_seconds=max(each.window_seconds for each in parts),
        tokens_per_second=sum(rates),
        mean_batch=_mean([each.mean_batch for each in parts], steps),
        acceptance_length=_mean([each.acceptance_length for each in parts], drafts),
        acceptance_rate=_mean([each.acceptance_rate for each in parts], proposed),
        survival=_mean_survival(parts, drafts),
        tpot_seconds=_mean([each.tpot_seconds for each in parts], rates),
        gain=_gain(parts),
        tokens_per_step=_mean(
            [each.tokens_per_step for each in parts],
            [each.tokens_per_second / (each.tokens_per_step or 1.0) for each in parts],
        ),
    )


def _gain(parts: Sequence[Measured]) -> float | None:
    """None: it is unknown of some."""
    known = [(each.tokens_per_second, each.gain) for each in parts if each.gain is not None]
    at_tokens = sum(rate / (1 + gain) for rate, gain in known)
    if len(known) < len(parts) or at_tokens <= 0:
        return None
    return sum(rate for rate, _ in known) / at_tokens - 1


def _mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """The weighted mean of those that are known; None: none is."""
    known = [(each, w) for each, w in zip(values, weights, strict=True) if each is not None and w]
    whole = sum(weight for _, weight in known)
    return sum(each * weight for each, weight in known) / whole if whole else None


def _mean_survival(parts: Sequence[Measured], drafts: Sequence[float]) -> tuple[float, ...]:
    """By position, of the parts that draft so deep."""
    columns = zip_longest(*(each.survival for each in parts))
    means = (_mean(column, drafts) for column in columns)
    return tuple(each for each in means if each is not None)


def _by_position(deltas: Sequence[PodDelta]) -> tuple[float, ...]:
    """By vLLM's own counters, which do not know of which depth a draft was.

    Empty where depth varied: then later positions have fewer drafts than all.
    """
    drafts = sum(each.engine.drafts for each in deltas)
    proposed = sum(each.engine.draft_tokens for each in deltas)
    accepted = Counter[float]()
    for each in deltas:
        accepted.update(dict(each.positions))
    if drafts <= 0 or abs(proposed / drafts - len(accepted)) > _OF_ONE_DEPTH * len(accepted):
        return ()
    return tuple(accepted[position] / drafts for position in sorted(accepted))


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
