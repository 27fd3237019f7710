"""What an engine makes of a draft: acceptance by position, and whether outputs are right."""

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import aiohttp

from local_cluster.engine.language import CYCLE_TOKENS, TRAFFIC_CLASSES, TrafficClass
from local_cluster.engine.model_pair import ModelPair
from local_cluster.engine.process import EngineProcess, Part, real_setup
from local_cluster.engine.scrape import EngineScrape, scrape
from support.waiting import GUARD_S

DEPTH: Final = 3
REQUESTS: Final = 16
TOKENS: Final = 96
_PROMPT: Final = 8
_AT_ONCE: Final = 8
_STEP: Final = CYCLE_TOKENS // REQUESTS


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What was accepted of a class of traffic."""

    survival: tuple[float, ...]
    """P(the first i drafts are accepted), by position."""
    wrong: int
    """Answers that are not the target's own."""

    @property
    def length(self) -> float:
        """Tokens per step."""
        return 1 + sum(self.survival)


async def served(environment: Path, pair: ModelPair) -> Mapping[str, Acceptance]:
    """Start a real engine with a draft, and ask it for both classes.

    Args:
        environment: of the engine.
        pair: the target, and the draft to serve it with.

    Returns:
        By the name of the class.
    """
    setup = replace(real_setup(environment, pair), part=Part.NOTHING, live=False, depth=DEPTH)
    with (
        tempfile.TemporaryDirectory(prefix="fathom-serving-") as folder,
        EngineProcess(setup, Path(folder)) as engine,
    ):
        return {name: await _accepted(engine, each) for name, each in TRAFFIC_CLASSES.items()}


async def _accepted(engine: EngineProcess, traffic: TrafficClass) -> Acceptance:
    before = await scrape(engine.base_url)
    gate = asyncio.Semaphore(_AT_ONCE)
    timeout = aiohttp.ClientTimeout(total=GUARD_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        right = await asyncio.gather(
            *(_is_right(session, gate, engine, traffic, at) for at in range(REQUESTS))
        )
    after = await scrape(engine.base_url)
    drafts = _count(after, "num_drafts_total") - _count(before, "num_drafts_total")
    name = "num_accepted_tokens_per_pos_total"
    counts = [
        _count(after, name, position=str(at)) - _count(before, name, position=str(at))
        for at in range(DEPTH)
    ]
    return Acceptance(tuple(each / drafts for each in counts), right.count(False))


def _count(found: EngineScrape, name: str, **labels: str) -> float:
    return found.total(f"vllm:spec_decode_{name}", **labels)


async def _is_right(
    session: aiohttp.ClientSession,
    gate: asyncio.Semaphore,
    engine: EngineProcess,
    traffic: TrafficClass,
    at: int,
) -> bool:
    first = traffic.first_token + at * _STEP
    prompt = [first, *traffic.walk(first, _PROMPT - 1)]
    body = {
        "model": engine.model,
        "prompt": prompt,
        "max_tokens": TOKENS,
        "temperature": 0,
        "return_token_ids": True,
    }
    async with gate, session.post(f"{engine.base_url}/v1/completions", json=body) as response:
        response.raise_for_status()
        answer = await response.json()
    return tuple(answer["choices"][0]["token_ids"]) == traffic.walk(prompt[-1], TOKENS)
