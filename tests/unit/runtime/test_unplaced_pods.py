"""Pods that find no node: the nodes are looked at then, and only then."""

from fathom.adapters.ports import KubeError
from fathom.core.cluster.kinds import NODE, POD, Kind
from support.bench import Bench

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
        self.refused = False

    def __call__(self, verb: str, kind: Kind) -> KubeError | None:
        if (verb, kind) != ("list", NODE):
            return None
        self.times += 1
        return KubeError(403, "nodes is forbidden") if self.refused else None


def unplaced() -> tuple[Bench, Asked]:
    bench, asked = Bench(), Asked()
    bench.kube.fail = asked
    bench.kube.put(
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
    return bench, asked


async def start(bench: Bench) -> None:
    await bench.tick()
    bench.play_controllers(ready=False)
    (pod,) = bench.kube.all_of(POD)
    bench.set_ready(pod["metadata"]["name"], ready=False, phase="Pending", conditions=UNSCHEDULED)
    bench.loop.wake()
    await bench.tick()


async def test_the_status_says_what_the_nodes_have_instead() -> None:
    bench, _ = unplaced()
    await start(bench)
    degraded = bench.condition("Degraded")
    assert degraded["reason"] == "PodUnschedulable"
    assert (
        "0 nodes carry nvidia.com/gpu.product=NVIDIA-GB200; 1 carries NVIDIA-H200: "
        in (degraded["message"])
    )


async def test_without_the_right_to_see_nodes_the_schedulers_words_must_do() -> None:
    bench, asked = unplaced()
    asked.refused = True
    await start(bench)
    assert asked.times == 1
    assert SCHEDULER_SAYS in bench.condition("Degraded")["message"]


async def test_nodes_are_not_looked_at_while_every_pod_has_one() -> None:
    bench, asked = unplaced()
    await bench.until_ready()
    await bench.run_for(600)
    assert asked.times == 0
