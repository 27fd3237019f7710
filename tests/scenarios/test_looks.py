"""At rest children are as watches have told; what is decided of pods rests on a real look."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fathom.adapters.ports import KubeError
from fathom.core.cluster.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    POD,
    SERVICE,
    SPECULATIVE_DEPLOYMENT,
    Kind,
    ObjectKey,
)
from fathom.core.cluster.manifest import Manifest
from fathom.engine.depth import DepthDocument, flat
from fathom.runtime.informer import informed
from fathom.runtime.loop import SHORTEST_SLEEP_S
from fathom.tuning.interface import Action, TuningDecision, TuningSnapshot
from support.bench import KEY, Bench, holding, moved
from support.waiting import until


class Reads:
    """What is asked of the API server."""

    def __init__(self, bench: Bench) -> None:
        self.count: Counter[tuple[str, Kind]] = Counter()
        self._trouble = bench.kube.fail
        bench.kube.fail = self._note

    def _note(self, verb: str, kind: Kind) -> KubeError | None:
        self.count[verb, kind] += 1
        return self._trouble(verb, kind)


@asynccontextmanager
async def watches(bench: Bench) -> AsyncIterator[list[ObjectKey]]:
    """Everything is known when the block begins. Yields whom watches have woken."""
    world, woken = bench.world, list[ObjectKey]()

    def wake(key: ObjectKey) -> None:
        woken.append(key)
        bench.loop.wake()

    async with informed(world.children, bench.kube, world.served, wake) as listed:
        await asyncio.wait([listed])
        yield woken


def moving(snapshot: TuningSnapshot) -> TuningDecision:
    """To another depth, once."""
    if snapshot.document is None or snapshot.document.generation > 1:
        return holding(snapshot)
    document = DepthDocument(2, flat(5, snapshot.settings.max_batch))
    return moved(holding(snapshot), document, action=Action.MOVE)


async def later(bench: Bench, seconds: float = 61) -> float | None:
    bench.clock.at_s += seconds
    return await bench.loop.tick()


@pytest.fixture
async def reads(bench: Bench) -> Reads:
    return Reads(bench)


async def test_at_rest_a_look_reads_the_resource_and_nothing_else(
    bench: Bench, reads: Reads
) -> None:
    async with watches(bench):
        reads.count.clear()
        for _ in range(3):
            await later(bench, 61)
            for feed in bench.world.children:
                feed.told(str(bench.kube.version))
        assert reads.count == {("get", SPECULATIVE_DEPLOYMENT): 3}


async def test_without_watches_all_is_read(bench: Bench, reads: Reads) -> None:
    await later(bench)
    assert reads.count["list", POD] == 1
    assert reads.count["list", SERVICE] == 1


async def test_a_new_resource_is_made_without_lists() -> None:
    """They are the widest requests, and a sync may make a thousand resources."""
    bench = Bench()
    reads = Reads(bench)
    async with watches(bench):
        reads.count.clear()
        await bench.loop.tick()
        assert bench.kube.names(DEPLOYMENT)
        # By name: what a former operator has left, and nothing else.
        assert {key: n for key, n in reads.count.items() if key[0] == "list"} == {
            ("list", CONFIG_MAP): 1
        }


async def test_of_a_new_resource_nothing_is_made_that_is_there_already() -> None:
    """Its watch has told of nothing."""
    bench = Bench()
    await bench.until_ready()
    before = bench.kube.find(DEPLOYMENT, bench.kube.names(DEPLOYMENT)[0])
    bench.kube.find(SPECULATIVE_DEPLOYMENT, "kimi").pop("status")
    bench.kube.remove(CONFIG_MAP, "llm", "kimi-tuning")
    bench.restart()
    async with watches(bench):
        for feed in bench.world.children:
            feed.listed((), str(bench.kube.version))
        for _ in range(5):
            await later(bench, 61)
    assert bench.kube.names(DEPLOYMENT) == [before["metadata"]["name"]]
    after = bench.kube.find(DEPLOYMENT, before["metadata"]["name"])
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]


async def test_what_only_watches_miss_is_not_made_again(bench: Bench, reads: Reads) -> None:
    """A Deployment that a late watch does not show yet: another one would be refused, or worse."""
    async with watches(bench):
        hide(bench, DEPLOYMENT)
        reads.count.clear()
        assert await later(bench) == 0
        assert not bench.kube.writes
        await bench.loop.tick()
        assert reads.count["list", DEPLOYMENT] == 1
        assert not bench.kube.written("Deployment")


async def test_what_is_missing_is_made_after_a_look_at_pods(bench: Bench, reads: Reads) -> None:
    """No other kind is: making what is there, or a write of what is older, is refused."""
    async with watches(bench):
        bench.kube.remove(SERVICE, "llm", "kimi")
        for feed in bench.world.children:
            if feed.kind == SERVICE:
                feed.listed((), str(bench.kube.version))
        reads.count.clear()
        assert await later(bench) == 0
        await bench.loop.tick()
        lists = {kind for verb, kind in reads.count if verb == "list"}
        assert lists - {SERVICE} == {DEPLOYMENT, POD, CONFIG_MAP}
        assert reads.count["list", SERVICE] <= 1
        assert [each.name for each in bench.kube.written("Service")] == ["kimi"]


async def test_after_a_failure_nothing_is_taken_from_watches(bench: Bench) -> None:
    async with watches(bench):
        works = bench.kube.fail
        bench.kube.fail = lambda verb, _: KubeError(500, "no.") if verb == "get" else None
        await later(bench)
        bench.kube.fail = works
        again = Reads(bench)
        await later(bench)
        assert again.count["list", POD] == 1


async def test_a_write_of_our_own_is_known_before_the_watch_tells(bench: Bench) -> None:
    async with watches(bench):
        bench.edit({"replicas": 3})
        while not bench.kube.written("Deployment"):
            await bench.loop.tick()
        found: Any = bench.world.children.of(DEPLOYMENT, KEY)
        assert found is not None
        assert [each["spec"]["replicas"] for each in found] == [3]


async def test_a_depth_that_moves_wakes_nobody(bench: Bench) -> None:
    """Its document and the pods' annotations come back as events, of which all is known."""
    async with watches(bench) as woken:
        await later(bench)
        woken.clear()
        bench.decide = moving
        assert await later(bench) == 30.0
        assert {each.kind for each in bench.kube.writes} >= {"ConfigMap", "Pod"}
        pod = bench.kube.names(POD)[0]
        for kind, name in ((CONFIG_MAP, "kimi-depth"), (POD, pod)):
            # An event is told after all that came before it.
            bench.kube.put(kind, bench.kube.find(kind, name))
            await until(lambda: woken, "somebody to be woken")
            assert woken == [KEY]
            woken.clear()


async def test_what_was_written_of_a_rollout_is_looked_at_again_at_once(bench: Bench) -> None:
    async with watches(bench):
        bench.edit({"replicas": 3})
        delays_s = [await bench.loop.tick() for _ in range(2)]
        assert bench.kube.written("Deployment")
        # The first look is the one at the API server itself.
        assert delays_s == [0, SHORTEST_SLEEP_S]


async def test_so_is_a_step_that_was_only_recorded(bench: Bench) -> None:
    async with watches(bench):
        bench.edit({"engine.image": "vllm/vllm-openai:v0.32.1"})
        assert await bench.loop.tick() == SHORTEST_SLEEP_S
        assert not bench.kube.written("Deployment")
        assert bench.kube.written("ConfigMap")


async def test_an_edit_is_looked_at_where_it_can_be_acted_upon_at_once(bench: Bench) -> None:
    """What watches have told would not do for its writes: that look would be one too many."""
    async with watches(bench):
        await later(bench)
        bench.edit({"replicas": 3})
        metadata = bench.resource["metadata"]
        assert bench.loop.told(metadata["generation"], {}, metadata["resourceVersion"])
        await bench.loop.tick()
        assert bench.kube.written("Deployment")


async def test_so_is_one_that_comes_during_a_look(bench: Bench) -> None:
    read = bench.kube.get

    async def edited_meanwhile(kind: Kind, namespace: str, name: str) -> Manifest | None:
        found = await read(kind, namespace, name)
        bench.kube.get = read  # type: ignore[method-assign]
        bench.edit({"replicas": 3})
        metadata = bench.resource["metadata"]
        bench.loop.told(metadata["generation"], {}, metadata["resourceVersion"])
        return found

    async with watches(bench):
        bench.kube.get = edited_meanwhile  # type: ignore[method-assign]
        await later(bench)
        await bench.loop.tick()
        assert bench.kube.written("Deployment")


async def test_what_waits_for_a_finalizer_is_not_deleted_twice_a_second(bench: Bench) -> None:
    """The API server takes each deletion, and nothing goes."""
    ours = bench.kube.all_of(DEPLOYMENT)[0]["metadata"]
    metadata = {
        **{key: ours[key] for key in ("namespace", "labels", "ownerReferences")},
        "name": "kimi-fetch-old",
        "finalizers": ["example.com/audit"],
        "deletionTimestamp": "2027-01-15T08:00:00Z",
    }
    bench.kube.put(JOB, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata})

    async def waits(*_: object) -> None:
        pass

    bench.kube.delete = waits  # type: ignore[method-assign]
    bench.loop.wake()
    assert await bench.loop.tick() == 30.0


async def test_a_status_of_our_own_wakes_nobody(bench: Bench) -> None:
    bench.edit({"speculation.tokens": 2})
    await later(bench)
    assert bench.kube.written("SpeculativeDeployment")
    metadata = bench.resource["metadata"]
    generation, version = metadata["generation"], metadata["resourceVersion"]
    while bench.loop.stale:
        await later(bench)
    assert not bench.loop.told(generation, {}, version)
    assert not bench.loop.stale
    bench.loop.told(generation, {}, str(int(version) + 1))
    assert bench.loop.stale


async def test_what_is_refused_for_good_costs_no_look_at_each_pass(bench: Bench) -> None:
    def refuse(verb: str, kind: Kind) -> KubeError | None:
        return KubeError(403, "quota") if (verb, kind) == ("create", SERVICE) else None

    async with watches(bench):
        bench.kube.remove(SERVICE, "llm", "kimi")
        hide(bench, SERVICE)
        bench.kube.fail = refuse
        reads = Reads(bench)
        for _ in range(6):
            bench.loop.wake()
            await later(bench, 0.01)
        assert reads.count["create", SERVICE] == 1
        assert reads.count["list", POD] == 1


def hide(bench: Bench, kind: Kind) -> None:
    """As a watch that has not yet told of anything of this kind."""
    for feed in bench.world.children:
        if feed.kind == kind:
            feed.listed((), str(bench.kube.version))
