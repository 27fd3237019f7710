"""Pods that find no node: the nodes are looked at then, and only then."""

import asyncio

from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import NODE, POD, SERVICE, Kind
from fathom.cluster.observed import ObservedNode
from fathom.runtime.caches import LASTS_S, NodeCache
from support.loop_harness import LoopHarness, ManualClock

SCHEDULER_SAYS = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity."
UNSCHEDULED = [
    {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": SCHEDULER_SAYS,
    }
]


class Asked:
    """Notes lists of nodes; refuses them on request."""

    def __init__(self) -> None:
        self.times = 0
        self.refused: KubeError | None = None

    def __call__(self, verb: str, kind: Kind) -> KubeError | None:
        if (verb, kind) != ("list", NODE):
            return None
        self.times += 1
        return self.refused


def unplaced() -> tuple[LoopHarness, Asked]:
    harness, asked = LoopHarness(), Asked()
    harness.kube.fail = asked
    harness.kube.put(
        NODE,
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": "a",
                "namespace": "",
                "labels": {"nvidia.com/gpu.product": "NVIDIA-H200"},
            },
        },
    )
    return harness, asked


async def start(harness: LoopHarness) -> None:
    await harness.tick()
    harness.play_controllers(ready=False)
    (pod,) = harness.kube.all_of(POD)
    harness.set_ready(pod["metadata"]["name"], ready=False, phase="Pending", conditions=UNSCHEDULED)
    harness.loop.wake()
    await harness.tick()


async def lost(harness: LoopHarness) -> None:
    """One replica dies, and the pod that takes its part finds no node."""
    harness.lose_pod(phase="Pending", conditions=UNSCHEDULED)
    await harness.tick()


async def test_the_status_says_what_the_nodes_have_instead() -> None:
    harness, _ = unplaced()
    await start(harness)
    degraded = harness.condition("Degraded")
    assert degraded["reason"] == "PodUnschedulable"
    assert (
        "0 nodes carry nvidia.com/gpu.product=NVIDIA-GB200; 1 carries NVIDIA-H200: "
        in (degraded["message"])
    )


async def test_a_spec_that_is_refused_does_not_hide_why_what_served_is_away(
    harness: LoopHarness,
) -> None:
    """What to fix, and what is missing, are two things."""
    await lost(harness)
    harness.edit({"draft.id": ""})
    await harness.tick()
    degraded = harness.condition("Degraded")
    assert degraded["reason"] == "InvalidSpec"
    assert SCHEDULER_SAYS in degraded["message"]


async def test_nor_does_what_the_api_server_refuses(harness: LoopHarness) -> None:
    await lost(harness)
    harness.kube.fail = lambda verb, kind: (
        KubeError(403, "no Services") if (verb, kind) == ("create", SERVICE) else None
    )
    harness.kube.remove(SERVICE, "llm", "kimi")
    await harness.tick()
    degraded = harness.condition("Degraded")
    assert degraded["reason"] == "ChildRefused"
    assert SCHEDULER_SAYS in degraded["message"]


async def test_without_the_right_to_see_nodes_the_schedulers_words_must_do() -> None:
    harness, asked = unplaced()
    asked.refused = KubeError(403, "nodes is forbidden")
    await start(harness)
    assert asked.times == 1
    assert SCHEDULER_SAYS in harness.condition("Degraded")["message"]


async def test_nodes_are_not_looked_at_while_every_pod_has_one() -> None:
    harness, asked = unplaced()
    await harness.until_ready()
    await harness.run_for(600)
    assert asked.times == 0


async def test_a_list_of_nodes_that_fails_keeps_nobody_from_working() -> None:
    harness, asked = unplaced()
    asked.refused = KubeError(0, "no answer within 15 s")
    await start(harness)
    assert not harness.loop.failing
    assert SCHEDULER_SAYS in harness.condition("Degraded")["message"]


async def test_of_all_that_ask_one_reads_and_a_failure_is_not_tried_again_at_once() -> None:
    clock, asked = ManualClock(), 0

    async def read() -> tuple[ObservedNode, ...]:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        raise KubeError(504, "the server was too slow")

    nodes = NodeCache(read, clock)
    assert set(await asyncio.gather(*(nodes.get() for _ in range(50)))) == {()}
    assert asked == 1
    clock.at_s += LASTS_S
    await nodes.get()
    assert asked == 2


async def test_nodes_that_cannot_be_read_are_as_they_were() -> None:
    harness, asked = unplaced()
    await start(harness)
    before = harness.condition("Degraded")
    asked.refused = KubeError(500, "etcd has no leader")
    await harness.run_for(300)
    assert asked.times > 1
    assert harness.condition("Degraded") == before
