"""The language of the constructed model pair: every token has exactly one successor. Pure.

Greedy decoding walks a cycle, one cycle per traffic class, so every completion is known in advance.
A draft predicts the successor of a token unless the token is *hard*; it is wrong there always.
A class's acceptance is therefore a matter of how many of its tokens are hard, and nothing else.
"""

import random
from dataclasses import dataclass, replace
from functools import cache, cached_property

PAD, BOS, EOS, UNKNOWN = 0, 1, 2, 3
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")
CYCLE_TOKENS = 1000
VOCABULARY = 2048
_SEED = 20260117


@dataclass(frozen=True, slots=True)
class PairShape:
    """How large the pair is.

    Large enough that a step is more than Python overhead, and that a draft costs about a tenth of a
    step: then the best depth follows the traffic on two cores as it does on a GPU.
    """

    hidden: int = 256
    heads: int = 4
    intermediate: int = 1024
    target_layers: int = 6
    draft_intermediate: int = 64
    dtype: str = "float32"
    """Type of the weights, as PyTorch calls it."""


@dataclass(frozen=True)
class TrafficClass:
    """Requests that walk one cycle.

    Attributes:
        name: how words of the cycle begin, and how traffic is called.
        first_token: id of the cycle's first token.
        hard_share: share of tokens whose successor the draft gets wrong.
    """

    name: str
    first_token: int
    hard_share: float

    @cached_property
    def hard_tokens(self) -> tuple[int, ...]:
        """Ids of the hard tokens, ascending; the same on every machine."""
        cycle = range(self.first_token, self.first_token + CYCLE_TOKENS)
        chosen = random.Random(f"{_SEED}-{self.name}").sample(  # noqa: S311 - reproducible, not secret
            cycle, round(self.hard_share * CYCLE_TOKENS)
        )
        return tuple(sorted(chosen))

    def successor(self, token: int) -> int:
        """The only token that can follow `token`."""
        return self.first_token + (token - self.first_token + 1) % CYCLE_TOKENS

    def walk(self, token: int, length: int) -> tuple[int, ...]:
        """The `length` tokens after `token`."""
        start = token - self.first_token + 1
        return tuple(self.first_token + (start + step) % CYCLE_TOKENS for step in range(length))

    def word(self, token: int) -> str:
        """The text of a token, such as `easy-17`."""
        return f"{self.name}-{token - self.first_token}"

    def accepted(self, token: int, depth: int) -> int:
        """How many of `depth` drafts made after `token` are right."""
        hard = self._hard
        for position, drafted_from in enumerate((token, *self.walk(token, depth - 1))):
            if position == depth or drafted_from in hard:
                return position
        return depth

    @cached_property
    def _hard(self) -> frozenset[int]:
        return frozenset(self.hard_tokens)

    @cache  # noqa: B019 - a handful of module constants
    def survival(self, depth: int, tokens: int = 256) -> tuple[float, ...]:
        """P(first i drafts accepted) for i = 1…depth, over completions from every start.

        Args:
            depth: drafts per step.
            tokens: length of a completion; the first token comes from the prefill.
        """
        drafts = 0
        counts = [0] * depth
        cycle = range(self.first_token, self.first_token + CYCLE_TOKENS)
        accepted = {token: self.accepted(token, depth) for token in cycle}
        for start in cycle:
            token, emitted = start, 1
            while emitted < tokens:
                right = accepted[token]
                drafts += 1
                for position in range(right):
                    counts[position] += 1
                token = self.walk(token, right + 1)[-1]
                emitted += right + 1
        return tuple(count / drafts for count in counts)


EASY = TrafficClass("easy", first_token=len(SPECIAL_TOKENS), hard_share=0.02)
HARD = TrafficClass("hard", first_token=len(SPECIAL_TOKENS) + CYCLE_TOKENS, hard_share=0.9)
TRAFFIC_CLASSES = {traffic.name: traffic for traffic in (EASY, HARD)}
EAGLE3_CLASSES = (replace(EASY, hard_share=0.1), HARD)
"""As the EAGLE 3 draft meets them. It gets five times as much of easy traffic wrong: enough for a
trial of minutes to tell that the other draft is faster, and little enough for depth to rise."""


def class_of(token: int) -> TrafficClass | None:
    """The class whose cycle a token is on, or None for a special or unused one."""
    for traffic in TRAFFIC_CLASSES.values():
        if traffic.first_token <= token < traffic.first_token + CYCLE_TOKENS:
            return traffic
    return None


def vocabulary() -> dict[str, int]:
    """Word to id, complete up to `VOCABULARY`."""
    words = list(SPECIAL_TOKENS)
    for traffic in TRAFFIC_CLASSES.values():
        words += [traffic.word(traffic.first_token + step) for step in range(CYCLE_TOKENS)]
    words += [f"unused-{token}" for token in range(len(words), VOCABULARY)]
    return {word: token for token, word in enumerate(words)}
