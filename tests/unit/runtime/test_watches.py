"""A watch that fails is begun anew, and no loop ends with it; one that keeps failing ends all."""

import asyncio
from collections.abc import Sequence
from itertools import islice

import pytest
from kubernetes.aio.client import Configuration

from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import Kind
from fathom.cluster.manifest import Manifest
from fathom.runtime.handlers import (
    GIVES_UP_AFTER,
    LONGEST_BACKOFF_S,
    LONGEST_RETRY_S,
    again_and_again,
    kopf_settings,
    watch,
)
from fathom.runtime.loop_registry import Loops
from fathom.runtime.options import RunOptions
from support.api_server import NOT_FOR_ALL, ApiServer, served
from support.loop_harness import KEY, LoopHarness
from support.waiting import until


async def watching(
    loops: Loops, harness: LoopHarness, url: str, namespaces: Sequence[str] = ()
) -> None:
    options = RunOptions(namespaces=tuple(namespaces))
    await watch(loops, harness.kube, Configuration(host=url), options, heed_signals=lambda: None)


class LongLook:
    """A look at the resource that takes until the test says so, and whether it was cut off."""

    def __init__(self, harness: LoopHarness) -> None:
        self._get = harness.kube.get
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.cut_off = False
        harness.kube.get = self.get  # type: ignore[method-assign]

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        self.begun.set()
        try:
            # As a pass does, in a task of its own.
            await asyncio.gather(self.go_on.wait())
        except asyncio.CancelledError:
            self.cut_off = True
            raise
        return await self._get(kind, namespace, name)


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


async def test_kopf_waits_for_a_server_that_fills_its_cache(
    harness: LoopHarness, loops: Loops
) -> None:
    api = ApiServer([{"metadata": {"name": "kimi", "namespace": "llm", "uid": "u"}}])
    api.busy = 2
    async with served(api) as url:
        run = asyncio.create_task(watching(loops, harness, url))
        try:
            await api.watched.wait()
            assert not run.done()
            assert (len(loops), api.busy) == (1, 0)
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)


async def test_kopf_begins_anew_after_an_error_in_a_watch(
    harness: LoopHarness, loops: Loops
) -> None:
    """An API server that loses its etcd for a moment says 500 in the middle of a stream."""
    api = ApiServer([{"metadata": {"name": "kimi", "namespace": "llm", "uid": "u"}}])
    api.first_watch_fails = True
    async with served(api) as url:
        run = asyncio.create_task(watching(loops, harness, url))
        try:
            await api.watched.wait()
            assert not run.done()
            assert len(loops) == 1
            assert api.lists.isdisjoint({each.plural for each in NOT_FOR_ALL})
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)


async def test_an_error_in_a_watch_cuts_no_pass_off(harness: LoopHarness, loops: Loops) -> None:
    """Kopf ends whatever has begun since it runs, unless it is told what is not its own."""
    look = LongLook(harness)
    api = ApiServer([{"metadata": {"name": "kimi", "namespace": "llm", "uid": "u"}}])
    api.first_watch_fails = True
    namespaces = ("llm", "elsewhere")
    async with served(api) as url:
        run = asyncio.create_task(watching(loops, harness, url, namespaces))
        try:
            await until(lambda: api.watches[api.failed_in] == 2, "another watch")
            watchers = [each.get_name() for each in asyncio.all_tasks()]
            assert sum(each.startswith("watcher for ") for each in watchers) == 2  # those of now
            assert not look.cut_off
            look.go_on.set()
            await until(lambda: harness.metrics.asked, "a pass")
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)


async def test_when_the_watches_are_cancelled_all_loops_end_at_once(
    harness: LoopHarness, loops: Loops
) -> None:
    """As when the lease is lost: Kopf takes its time to end, and tells of more meanwhile."""
    look = LongLook(harness)
    api = ApiServer([{"metadata": {"name": "kimi", "namespace": "llm", "uid": "u"}}])
    async with served(api) as url:
        run = asyncio.create_task(watching(loops, harness, url))
        await look.begun.wait()
        run.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert look.cut_off
        await asyncio.gather(run, return_exceptions=True)
        loops.seen(KEY)
        assert len(loops) == 0


class _WorstError(BaseException):
    """What is caught nowhere."""


async def test_nobody_works_on_without_the_search_for_what_watches_missed(
    harness: LoopHarness, loops: Loops
) -> None:
    def fail(_verb: str, _kind: Kind) -> KubeError | None:
        raise _WorstError

    harness.kube.fail = fail
    async with served(ApiServer()) as url:
        with pytest.raises(_WorstError):
            await watching(loops, harness, url)
    assert loops.closed


async def test_a_namespace_that_is_forbidden_is_taken_up_once_it_is_not(
    harness: LoopHarness, loops: Loops
) -> None:
    metadata = {"name": "kimi", "uid": "u"}
    api = ApiServer([{"metadata": {**metadata, "namespace": each}} for each in ("llm", "c")])
    api.forbidden = {"c"}
    look = LongLook(harness)
    async with served(api) as url:
        run = asyncio.create_task(watching(loops, harness, url, ("llm", "c")))
        try:
            await until(lambda: api.refused > 1, "both looks to be refused")
            await api.watched.wait()
            assert len(loops) == 1
            api.forbidden = set()
            await until(lambda: len(loops) == 2, "the namespace to be taken up")
            assert not look.cut_off
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)


def test_what_kopf_asks_for_in_vain_it_asks_for_again_and_again() -> None:
    """Its end would be that of the watches of all other namespaces."""
    backoffs = kopf_settings().networking.error_backoffs
    assert not isinstance(backoffs, float)
    for _ in range(2):  # each request begins anew
        first, *more = islice(backoffs, 1000)
        assert first == 1
        assert len(more) == 999
        assert max(more) == LONGEST_RETRY_S
