"""Prompts of one class of the constructed pair, in the shapes that users have. Pure."""

import json

from local_cluster.engine.language import CYCLE_TOKENS, TrafficClass

PROMPT_TOKENS = 8
"""vLLM's loader passes over prompts with fewer than four."""


def share_gpt(traffic: TrafficClass, count: int) -> str:
    """A ShareGPT-shaped file, from starts that lie equally far apart on the class's cycle."""
    conversations = [
        {"conversations": [_turn("human", text), _turn("gpt", text)]}
        for text in _texts(traffic, count)
    ]
    return json.dumps(conversations)


def speed_bench(traffic: TrafficClass, count: int) -> str:
    """A file of SPEED-Bench's shape, its category the class."""
    lines = (
        json.dumps({"messages": [{"role": "user", "content": text}], "category": traffic.name})
        for text in _texts(traffic, count)
    )
    return "".join(f"{line}\n" for line in lines)


def _texts(traffic: TrafficClass, count: int) -> list[str]:
    starts = (traffic.first_token + CYCLE_TOKENS * index // count for index in range(count))
    return [
        " ".join(map(traffic.word, (start, *traffic.walk(start, PROMPT_TOKENS - 1))))
        for start in starts
    ]


def _turn(who: str, text: str) -> dict[str, str]:
    return {"from": who, "value": text}
