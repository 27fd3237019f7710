"""At rest children are as watches have told; what is decided of pods rests on a real look."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    POD,
    SERVICE,
    SPECULATIVE_DEPLOYMENT,
    Kind,
    ObjectKey,
)
from fathom.cluster.manifest import Manifest
from fathom.engine.depth import DepthDocument, flat
from fathom.runtime.informer import informed
from fathom.runtime.ports import SHORTEST_SLEEP_S
from fathom.tuning.interface import Action, TuningDecision, TuningSnapshot
from support.loop_harness import KEY, LoopHarness, holding, moved
from support.waiting import until


class Reads:
    """What is asked of the API server."""

    def __init__(self, harness: LoopHarness) -> None:
        self.count: Counter[tuple[str, Kind]] = Counter()
        self._trouble = harness.kube.fail
        harness.kube.fail = self._note

    def _note(self, verb: str, kind: Kind) -> KubeError | None:
        self.count[verb, kind] += 1
        return self._trouble(verb, kind)


@asynccontextmanager
async def watches(harness: LoopHarness) -> AsyncIterator[list[ObjectKey]]:
    """Everything is known when the block begins. Yields whom watches have woken."""
    world, woken = harness.world, list[ObjectKey]()

    def wake(key: ObjectKey) -> None:
        woken.append(key)
        harness.loop.wake()

    async with informed(world.children, harness.kube, world.served, wake) as listed:
        await asyncio.wait([listed])
        yield woken


def moving(snapshot: TuningSnapshot) -> TuningDecision:
    """To another depth, once."""
    if snapshot.document is None or snapshot.document.generation > 1:
        return holding(snapshot)
    document = DepthDocument(generation=2, schedule=flat(5, snapshot.settings.max_batch))
    return moved(holding(snapshot), document, action=Action.MOVE)


async def later(harness: LoopHarness, seconds: float = 61) -> float | None:
    harness.clock.at_s += seconds
    return await harness.loop.tick()


@pytest.fixture
async def reads(harness: LoopHarness) -> Reads:
    return Reads(harness)


async def test_at_rest_a_look_reads_the_resource_and_nothing_else(
    harness: LoopHarness, reads: Reads
) -> None:
    async with watches(harness):
        reads.count.clear()
        for _ in range(3):
            await later(harness, 61)
            for feed in harness.world.children:
                feed.told(str(harness.kube.version))
        assert reads.count == {("get", SPECULATIVE_DEPLOYMENT): 3}


async def test_without_watches_all_is_read(harness: LoopHarness, reads: Reads) -> None:
    await later(harness)
    assert reads.count["list", POD] == 1
    assert reads.count["list", SERVICE] == 1


async def test_a_new_resource_is_made_without_lists() -> None:
    """They are the widest requests, and a sync may make a thousand resources."""
    harness = LoopHarness()
    reads = Reads(harness)
    async with watches(harness):
        reads.count.clear()
        await harness.loop.tick()
        assert harness.kube.names(DEPLOYMENT)
        # By name: what a former operator has left, and nothing else.
        assert {key: n for key, n in reads.count.items() if key[0] == "list"} == {
            ("list", CONFIG_MAP): 1
        }


async def test_of_a_new_resource_nothing_is_made_that_is_there_already() -> None:
    """Its watch has told of nothing."""
    harness = LoopHarness()
    await harness.until_ready()
    before = harness.kube.find(DEPLOYMENT, harness.kube.names(DEPLOYMENT)[0])
    harness.kube.find(SPECULATIVE_DEPLOYMENT, "kimi").pop("status")
    harness.kube.remove(CONFIG_MAP, "llm", "kimi-tuning")
    harness.restart()
    async with watches(harness):
        for feed in harness.world.children:
            feed.listed((), str(harness.kube.version))
        for _ in range(5):
            await later(harness, 61)
    assert harness.kube.names(DEPLOYMENT) == [before["metadata"]["name"]]
    after = harness.kube.find(DEPLOYMENT, before["metadata"]["name"])
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]


async def test_what_only_watches_miss_is_not_made_again(harness: LoopHarness, reads: Reads) -> None:
    """A Deployment that a late watch does not show yet is read by the name that its pods give."""
    async with watches(harness):
        hide(harness, DEPLOYMENT)
        reads.count.clear()
        assert await later(harness) > 0
        assert not harness.kube.writes
        await harness.loop.tick()
        assert reads.count["list", DEPLOYMENT] == 1
        assert not harness.kube.written("Deployment")


async def test_what_is_missing_is_made_after_a_look_at_pods(
    harness: LoopHarness, reads: Reads
) -> None:
    """No other kind is: making what is there, or a write of what is older, is refused."""
    async with watches(harness):
        harness.kube.remove(SERVICE, "llm", "kimi")
        for feed in harness.world.children:
            if feed.kind == SERVICE:
                feed.listed((), str(harness.kube.version))
        reads.count.clear()
        assert await later(harness) == 0
        await harness.loop.tick()
        lists = {kind for verb, kind in reads.count if verb == "list"}
        assert lists - {SERVICE} == {DEPLOYMENT, POD, CONFIG_MAP}
        assert reads.count["list", SERVICE] <= 1
        assert [each.name for each in harness.kube.written("Service")] == ["kimi"]


async def test_after_a_failure_nothing_is_taken_from_watches(harness: LoopHarness) -> None:
    async with watches(harness):
        works = harness.kube.fail
        harness.kube.fail = lambda verb, _: KubeError(500, "no.") if verb == "get" else None
        await later(harness)
        harness.kube.fail = works
        again = Reads(harness)
        await later(harness)
        assert again.count["list", POD] == 1


async def test_a_write_of_our_own_is_known_before_the_watch_tells(harness: LoopHarness) -> None:
    async with watches(harness):
        harness.edit({"replicas": 3})
        while not harness.kube.written("Deployment"):
            await harness.loop.tick()
        found: Any = harness.world.children.of(DEPLOYMENT, KEY)
        assert found is not None
        assert [each["spec"]["replicas"] for each in found] == [3]


async def test_a_depth_that_moves_wakes_nobody(harness: LoopHarness) -> None:
    """Its document and the pods' annotations come back as events, of which all is known."""
    async with watches(harness) as woken:
        await later(harness)
        woken.clear()
        harness.decide = moving
        assert await later(harness) == 30.0
        assert {each.kind for each in harness.kube.writes} >= {"ConfigMap", "Pod"}
        pod = harness.kube.names(POD)[0]
        for kind, name in ((CONFIG_MAP, "kimi-depth"), (POD, pod)):
            # An event is told after all that came before it.
            harness.kube.put(kind, harness.kube.find(kind, name))
            await until(lambda: woken, "somebody to be woken")
            assert woken == [KEY]
            woken.clear()


async def test_what_was_written_of_a_rollout_is_looked_at_again_at_once(
    harness: LoopHarness,
) -> None:
    async with watches(harness):
        harness.edit({"replicas": 3})
        delays_s = [await harness.loop.tick() for _ in range(2)]
        assert harness.kube.written("Deployment")
        # The first look is the one at the API server itself.
        assert delays_s == [0, SHORTEST_SLEEP_S]


async def test_so_is_a_step_that_was_only_recorded(harness: LoopHarness) -> None:
    async with watches(harness):
        harness.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
        assert await harness.loop.tick() == SHORTEST_SLEEP_S
        assert not harness.kube.written("Deployment")
        assert harness.kube.written("ConfigMap")


async def test_an_edit_is_looked_at_where_it_can_be_acted_upon_at_once(
    harness: LoopHarness,
) -> None:
    """What watches have told would not do for its writes: that look would be one too many."""
    async with watches(harness):
        await later(harness)
        harness.edit({"replicas": 3})
        metadata = harness.resource["metadata"]
        assert harness.loop.told(metadata["generation"], {}, metadata["resourceVersion"])
        await harness.loop.tick()
        assert harness.kube.written("Deployment")


async def test_so_is_one_that_comes_during_a_look(harness: LoopHarness) -> None:
    read = harness.kube.get

    async def edited_meanwhile(kind: Kind, namespace: str, name: str) -> Manifest | None:
        found = await read(kind, namespace, name)
        harness.kube.get = read  # type: ignore[method-assign]
        harness.edit({"replicas": 3})
        metadata = harness.resource["metadata"]
        harness.loop.told(metadata["generation"], {}, metadata["resourceVersion"])
        return found

    async with watches(harness):
        harness.kube.get = edited_meanwhile  # type: ignore[method-assign]
        await later(harness)
        await harness.loop.tick()
        assert harness.kube.written("Deployment")


async def test_what_waits_for_a_finalizer_is_not_deleted_twice_a_second(
    harness: LoopHarness,
) -> None:
    """The API server takes each deletion, and nothing goes."""
    ours = harness.kube.all_of(DEPLOYMENT)[0]["metadata"]
    metadata = {
        **{key: ours[key] for key in ("namespace", "labels", "ownerReferences")},
        "name": "kimi-fetch-old",
        "finalizers": ["example.com/audit"],
        "deletionTimestamp": "2027-01-15T08:00:00Z",
    }
    harness.kube.put(JOB, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata})

    async def waits(*_: object) -> None:
        pass

    harness.kube.delete = waits  # type: ignore[method-assign]
    harness.loop.wake()
    assert await harness.loop.tick() == 30.0


async def test_a_status_of_our_own_wakes_nobody(harness: LoopHarness) -> None:
    harness.edit({"speculation.tokens": 2})
    await later(harness)
    assert harness.kube.written("SpeculativeDeployment")
    metadata = harness.resource["metadata"]
    generation, version = metadata["generation"], metadata["resourceVersion"]
    while harness.loop.stale:
        await later(harness)
    assert not harness.loop.told(generation, {}, version)
    assert not harness.loop.stale
    harness.loop.told(generation, {}, str(int(version) + 1))
    assert harness.loop.stale


async def test_what_is_refused_for_good_costs_no_look_at_each_pass(harness: LoopHarness) -> None:
    def refuse(verb: str, kind: Kind) -> KubeError | None:
        return KubeError(403, "quota") if (verb, kind) == ("create", SERVICE) else None

    async with watches(harness):
        harness.kube.remove(SERVICE, "llm", "kimi")
        hide(harness, SERVICE)
        harness.kube.fail = refuse
        reads = Reads(harness)
        for _ in range(6):
            harness.loop.wake()
            await later(harness, 0.01)
        assert reads.count["create", SERVICE] == 1
        assert reads.count["list", POD] == 1


def hide(harness: LoopHarness, kind: Kind) -> None:
    """As a watch that has not yet told of anything of this kind."""
    for feed in harness.world.children:
        if feed.kind == kind:
            feed.listed((), str(harness.kube.version))
