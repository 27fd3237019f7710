"""A resource whose creation no watch told of is found all the same."""

import asyncio
import copy
from collections.abc import AsyncIterator, Sequence

import pytest

from fathom.adapters.ports import KubeError
from fathom.core.cluster.kinds import SPECULATIVE_DEPLOYMENT, ObjectKey
from fathom.runtime.loops import Loops
from fathom.runtime.sweep import SWEEP_S, sweep
from support.bench import KEY, Bench


class Sweeping:
    """A sweep whose waits end when the test says so."""

    def __init__(self, bench: Bench, loops: Loops, namespaces: Sequence[str]) -> None:
        self._due = asyncio.Semaphore(0)
        self._waiting = asyncio.Event()
        self.waits_s: list[float] = []
        self.task = asyncio.create_task(sweep(bench.kube, namespaces, loops, sleep=self._sleep))

    async def _sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)
        self._waiting.set()
        await self._due.acquire()
        self._waiting.clear()

    async def once(self) -> None:
        """Let it look once, and wait until it has."""
        await self._waiting.wait()
        self._due.release()
        await asyncio.sleep(0)
        await self._waiting.wait()


@pytest.fixture
async def sweeping(bench: Bench, loops: Loops) -> AsyncIterator[Sweeping]:
    sweeping = Sweeping(bench, loops, ())
    yield sweeping
    sweeping.task.cancel()


def put_another(bench: Bench, namespace: str) -> ObjectKey:
    found = copy.deepcopy(bench.resource)
    found["metadata"] |= {"name": "other", "namespace": namespace, "uid": "other"}
    bench.kube.put(SPECULATIVE_DEPLOYMENT, found)
    return ObjectKey(namespace, "other")


async def test_a_resource_that_was_missed_gets_its_loop(
    bench: Bench, loops: Loops, sweeping: Sweeping
) -> None:
    loops.seen(KEY)
    put_another(bench, "elsewhere")
    await sweeping.once()
    assert len(loops) == 2
    await sweeping.once()
    assert len(loops) == 2
    assert sweeping.waits_s == [SWEEP_S] * 3


async def test_a_server_that_does_not_answer_is_asked_again(
    bench: Bench, loops: Loops, sweeping: Sweeping
) -> None:
    bench.kube.fail = lambda _verb, _kind: KubeError(503, "etcd has no leader")
    await sweeping.once()
    assert len(loops) == 0
    bench.kube.fail = lambda _verb, _kind: None
    await sweeping.once()
    assert len(loops) == 1


async def test_only_namespaces_that_are_watched_are_looked_into(bench: Bench, loops: Loops) -> None:
    put_another(bench, "elsewhere")
    sweeping = Sweeping(bench, loops, ["llm", "nowhere"])
    await sweeping.once()
    sweeping.task.cancel()
    assert len(loops) == 1
