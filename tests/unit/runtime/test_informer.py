"""An informer lists, follows, and lists again; whatever fails is begun anew."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import structlog

from fathom.adapters.ports import KubeError, WatchEvent
from fathom.cluster.kinds import POD, POD_MONITOR, SERVICE, Kind, ObjectKey, ServedApis
from fathom.runtime.child_cache import ChildCache
from fathom.runtime.informer import Pace, informed
from support.fake_kube import FakeKube
from support.loop_harness import ManualClock
from support.waiting import until

KIMI = ObjectKey("llm", "kimi")
LABELS = {"fathom.dev/name": "kimi"}


def child(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "llm", "labels": LABELS}, **more}


class _Brief(FakeKube):
    """Its streams tell what was missed, and end."""

    def watch(
        self, kind: Kind, namespace: str, selector: str, since: str, for_s: float
    ) -> AsyncGenerator[WatchEvent]:
        return super().watch(kind, namespace, selector, since, min(for_s, 0.0))


class Watched:
    """A cache that informers keep, over the fake API server."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        self.children = ChildCache(ManualClock())
        self.woken: list[ObjectKey] = []
        self.kinds: frozenset[tuple[str, str]] = frozenset()
        self.pace = Pace(reopen_s=0.01, shortest_backoff_s=0.02)

    async def served(self) -> ServedApis:
        return ServedApis(kinds=self.kinds)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Everything was listed when the block begins."""
        watching = informed(self.children, self.kube, self.served, self.woken.append, self.pace)
        async with watching as listed:
            await asyncio.wait([listed])
            yield

    def names(self, kind: Kind = POD) -> list[str] | None:
        found: Any = self.children.of(kind, KIMI)
        return None if found is None else [each["metadata"]["name"] for each in found]


@pytest.fixture
def watched() -> Watched:
    return Watched()


async def test_all_is_known_when_it_begins(watched: Watched) -> None:
    watched.kube.put(POD, child("a"))
    watched.kube.put(POD, {"metadata": {"name": "stranger", "namespace": "llm"}})
    async with watched.run():
        assert watched.names() == ["a"]
        assert watched.names(SERVICE) == []
        assert watched.woken == [KIMI]


async def test_what_happens_is_known_and_wakes(watched: Watched) -> None:
    async with watched.run():
        watched.kube.put(POD, child("a"))
        await until(lambda: watched.names() == ["a"], "a to be known")
        assert watched.woken
        watched.woken.clear()
        watched.kube.put(POD, child("a", spec={"nodeName": "n"}))
        await until(lambda: bool(watched.woken), "somebody to be woken")
        watched.woken.clear()
        watched.kube.remove(POD, "llm", "a")
        await until(lambda: watched.names() == [], "nothing to be known any more")
        assert watched.woken == [KIMI]


async def test_what_was_noted_wakes_nobody(watched: Watched) -> None:
    """A loop knows what it wrote itself, and looks again where a next step may follow from it."""
    async with watched.run():
        made = await watched.kube.create(SERVICE, child("kimi", apiVersion="v1", kind="Service"))
        watched.children.note(SERVICE, made)
        assert watched.names(SERVICE) == ["kimi"]
        watched.kube.put(SERVICE, child("later"))
        await until(lambda: watched.names(SERVICE) == ["kimi", "later"], "both to be known")
        assert watched.woken == [KIMI]


async def test_what_loses_its_label_is_gone(watched: Watched) -> None:
    watched.kube.put(POD, child("a"))
    async with watched.run():
        watched.kube.put(POD, {"metadata": {"name": "a", "namespace": "llm"}})
        await until(lambda: watched.names() == [], "nothing to be known any more")


async def test_a_watch_that_fails_is_begun_anew_with_a_list(watched: Watched) -> None:
    failures = [KubeError(500, "etcdserver: leader changed"), KubeError(410, "too old")]

    def fail(verb: str, kind: Kind) -> KubeError | None:
        return failures.pop() if failures and (verb, kind) == ("watch", POD) else None

    watched.kube.fail = fail
    async with watched.run():
        await until(lambda: not failures, "the failures to be over")
        watched.kube.put(POD, child("a"))
        await until(lambda: watched.names() == ["a"], "a to be known")


async def test_a_kind_that_cannot_be_watched_is_told_of_once(watched: Watched) -> None:
    tries = Counter[Kind]()

    def fail(verb: str, kind: Kind) -> KubeError | None:
        if verb != "watch":
            return None
        tries[kind] += 1
        return KubeError(500, "etcdserver: leader changed") if kind == POD else None

    watched.kube.fail = fail
    with structlog.testing.capture_logs() as logs:
        async with watched.run():
            await until(lambda: tries[POD] == 3, "the third watch to fail")
    assert [(each["event"], each["kind"]) for each in logs] == [("children not watched", "pods")]


async def test_versions_that_are_always_too_old_are_not_listed_as_fast_as_can_be(
    watched: Watched,
) -> None:
    watched.pace = Pace(relist_s=0.01, reopen_s=0.001, shortest_backoff_s=3600)
    watches = Counter[Kind]()

    def fail(verb: str, kind: Kind) -> KubeError | None:
        if verb != "watch":
            return None
        watches[kind] += 1
        return KubeError(410, "too old resource version") if kind == POD else None

    watched.kube.fail = fail
    async with watched.run():
        await until(lambda: watches[POD] == 2, "the second watch to be refused")
        others = watches[SERVICE]
        await until(lambda: watches[SERVICE] >= others + 10, "another kind to be watched on")
        assert watches[POD] == 2


async def test_streams_that_end_at_once_are_opened_later_each_time(watched: Watched) -> None:
    watched.pace = Pace(relist_s=3600, reopen_s=0.001, shortest_backoff_s=0.001)
    asked_at_s: list[float] = []

    def note(verb: str, kind: Kind) -> None:
        if (verb, kind) == ("watch", POD):
            asked_at_s.append(asyncio.get_running_loop().time())

    watched.kube = _Brief()
    watched.kube.fail = note
    async with watched.run():
        await until(lambda: len(asked_at_s) >= 7, "the stream to be opened seven times")
        apart_s = [later - sooner for sooner, later in pairwise(asked_at_s)]
        assert all(each > 0.001 * 2**number for number, each in enumerate(apart_s))
        # What is told meanwhile comes with the next one.
        watched.kube.put(POD, child("a"))
        await until(lambda: watched.names() == ["a"], "a to be known")


async def test_a_kind_that_may_not_be_listed_holds_up_nothing(watched: Watched) -> None:
    def fail(_: str, kind: Kind) -> KubeError | None:
        return KubeError(403, "forbidden") if kind == SERVICE else None

    watched.kube.fail = fail
    async with watched.run():
        assert watched.names() == []
        assert watched.names(SERVICE) is None


async def test_what_no_api_server_sends_ends_no_informer(watched: Watched) -> None:
    broken = [RuntimeError("a bug of ours")]

    def fail(verb: str, kind: Kind) -> KubeError | None:
        if broken and (verb, kind) == ("watch", POD):
            raise broken.pop()
        return None

    watched.kube.fail = fail
    async with watched.run():
        await until(lambda: not broken, "the broken answers to be over")
        watched.kube.put(POD, child("a"))
        await until(lambda: watched.names() == ["a"], "a to be known")


async def test_a_lost_event_is_found_by_the_next_list(watched: Watched) -> None:
    watched.pace = replace(watched.pace, relist_s=0.3)
    watched.kube.put(POD, child("a"))
    async with watched.run():
        lose(watched.kube, lambda: watched.kube.remove(POD, "llm", "a"))
        assert watched.names() == ["a"]
        watched.woken.clear()
        await until(lambda: watched.names() == [], "nothing to be known any more")
        assert KIMI in watched.woken


async def test_an_api_that_is_not_served_is_not_asked_for(watched: Watched) -> None:
    asked: list[Kind] = []

    def note(_: str, kind: Kind) -> None:
        asked.append(kind)

    watched.kube.fail = note
    async with watched.run():
        assert POD_MONITOR not in asked
    watched.kinds = frozenset({(POD_MONITOR.api_version, POD_MONITOR.kind)})
    async with watched.run():
        assert POD_MONITOR in asked
        assert watched.names(POD_MONITOR) == []


def lose(kube: FakeKube, change: Callable[[], None]) -> None:
    """Something happens, and no stream tells of it."""
    change()
    kube.forget_last()
