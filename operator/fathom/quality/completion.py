"""A greedy completion: what an engine is asked, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A greedy completion to ask for."""

    prompt: str | tuple[int, ...]
    """Text, or the ids of its tokens."""
    most_tokens: int
    likeliest: int = 0
    """How many candidates for the first token to tell, with their log probabilities; 0: none."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What an engine went on with."""

    token_ids: tuple[int, ...]
    text: str
    prompt_token_ids: tuple[int, ...] = ()
    """Empty: the engine did not tell."""
    logprobs: Mapping[int, float] = field(default_factory=dict)
    """Natural logarithm of the probability, by token id, of the first token's candidates."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Why there is no completion."""

    sentence: str
