"""What is known of models: asked for in the background, rarely, and once at a time."""

import asyncio
import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fathom.model_facts import Absence, ModelConfig, ModelFacts
from fathom.model_refs import ModelRef
from fathom.runtime.caches import KNOWN_FOR_S, NOT_YET, RETRY_S, TRIED_FOR_S, UNUSED_S, ModelCache
from fathom_intake.model_weights import Weights
from support.loop_harness import ManualClock

REF = ModelRef("org/model")
FOUND = ModelFacts(config=ModelConfig(hidden_size=64))
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


async def test_a_failure_is_tried_again_after_seconds_then_minutes_and_success_lasts_for_hours(
    cache: ModelCache, hub: SlowHub, clock: ManualClock
) -> None:
    told = Told()
    hub.answer = DOWN
    hub.go.set()
    await cache.facts(REF, told)
    await settled()

    for failures, wait_s in enumerate((10, 20, 40, 80, 160, TRIED_FOR_S, TRIED_FOR_S), start=1):
        clock.at_s += wait_s - 1
        assert await cache.facts(REF, told) == DOWN
        await settled()
        assert len(hub.asked) == failures
        clock.at_s += 1
        assert await cache.facts(REF, told) == DOWN
        await settled()
        assert len(hub.asked) == failures + 1

    clock.at_s += TRIED_FOR_S
    hub.answer = FOUND
    assert await cache.facts(REF, told) == DOWN
    await settled()
    clock.at_s += KNOWN_FOR_S - 1
    assert await cache.facts(REF, told) == FOUND
    await settled()
    assert (len(hub.asked), told.times) == (9, 2)


async def test_what_is_still_so_pokes_nobody(
    cache: ModelCache, hub: SlowHub, clock: ManualClock
) -> None:
    told = Told()
    hub.answer = DOWN
    hub.go.set()
    for _ in range(3):
        await cache.facts(REF, told)
        await settled()
        clock.at_s += 4 * RETRY_S

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

    no_weights = replace(FOUND, weights=Weights(pickled=False))
    assert await cache.facts(ModelRef(str(tmp_path)), Told()) == no_weights
    assert hub.asked == []


async def test_a_stop_ends_what_runs(cache: ModelCache, hub: SlowHub) -> None:
    told = Told()
    await cache.facts(REF, told)
    await settled()

    await cache.stop()
    hub.go.set()
    await settled()

    assert (hub.asked, told.times) == ([REF], 0)


async def test_what_is_in_use_is_kept_however_much_it_is(
    cache: ModelCache, hub: SlowHub, clock: ManualClock
) -> None:
    hub.go.set()
    refs = [ModelRef(f"org/{number}") for number in range(1000)]
    for _ in range(10):
        found = [await cache.facts(ref, Told()) for ref in refs]
        for _ in range(20):
            await settled()
        clock.at_s += 60

    assert found == [FOUND] * len(refs)
    assert sorted(hub.asked, key=lambda ref: ref.id) == sorted(refs, key=lambda ref: ref.id)


async def test_what_nobody_asks_for_any_more_goes(
    cache: ModelCache, hub: SlowHub, clock: ManualClock
) -> None:
    hub.go.set()
    for number in range(100):
        await cache.facts(ModelRef(f"org/{number}"), Told())
    for _ in range(5):
        await settled()
    assert len(cache) == 100

    for _ in range(2):
        clock.at_s += UNUSED_S / 2 + 1
        await cache.facts(REF, Told())
        await cache.facts(ModelRef(f"new/{clock.at_s}"), Told())
        await settled()

    assert len(cache) == 3
    assert await cache.facts(REF, Told()) == FOUND


async def test_few_look_ups_run_at_once(cache: ModelCache, hub: SlowHub) -> None:
    for number in range(50):
        await cache.facts(ModelRef(f"org/{number}"), Told())
    await settled()

    assert len(hub.asked) == 4
    await cache.stop()


async def test_while_it_is_looked_up_anew_the_last_answer_stands(
    cache: ModelCache, hub: SlowHub, clock: ManualClock
) -> None:
    hub.go.set()
    await cache.facts(REF, Told())
    await settled()
    hub.go.clear()
    clock.at_s += KNOWN_FOR_S

    for _ in range(3):
        assert await cache.facts(REF, Told()) == FOUND
        await settled()
    assert len(hub.asked) == 2
    await cache.stop()
