"""What acceptance alone says of a shallower depth: the break-even of a decode step. Pure.

At depth k a step gives a request L(k) = 1 + S_1 + … + S_k tokens, S_i being the share of drafts
whose first i tokens are all accepted. A shallower depth gives fewer tokens, and a shorter step; it
gives more tokens per second where a step at it takes less than L(k) / L(K) of one at K. How long
such a step takes nobody knows who has not measured it, and of whole requests, with their prompts
and their waiting, this says nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from fathom.api.tuner_status import BreakEven

_MOST: Final = 3
"""Depths that the sentence names: the shallower ones lose more."""


def break_evens(survival: Sequence[float]) -> tuple[BreakEven, ...]:
    """Break-evens of all depths shallower than the one that runs, the deepest first.

    Args:
        survival: of drafts by position, all of one depth; empty: not known.
    """
    return tuple(
        BreakEven(
            depth=depth,
            keeps_percent=f"{100 * share:.0f}",
            pays_if_shorter_by_percent=f"{100 * (1 - share):.0f}",
        )
        for depth, share in _shares(survival)
    )


def _shares(survival: Sequence[float]) -> Iterator[tuple[int, float]]:
    whole = 1 + sum(survival)
    for depth in range(len(survival) - 1, 0, -1):
        yield depth, (1 + sum(survival[:depth])) / whole


def in_words(survival: Sequence[float], found: Sequence[BreakEven]) -> str:
    """Sentences for the status; empty: nothing is known."""
    if not survival:
        return ""
    whole, accepted = 1 + sum(survival), ", ".join(f"{each:.2f}" for each in survival)
    begin = (
        f"At depth {len(survival)} a request gets {whole:.2f} tokens per step (accepted by "
        f"position: {accepted})."
    )
    keeps = [
        f"depth {each.depth} keeps {each.keeps_percent} % of them, and pays if a step gets over "
        f"{each.pays_if_shorter_by_percent} % shorter"
        for each in found[:_MOST]
    ]
    if not keeps:
        return begin
    rest = "; ".join(keeps)
    return (
        f"{begin} Break-even of a decode step: {rest}. What that means for whole requests, and "
        "what a deeper depth would bring, is not known."
    )
