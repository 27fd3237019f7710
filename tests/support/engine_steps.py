"""What tests of an engine under traffic do, and wait for."""

from collections.abc import Iterator

from local_cluster.engine.process import EngineProcess
from local_cluster.engine.scrape import EngineScrape, scrape
from local_cluster.engine.traffic import LoadGenerator
from support.waiting import until


async def in_force(engine: EngineProcess, generation: int) -> EngineScrape:
    """Wait until the engine reports a generation."""

    async def reported() -> EngineScrape | None:
        found = await scrape(engine.base_url)
        return found if found.total("fathom_depth_generation") == generation else None

    return await until(reported, f"generation {generation} is in force")


async def set_depth(engine: EngineProcess, generations: Iterator[int], depth: int) -> EngineScrape:
    generation = next(generations)
    engine.write_depth(generation, [[1, 16, depth]])
    return await in_force(engine, generation)


async def requests_done(load: LoadGenerator, more: int) -> None:
    """Wait until that many more requests have ended."""
    enough = len(load.results) + more
    await until(lambda: len(load.results) >= enough, f"{more} more requests end")


def gained(before: EngineScrape, after: EngineScrape, name: str, **labels: str) -> float:
    return after.total(name, **labels) - before.total(name, **labels)
