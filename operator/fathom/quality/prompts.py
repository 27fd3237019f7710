"""The prompts of a quality check: a fixed few of different kinds, so that two checks are alike."""

from typing import Final

PROMPTS: Final = (
    # Prose, where many continuations are nearly as good.
    "The harbour was quiet that morning. A single boat",
    # Code, where drafts are accepted most.
    'def running_mean(values, width):\n    """The mean of each stretch of `width` values."""\n',
    # A list.
    "What to pack for a week in the mountains:\n1.",
    # Numbers.
    "The first prime numbers are 2, 3, 5, 7, 11, 13, 17,",
    # Structured text.
    '{"city": "Oslo", "country": "Norway"}\n{"city": "Lima", "country":',
    # A question.
    "Question: Why does ice float on water?\nAnswer:",
    # Two other languages, one of another script.
    "Der Zug nach Hamburg hält heute nicht in",
    "春天来了 院子里的花",
)
MOST_TOKENS: Final = 64
"""Asked of each prompt."""
