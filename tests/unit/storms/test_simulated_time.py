"""What a simulated process is, and what it is not."""

import asyncio
from contextvars import Context

from storms.simulated_time import Process, SimulatedLoop, current, run


def test_the_world_does_not_stop_with_the_process_that_woke_it() -> None:
    seen: list[tuple[float, Process | None]] = []

    async def work(loop: SimulatedLoop) -> None:
        asked = asyncio.Event()

        async def world() -> None:
            await asked.wait()
            await asyncio.sleep(1.0)
            seen.append((loop.time(), current()))

        async def asks() -> None:
            await asyncio.sleep(2.0)
            asked.set()
            await asyncio.sleep(2.0)
            seen.append((loop.time(), current()))

        # As where nothing has set a variable: an empty context is false.
        world_task = loop.create_task(world(), context=Context())
        process = Process(loop, "operator")
        asking = process.start(asks())
        await asyncio.sleep(2.5)
        process.pause()
        await asyncio.sleep(10.0)
        process.resume()
        await asyncio.gather(world_task, asking)
        assert seen == [(3.0, None), (12.5, process)]

    run(work)
