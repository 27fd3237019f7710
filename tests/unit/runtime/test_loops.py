"""The registry of loops: one per resource, none of which can stop another."""

import asyncio
from collections.abc import Awaitable, Callable

from fathom.core.cluster.kinds import SERVICE, SPECULATIVE_DEPLOYMENT, Kind, ObjectKey
from fathom.core.cluster.manifest import Manifest
from fathom.runtime.loops import FIRST_PASSES_AT_ONCE, STUCK_AFTER_S, Loops
from support.bench import KEY, Bench

OTHER = ObjectKey("llm", "other")


async def until(holds: Callable[[], object]) -> None:
    """Let the loops run until something holds."""
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.001)


async def test_a_poke_is_a_pass(bench: Bench, loops: Loops) -> None:
    loops.seen(KEY)
    await until(lambda: bench.metrics.asked)
    bench.kube.remove(SERVICE, "llm", "kimi")
    loops.wake(KEY)
    await until(lambda: bench.kube.names(SERVICE) == ["kimi"])


async def test_a_loop_ends_with_its_resource_and_starts_with_the_next(
    bench: Bench, loops: Loops
) -> None:
    loops.seen(KEY)
    await until(lambda: bench.metrics.asked)
    resource = bench.resource
    bench.kube.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
    loops.seen(KEY)
    await until(lambda: len(loops) == 0)
    bench.kube.put(SPECULATIVE_DEPLOYMENT, resource)
    loops.seen(KEY)
    assert len(loops) == 1


async def test_a_resource_made_anew_during_the_last_look_gets_its_loop(
    bench: Bench, loops: Loops
) -> None:
    """The look finds it gone; before the loop has ended, it is there again, and that is told."""
    resource, read = bench.resource, bench.kube.get
    looked = 0

    async def made_anew_meanwhile(kind: Kind, namespace: str, name: str) -> Manifest | None:
        nonlocal looked
        found = await read(kind, namespace, name)
        looked += 1
        if looked == 1:
            bench.kube.put(SPECULATIVE_DEPLOYMENT, resource)
            loops.seen(KEY)
        return found

    bench.kube.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
    bench.metrics.asked = []
    bench.kube.get = made_anew_meanwhile  # type: ignore[method-assign]
    loops.seen(KEY)
    await until(lambda: bench.metrics.asked)
    assert len(loops) == 1


async def test_a_resource_made_anew_while_its_loop_ends_gets_another(
    bench: Bench, loops: Loops
) -> None:
    """At each moment of the end, from the last look to the loop's removal from the registry."""
    resource = bench.resource
    for moment in range(12):
        bench.kube.remove(SPECULATIVE_DEPLOYMENT, "llm", "kimi")
        loops.seen(KEY)
        for _ in range(moment):
            await asyncio.sleep(0)
        bench.kube.put(SPECULATIVE_DEPLOYMENT, resource)
        bench.metrics.asked = []
        loops.seen(KEY)
        await until(lambda: bench.metrics.asked)
    assert len(loops) == 1


async def test_an_event_about_what_is_gone_costs_one_look(loops: Loops) -> None:
    loops.seen(OTHER)
    await until(lambda: len(loops) == 0)


async def test_nobody_is_poked_for_a_stranger(loops: Loops) -> None:
    loops.wake(OTHER)
    assert len(loops) == 0


async def test_a_loop_that_hangs_is_overdue(bench: Bench, loops: Loops) -> None:
    never: Awaitable[None] = asyncio.get_running_loop().create_future()

    async def hang(*_: object) -> None:
        await never

    bench.kube.get = hang  # type: ignore[method-assign,assignment]
    loops.seen(KEY)
    await asyncio.sleep(0)
    assert loops.overdue() == ()
    bench.clock.at_s += STUCK_AFTER_S + 1
    assert loops.overdue() == (KEY,)


async def test_stopping_changes_nothing(bench: Bench, loops: Loops) -> None:
    loops.seen(KEY)
    await until(lambda: bench.metrics.asked)
    await loops.stop()
    assert bench.kube.writes == []
    assert len(loops) == 0


async def test_loops_that_begin_together_take_turns(bench: Bench, loops: Loops) -> None:
    """Else all their later passes come together, too, and an edit waits behind a thousand."""
    looking, most = 0, 0
    read = bench.kube.get

    async def slow(kind: Kind, namespace: str, name: str) -> Manifest | None:
        nonlocal looking, most
        looking += 1
        most = max(most, looking)
        await asyncio.sleep(0)
        looking -= 1
        return await read(kind, namespace, name)

    bench.kube.get = slow  # type: ignore[method-assign]
    for number in range(3 * FIRST_PASSES_AT_ONCE):
        loops.seen(ObjectKey("llm", f"resource-{number}"))
    await until(lambda: len(loops) == 0)
    assert most == FIRST_PASSES_AT_ONCE
