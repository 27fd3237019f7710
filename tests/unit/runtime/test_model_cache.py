"""What is known of models: asked for in the background, rarely, and once at a time."""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fathom.core.model_config import ModelConfig
from fathom.core.model_facts import Absence, ModelFacts, ModelRef
from fathom.runtime.model_cache import (
    KNOWN_FOR_S,
    MOST_MODELS,
    NOT_YET,
    TRIED_FOR_S,
    ModelCache,
)
from support.bench import ManualClock

REF = ModelRef("org/model")
FOUND = ModelFacts(ModelConfig(hidden_size=64))
DOWN = ModelFacts(absence=Absence.UNREACHABLE, explanation="it is down")


@dataclass
class SlowHub:
    """Answers when it is let go."""

    answer: ModelFacts = FOUND
    asked: list[ModelRef] = field(default_factory=list)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def look_up(self, ref: ModelRef) -> ModelFacts:
        self.asked.append(ref)
        await self.go.wait()
        return self.answer


class Told:
    """Counts how often something changed, and can be waited for."""

    def __init__(self) -> None:
        self.times = 0
        self.event = asyncio.Event()

    def __call__(self) -> None:
        self.times += 1
        self.event.set()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hub() -> SlowHub:
    return SlowHub()


@pytest.fixture
def cache(hub: SlowHub, clock: ManualClock) -> ModelCache:
    return ModelCache(hub, clock)


async def settled() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_pass_never_waits_and_is_told_once(cache: ModelCache, hub: SlowHub) -> None:
    told = Told()

    assert await cache.facts(REF, told) is NOT_YET
    hub.go.set()
    await told.event.wait()

    assert await cache.facts(REF, told) == FOUND
    await settled()
    assert (told.times, hub.asked) == (1, [REF])


async def test_a_model_is_asked_for_once_at_a_time(cache: ModelCache, hub: SlowHub) -> None:
    first, second = Told(), Told()

    for told in (first, second, first):
        assert await cache.facts(REF, told) is NOT_YET
    hub.go.set()
    await settled()

    assert hub.asked == [REF]
    assert (first.times, second.times) == (1, 1)


async def test_a_revision_is_another_model(cache: ModelCache, hub: SlowHub) -> None:
    pinned = ModelRef(REF.id, "v1")
    hub.go.set()

    for ref in (REF, pinned):
        await cache.facts(ref, Told())
    await settled()

    assert hub.asked == [REF, pinned]


async def test_a_failure_is_tried_again_after_minutes_and_success_lasts_for_hours(
    cache: ModelCache, hub: SlowHub, clock: ManualClock
) -> None:
    told = Told()
    hub.answer = DOWN
    hub.go.set()
    await cache.facts(REF, told)
    await settled()

    clock.at_s += TRIED_FOR_S - 1
    assert await cache.facts(REF, told) == DOWN
    await settled()
    assert len(hub.asked) == 1

    clock.at_s += 1
    hub.answer = FOUND
    assert await cache.facts(REF, told) == DOWN
    await settled()
    assert len(hub.asked) == 2

    clock.at_s += KNOWN_FOR_S - 1
    assert await cache.facts(REF, told) == FOUND
    await settled()
    assert (len(hub.asked), told.times) == (2, 2)


async def test_what_is_still_so_pokes_nobody(
    cache: ModelCache, hub: SlowHub, clock: ManualClock
) -> None:
    told = Told()
    hub.answer = DOWN
    hub.go.set()
    for _ in range(3):
        await cache.facts(REF, told)
        await settled()
        clock.at_s += TRIED_FOR_S

    assert (len(hub.asked), told.times) == (3, 1)


async def test_a_hub_that_goes_down_takes_nothing_back(
    cache: ModelCache, hub: SlowHub, clock: ManualClock
) -> None:
    hub.go.set()
    await cache.facts(REF, Told())
    await settled()
    clock.at_s += KNOWN_FOR_S
    hub.answer = DOWN
    told = Told()

    assert await cache.facts(REF, told) == FOUND
    await settled()

    assert await cache.facts(REF, told) == FOUND
    assert (len(hub.asked), told.times) == (2, 0)


async def test_a_directory_is_read_here_and_now(
    cache: ModelCache, hub: SlowHub, tmp_path: Path
) -> None:
    await asyncio.to_thread(
        (tmp_path / "config.json").write_text, json.dumps({"hidden_size": 64}), encoding="utf-8"
    )

    assert await cache.facts(ModelRef(str(tmp_path)), Told()) == FOUND
    assert hub.asked == []


async def test_a_stop_ends_what_runs(cache: ModelCache, hub: SlowHub) -> None:
    told = Told()
    await cache.facts(REF, told)
    await settled()

    await cache.stop()
    hub.go.set()
    await settled()

    assert (hub.asked, told.times) == ([REF], 0)


async def test_the_number_of_models_kept_is_bounded(cache: ModelCache, hub: SlowHub) -> None:
    hub.go.set()
    for number in range(MOST_MODELS + 1):
        await cache.facts(ModelRef(f"org/{number}"), Told())
        await settled()

    assert await cache.facts(ModelRef(f"org/{MOST_MODELS}"), Told()) == FOUND
    assert await cache.facts(ModelRef("org/0"), Told()) is NOT_YET
    await cache.stop()
