"""Two engines' answers, token for token: where they differ, and whether that is a near-tie. Pure.

Greedy decoding takes the likeliest token. An engine that verifies drafts computes the same numbers
in batches of another shape, so their last bits may differ, and where two candidates are nearly as
likely the other one may win. Such a near-tie says nothing against speculation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from fathom.quality.completion import Completion, CompletionRequest

TIE_NATS: Final = 0.25
"""Candidates whose log probabilities lie this close together are a near-tie.

Engines compute logits in bfloat16, which has 8 significant bits: from 16 to 32, where the largest
logits of language models tend to lie, neighbouring numbers are 0.125 apart. This is the gap that
opens when each of the two is off by one such step. Between two logits of one softmax the gap in log
probability is the gap in logits.
"""
LIKELIEST: Final = 5
"""Candidates that are told of a position: three or four may be close together."""
_SHOWN_CHARACTERS: Final = 40


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two answers to one prompt part, both numbers from 0."""

    prompt: int
    position: int
    """Of the first token that differs; after it nothing can be compared."""
    gap_nats: float | None = None
    """Between the two candidates, by the engine at depth 0; None: not known, or one of them is not
    among the likeliest."""

    @property
    def is_tie(self) -> bool:
        return self.gap_nats is not None and self.gap_nats <= TIE_NATS


def differences(
    reference: Sequence[Completion], speculating: Sequence[Completion]
) -> tuple[Difference, ...]:
    """The first difference of each prompt that has one, gaps not known yet."""
    found = []
    for prompt, (one, other) in enumerate(zip(reference, speculating, strict=True)):
        position = _first_difference(one.token_ids, other.token_ids)
        if position is not None:
            found.append(Difference(prompt, position))
    return tuple(found)


def tokens_compared(reference: Sequence[Completion], speculating: Sequence[Completion]) -> int:
    """Tokens up to and including each prompt's first difference."""
    total = 0
    for one, other in zip(reference, speculating, strict=True):
        position = _first_difference(one.token_ids, other.token_ids)
        total += len(one.token_ids) if position is None else position + 1
    return total


def gap_request(reference: Completion, difference: Difference) -> CompletionRequest:
    """What to ask the engine at depth 0, to learn how likely the two candidates are.

    It is given the tokens that both had in common, so that it stands where they parted, whatever
    it would say today.
    """
    return CompletionRequest(
        prompt=(*reference.prompt_token_ids, *reference.token_ids[: difference.position]),
        most_tokens=1,
        likeliest=LIKELIEST,
    )


def gap_nats(
    difference: Difference,
    reference: Completion,
    speculating: Completion,
    asked_again: Completion,
) -> float | None:
    """How far apart the two candidates are; None: one is not among the likeliest, or is an end."""
    position, logprobs = difference.position, asked_again.logprobs
    candidates = [each.token_ids[position : position + 1] for each in (reference, speculating)]
    known = [logprobs[ids[0]] for ids in candidates if ids and ids[0] in logprobs]
    return abs(known[0] - known[1]) if len(known) == len(candidates) else None


def continuations(reference: Completion, speculating: Completion) -> tuple[str, str]:
    """What each goes on with from the first character that differs, cut short."""
    start = _first_difference(reference.text, speculating.text)
    if start is None:
        start = len(reference.text)
    one, other = (each.text[start : start + _SHOWN_CHARACTERS] for each in (reference, speculating))
    return one, other


def _first_difference(one: Sequence[object], other: Sequence[object]) -> int | None:
    for position, (mine, its) in enumerate(zip_longest(one, other)):
        if mine != its:
            return position
    return None
