"""A resource whose creation no watch told of is found all the same."""

import asyncio
import copy
from collections.abc import AsyncIterator, Sequence

import pytest
import structlog

from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import RESOURCE_KINDS, SPECULATIVE_DEPLOYMENT, Kind, ObjectKey
from fathom.runtime.handlers import SWEEP_S, sweep, tell_what_is_refused
from fathom.runtime.loop_registry import Loops
from support.loop_harness import KEY, LoopHarness
from support.waiting import until


class Sweeping:
    """A sweep whose waits end when the test says so."""

    def __init__(self, harness: LoopHarness, loops: Loops, namespaces: Sequence[str]) -> None:
        self._due = asyncio.Semaphore(0)
        self._waiting = asyncio.Event()
        self.waits_s: list[float] = []
        self.task = asyncio.create_task(
            sweep(harness.kube, namespaces, loops, kinds=RESOURCE_KINDS, sleep=self._sleep)
        )

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
async def sweeping(harness: LoopHarness, loops: Loops) -> AsyncIterator[Sweeping]:
    sweeping = Sweeping(harness, loops, ())
    yield sweeping
    sweeping.task.cancel()


def put_another(harness: LoopHarness, namespace: str) -> ObjectKey:
    found = copy.deepcopy(harness.resource)
    found["metadata"] |= {"name": "other", "namespace": namespace, "uid": "other"}
    harness.kube.put(SPECULATIVE_DEPLOYMENT, found)
    return ObjectKey(namespace, "other")


async def test_a_resource_that_was_missed_gets_its_loop(
    harness: LoopHarness, loops: Loops, sweeping: Sweeping
) -> None:
    loops.seen(KEY)
    put_another(harness, "elsewhere")
    await sweeping.once()
    assert len(loops) == 2
    await sweeping.once()
    assert len(loops) == 2
    assert sweeping.waits_s == [SWEEP_S] * 3


async def test_a_server_that_does_not_answer_is_asked_again(
    harness: LoopHarness, loops: Loops, sweeping: Sweeping
) -> None:
    harness.kube.fail = lambda _verb, _kind: KubeError(503, "etcd has no leader")
    await sweeping.once()
    assert len(loops) == 0
    harness.kube.fail = lambda _verb, _kind: None
    await sweeping.once()
    assert len(loops) == 1


async def test_one_that_is_strange_hides_no_other(
    harness: LoopHarness, loops: Loops, sweeping: Sweeping
) -> None:
    other = put_another(harness, "elsewhere")
    strange = harness.kube.find(SPECULATIVE_DEPLOYMENT, other.name, other.namespace)
    strange["metadata"]["creationTimestamp"] = "the day before yesterday"
    harness.kube.put(SPECULATIVE_DEPLOYMENT, strange)
    await sweeping.once()
    assert len(loops) == 2


def unforeseen(_verb: str, _kind: Kind) -> KubeError | None:
    raise ValueError("what no adapter has foreseen")


async def test_a_sweep_that_fails_in_any_way_is_told_and_not_the_last_one(
    harness: LoopHarness, loops: Loops, sweeping: Sweeping
) -> None:
    harness.kube.fail = unforeseen
    with structlog.testing.capture_logs() as logs:
        await sweeping.once()
    assert [(each["event"], each["log_level"]) for each in logs] == [
        ("resources not listed", "error")
    ] * len(RESOURCE_KINDS)
    harness.kube.fail = lambda _verb, _kind: None
    await sweeping.once()
    assert len(loops) == 1


async def test_whatever_fails_in_one_namespace_the_next_is_asked_for(harness: LoopHarness) -> None:
    harness.kube.fail = unforeseen
    with structlog.testing.capture_logs() as logs:
        await tell_what_is_refused(harness.kube, ("llm", "c"), RESOURCE_KINDS)
    assert [each["namespace"] for each in logs] == ["llm", "c"] * len(RESOURCE_KINDS)


async def test_what_may_not_be_listed_is_told_with_what_to_do(
    harness: LoopHarness, loops: Loops
) -> None:
    harness.kube.fail = lambda _verb, _kind: KubeError(403, "cannot list")
    with structlog.testing.capture_logs() as at_once:
        await tell_what_is_refused(harness.kube, ("llm", "c"), RESOURCE_KINDS)
    sweeping = Sweeping(harness, loops, ("llm", "c"))
    with structlog.testing.capture_logs() as at_a_sweep:
        await sweeping.once()
    sweeping.task.cancel()
    for logs in (at_once, at_a_sweep):
        assert [each["namespace"] for each in logs] == ["llm", "c"] * len(RESOURCE_KINDS)
        assert "namespace c are not seen: this operator may not list" in logs[1]["event"]
        assert "`helm upgrade`" in logs[1]["event"]
        assert "the chart's `namespaces`" in logs[1]["event"]


async def test_of_all_namespaces_none_can_be_taken_out(harness: LoopHarness) -> None:
    harness.kube.fail = lambda _verb, _kind: KubeError(403, "cannot list")
    with structlog.testing.capture_logs() as logs:
        await tell_what_is_refused(harness.kube, (), RESOURCE_KINDS)
    assert "any namespace" in logs[0]["event"]
    assert "`namespaces`" not in logs[0]["event"]


async def test_a_server_that_does_not_answer_refuses_nothing(harness: LoopHarness) -> None:
    harness.kube.fail = lambda _verb, _kind: KubeError(0, "no answer")
    with structlog.testing.capture_logs() as logs:
        await tell_what_is_refused(harness.kube, ("llm",), RESOURCE_KINDS)
    assert logs == []


def is_shown(harness: LoopHarness) -> bool:
    labels = {"resource": KEY.kind.kind, "namespace": KEY.namespace, "name": KEY.name}
    registry = harness.world.telemetry.registry
    overdue_s = registry.get_sample_value("fathom_reconcile_overdue_seconds", labels)
    on_page = KEY in harness.world.shown
    assert on_page == (overdue_s is not None)
    return on_page


async def lose_its_loop(harness: LoopHarness, loops: Loops) -> None:
    """It is shown, and nobody looks after it any more who could find it gone."""
    loops.seen(KEY)
    await until(lambda: is_shown(harness), "it to be shown")
    await loops.stop()


async def test_what_went_while_it_had_no_loop_is_forgotten(
    harness: LoopHarness, loops: Loops, sweeping: Sweeping
) -> None:
    """Else it would be overdue for good."""
    await lose_its_loop(harness, loops)
    harness.kube.remove(SPECULATIVE_DEPLOYMENT, KEY.namespace, KEY.name)
    await sweeping.once()
    assert not is_shown(harness)


async def test_what_is_there_or_has_a_loop_is_not_forgotten(
    harness: LoopHarness, loops: Loops, sweeping: Sweeping
) -> None:
    await lose_its_loop(harness, loops)
    harness.metrics.asked = []
    await sweeping.once()
    assert len(loops) == 1
    assert is_shown(harness)
    await until(lambda: harness.metrics.asked, "a pass")
    harness.kube.remove(SPECULATIVE_DEPLOYMENT, KEY.namespace, KEY.name)
    await sweeping.once()
    assert len(loops) == 1  # which finds out by itself
    assert is_shown(harness)


async def test_what_a_sweep_could_not_see_is_not_forgotten(
    harness: LoopHarness, loops: Loops
) -> None:
    await lose_its_loop(harness, loops)
    harness.kube.remove(SPECULATIVE_DEPLOYMENT, KEY.namespace, KEY.name)
    elsewhere = Sweeping(harness, loops, ["elsewhere"])
    await elsewhere.once()
    elsewhere.task.cancel()
    assert is_shown(harness)
    harness.kube.fail = lambda _verb, _kind: KubeError(403, "cannot list")
    refused = Sweeping(harness, loops, [KEY.namespace, "elsewhere"])
    await refused.once()
    assert is_shown(harness)
    harness.kube.fail = lambda _verb, _kind: None
    await refused.once()
    refused.task.cancel()
    assert not is_shown(harness)


async def test_only_namespaces_that_are_watched_are_looked_into(
    harness: LoopHarness, loops: Loops
) -> None:
    put_another(harness, "elsewhere")
    sweeping = Sweeping(harness, loops, ["llm", "nowhere"])
    await sweeping.once()
    sweeping.task.cancel()
    assert len(loops) == 1
