"""A watch that fails is begun anew; only one that keeps failing ends the operator."""

import asyncio

import pytest
from kubernetes.aio.client import Configuration

from fathom.runtime.handlers import (
    GIVES_UP_AFTER,
    LONGEST_BACKOFF_S,
    again_and_again,
    kopf_settings,
    watch,
)
from fathom.runtime.loops import Loops
from support.api_server import NOT_FOR_ALL, ApiServer, served
from support.bench import Bench


async def watching(loops: Loops, bench: Bench, url: str) -> None:
    await watch(loops, bench.kube, Configuration(host=url), (), heed_signals=lambda: None)


class Run:
    """Kopf, as far as this is about: it ends by itself, or with an error."""

    def __init__(self, *outcomes: Exception | None, lasts_s: float = 0.0) -> None:
        self._outcomes = list(outcomes)
        self._lasts_s = lasts_s
        self._at_s = 0.0
        self.slept: list[float] = []

    async def operate(self) -> None:
        self._at_s += self._lasts_s
        outcome = self._outcomes.pop(0)
        if outcome is not None:
            raise outcome

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._at_s += seconds

    async def again_and_again(self) -> None:
        await again_and_again(self.operate, sleep=self.sleep, now_s=lambda: self._at_s)


async def test_what_fails_is_begun_anew_later_each_time() -> None:
    run = Run(RuntimeError("500"), RuntimeError("500"), RuntimeError("500"), None)
    await run.again_and_again()
    assert run.slept == [1, 2, 4]


async def test_what_lasted_is_begun_anew_at_once_and_for_ever() -> None:
    failures = [RuntimeError("500")] * (3 * GIVES_UP_AFTER)
    run = Run(*failures, None, lasts_s=LONGEST_BACKOFF_S + 1)
    await run.again_and_again()
    assert run.slept == [1] * len(failures)


async def test_what_keeps_failing_ends_with_its_error() -> None:
    run = Run(*[RuntimeError("401")] * GIVES_UP_AFTER)
    with pytest.raises(RuntimeError, match="401"):
        await run.again_and_again()
    assert sum(run.slept) > 4 * 60
    assert max(run.slept) == LONGEST_BACKOFF_S


def test_kopf_does_not_kill_the_process_after_one_of_its_runs() -> None:
    assert kopf_settings().process.ultimate_exiting_timeout is None


async def test_kopf_waits_for_a_server_that_fills_its_cache(bench: Bench, loops: Loops) -> None:
    api = ApiServer([{"metadata": {"name": "kimi", "namespace": "llm", "uid": "u"}}])
    api.busy = 2
    async with served(api) as url:
        run = asyncio.create_task(watching(loops, bench, url))
        try:
            async with asyncio.timeout(60):
                await api.watched.wait()
            assert not run.done()
            assert (len(loops), api.busy) == (1, 0)
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)


async def test_kopf_begins_anew_after_an_error_in_a_watch(bench: Bench, loops: Loops) -> None:
    """An API server that loses its etcd for a moment says 500 in the middle of a stream."""
    api = ApiServer([{"metadata": {"name": "kimi", "namespace": "llm", "uid": "u"}}])
    api.first_watch_fails = True
    async with served(api) as url:
        run = asyncio.create_task(watching(loops, bench, url))
        try:
            async with asyncio.timeout(60):
                await api.watched.wait()
            assert not run.done()
            assert len(loops) == 1
            assert api.lists.isdisjoint({each.plural for each in NOT_FOR_ALL})
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
