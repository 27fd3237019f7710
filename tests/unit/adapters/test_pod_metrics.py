"""Many pods of many resources: all of them in time, whatever some of them do."""

import asyncio
import gc
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace

import aiohttp
import psutil
import pytest

from fathom.adapters.http import http_session
from fathom.adapters.pod_metrics import AT_ONCE, CONCURRENCY, PodMetrics
from fathom.adapters.ports import PodEndpoint, SystemClock
from fathom.measurement.counters import Cell, DraftCell, PodCounters, StepKind
from support import bad_server
from support.bad_server import Answer, BadServer, answering, saying
from support.engine_page import FakeEngine
from support.leaping_time import in_leaping_time
from support.loop_harness import ManualClock
from support.waiting import GUARD_S, turns

PAGE = b"vllm:generation_tokens_total 5\n"
SHORT_S = 0.5
"""Where pods hang until it is over: in leaping time, so that it is over for no other pod."""


def operators_session() -> aiohttp.ClientSession:
    """As the operator's."""
    return http_session(2 * AT_ONCE, keeps_them=False)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with operators_session() as made:
        yield made


def patient(
    session: aiohttp.ClientSession, *, at_once: int = AT_ONCE, concurrency: int = CONCURRENCY
) -> PodMetrics:
    """A reader that gives no pod up."""
    return PodMetrics(
        session,
        SystemClock(),
        timeout_s=GUARD_S,
        connect_s=GUARD_S,
        at_once=at_once,
        concurrency=concurrency,
    )


def at(server: BadServer, resource: str, count: int) -> list[PodEndpoint]:
    return [
        PodEndpoint(namespace="llm", pod=f"{resource}-{i}", ip="127.0.0.1", port=server.port)
        for i in range(count)
    ]


async def test_a_resource_with_hanging_pods_holds_up_no_other(
    session: aiohttp.ClientSession,
) -> None:
    """200 pods, of which 20 hang: others are read meanwhile, and in the end so are the 180."""
    async with answering(bad_server.silent) as hanging, answering(saying(PAGE)) as quick:
        source = patient(session, at_once=CONCURRENCY + 4)
        large = [*at(hanging, "hanging", 20), *at(quick, "large", 180)]
        held = asyncio.create_task(source.sample(large))
        while hanging.open < CONCURRENCY:
            await asyncio.sleep(0)
        others = await asyncio.gather(
            *(source.sample(at(quick, f"other-{i}", 4)) for i in range(50))
        )
        still = not held.done()
        hanging.over.set()  # it closes the connections
        sample = await held

    assert still
    assert [len(each.counters) for each in others] == [4] * 50
    assert len(sample.counters) == 180
    assert {each.pod for each in sample.failures} == {f"hanging-{i}" for i in range(20)}


async def test_a_pod_that_was_read_keeps_no_connection(session: aiohttp.ClientSession) -> None:
    """Each is a file, of which a container often has 1024: a thousand pods would be too many."""

    async def keeping(server: BadServer, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PAGE)
        await server.send(writer, head + PAGE)
        await server.over.wait()

    async with answering(keeping) as server:
        sample = await patient(session).sample(at(server, "kimi", 30))
        assert len(sample.counters) == 30
        await turns()  # their transports close
        remote = [each.raddr for each in psutil.Process().net_connections("tcp") if each.raddr]
        assert [each.port for each in remote].count(server.port) == 0


async def test_no_more_pods_than_that_are_read_at_the_same_time(
    session: aiohttp.ClientSession,
) -> None:
    most, go_on = 0, asyncio.Event()

    async def counting(server: BadServer, writer: asyncio.StreamWriter) -> None:
        nonlocal most
        most = max(most, server.open)
        if server.open == 10:
            await turns()  # whoever else is let in comes now
            go_on.set()
        await go_on.wait()
        await saying(PAGE)(server, writer)

    answer: Answer = counting
    async with answering(answer) as server:
        source = patient(session, at_once=10, concurrency=4)
        samples = await asyncio.gather(
            *(source.sample(at(server, f"resource-{i}", 5)) for i in range(8))
        )

    assert [len(each.counters) for each in samples] == [5] * 8
    assert most == 10


async def test_turns_go_round_among_resources(session: aiohttp.ClientSession) -> None:
    """One that came first, with very many pods, is not read to its end before another begins."""
    async with answering(saying(PAGE)) as server:
        source = patient(session, at_once=4, concurrency=4)
        large = asyncio.create_task(source.sample(at(server, "large", 200)))
        small = asyncio.create_task(source.sample(at(server, "small", 8)))
        await small
        asked = len(server.asked)
        await large

    assert asked < 40
    assert len(server.asked) == 208


@asynccontextmanager
async def crowded(
    *known: PodEndpoint,
) -> AsyncIterator[tuple[PodMetrics, Callable[[], Awaitable[None]]]]:
    """A reader with four turns that knows of twelve pods that hang, and of `known` what they do.

    Yields:
        The reader, and what has those twelve read anew: it ends when four of them are asked.
    """
    async with (
        operators_session() as session,
        answering(bad_server.silent) as hanging,
        asyncio.TaskGroup() as tasks,
    ):
        source = PodMetrics(session, SystemClock(), timeout_s=SHORT_S, at_once=4)
        looks = [at(hanging, f"hanging-{i}", 4) for i in range(3)]
        await asyncio.gather(*map(source.sample, [known, *looks]))
        assert len(hanging.asked) == 12

        async def ask() -> None:
            for each in looks:
                tasks.create_task(source.sample(each))
            while len(hanging.asked) < 16:
                await asyncio.sleep(0)

        yield source, ask
        hanging.over.set()


@in_leaping_time
async def test_pods_that_hang_stand_before_no_pod_that_answers() -> None:
    async with answering(saying(PAGE)) as quick, crowded() as (source, ask):
        await ask()
        began_s = loop_s()
        sample = await source.sample(at(quick, "healthy", 40))
        took_s = loop_s() - began_s

    assert len(sample.counters) == 40
    assert took_s == 0


def loop_s() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("then", [saying(PAGE), bad_server.failing], ids=["a page", "a refusal"])
@in_leaping_time
async def test_a_pod_that_answers_again_takes_turns_with_those_that_do(then: Answer) -> None:
    hangs = True

    async def fickle(server: BadServer, writer: asyncio.StreamWriter) -> None:
        await (bad_server.silent if hangs else then)(server, writer)

    async with answering(fickle) as server:
        pods = at(server, "fickle", 1)
        async with crowded(*pods) as (source, ask):
            hangs = False
            first = await source.sample(pods)
            await ask()
            began_s = loop_s()
            second = await source.sample(pods)
            took_s = loop_s() - began_s

    assert len(server.asked) == 3
    assert [len(each.counters) for each in (first, second)] == [then is not bad_server.failing] * 2
    assert took_s == 0


@in_leaping_time
async def test_a_look_does_not_wait_for_ever_for_pods_that_hang() -> None:
    """A resource of which one pod hangs is looked at late, but not as late as all that hang."""
    async with answering(bad_server.silent) as hanging, operators_session() as session:
        source = PodMetrics(session, SystemClock(), timeout_s=0.3, at_once=4)
        looks = [at(hanging, f"hanging-{i}", 4) for i in range(6)]
        await asyncio.gather(*map(source.sample, looks))
        known = len(hanging.asked)
        samples = await asyncio.gather(*map(source.sample, looks))
        asked = len(hanging.asked) - known

    assert known == 24
    assert 4 <= asked <= 12
    causes = {each.cause for sample in samples for each in sample.failures}
    assert sum(len(sample.failures) for sample in samples) == 24
    assert causes == {f"/metrics on port {hanging.port} cannot be read: no answer within 0.3 s"}


async def test_a_connection_that_does_not_come_about_is_given_up_before_the_answer(
    session: aiohttp.ClientSession,
) -> None:
    """As where a NetworkPolicy drops what is sent to a pod."""
    with ExitStack() as sockets:
        full = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        host, port = place = full.getsockname()
        for _ in range(4):  # no more are let in than one or two
            waiting = sockets.enter_context(socket.socket())
            waiting.settimeout(0)
            waiting.connect_ex(place)
        source = PodMetrics(session, SystemClock(), timeout_s=GUARD_S, connect_s=0.2)
        sample = await source.sample(
            [PodEndpoint(namespace="llm", pod="dropped", ip=host, port=port)]
        )

    (failure,) = sample.failures
    assert failure.cause == (
        f"/metrics on port {place[1]} cannot be read: no connection comes about within 0.2 s"
    )


async def test_a_look_takes_a_quarter_of_the_memory_of_its_objects(
    session: aiohttp.ClientSession,
) -> None:
    """Thousands are kept, each until the next one at the same pod."""
    engine = FakeEngine()
    engine.cells = {
        Cell(batch, depth, step): (10.0, 0.5, 25.0, 40.0)
        for batch in (1, 2, 4, 8, 16, 32, 64)
        for depth in range(8)
        for step in StepKind
    }
    engine.drafts = {
        DraftCell(each.batch_le, each.depth): (30.0, (24.0,) * each.depth)
        for each in engine.cells
        if each.depth
    }
    async with answering(saying(engine.page().encode())) as server:
        source = PodMetrics(session, ManualClock(), timeout_s=GUARD_S)
        (look,) = (await source.sample(at(server, "resource", 1))).counters

    objects = replace(look, cells=dict(look.cells), drafts=dict(look.drafts))
    assert objects == look
    assert len(look.cells) == 112
    assert memory_of(look) * 4 < memory_of(objects)


def memory_of(look: PodCounters) -> int:
    """Bytes of its cells, but for what all looks share: the keys."""
    seen: set[int] = set()

    def size(each: object) -> int:
        shared = isinstance(each, Cell | DraftCell | type) or callable(each)
        if id(each) in seen or shared:
            return 0
        seen.add(id(each))
        return sys.getsizeof(each) + sum(map(size, gc.get_referents(each)))

    return size(look.cells) + size(look.drafts)


@pytest.mark.parametrize(
    ("shown", "read"),
    [("kimi-0", True), ("other-7", False), ("", True)],
    ids=["its own", "another pod's", "an older plugin's"],
)
async def test_a_page_at_an_address_that_another_pod_has_now_is_not_read(
    session: aiohttp.ClientSession, shown: str, *, read: bool
) -> None:
    label = f',pod_name="{shown}"' if shown else ""
    page = PAGE + f'fathom_plugin_info{{version="0.1.0",content="abc"{label}}} 1.0\n'.encode()
    async with answering(saying(page)) as server:
        sample = await patient(session).sample(at(server, "kimi", 1))
    assert len(sample.counters) == read
    if not read:
        (failure,) = sample.failures
        assert "is that of pod other-7, which has the address now" in str(failure)


@pytest.mark.parametrize(
    ("shown", "asked", "read"),
    [("1", "1", True), ("2", "1", False), ("", "1", True), ("2", "", True)],
    ids=["its own", "another pod's", "an older plugin's", "whichever"],
)
async def test_of_two_pods_of_one_name_only_the_one_that_is_meant_is_read(
    session: aiohttp.ClientSession, shown: str, asked: str, *, read: bool
) -> None:
    """Pods of groups are numbered."""
    info = f'fathom_plugin_info{{version="0.1.0",pod_name="kimi-0",pod_uid="{shown}"}} 1.0\n'
    async with answering(saying(PAGE + info.encode())) as server:
        (meant,) = at(server, "kimi", 1)
        sample = await patient(session).sample([replace(meant, uid=asked)])
    assert len(sample.counters) == read
    if not read:
        (failure,) = sample.failures
        assert "is that of another pod of this name, which has the address now" in str(failure)
