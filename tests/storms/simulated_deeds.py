"""What can happen in the simulator alone: to nodes, to places for pods, to builds of the operator.

It takes a cluster that is played, or times that nobody waits for.
"""

import asyncio
import copy
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from fathom.api import names
from fathom.core.cluster.kinds import CONFIG_MAP, POD_DISRUPTION_BUDGET, SERVICE
from storms.cluster import BAD_IMAGES
from storms.deeds import DEEDS, deed, node_away
from storms.history import BUILDS

if TYPE_CHECKING:
    from storms.storm import Storm

__all__ = ["DEEDS", "FIGHTS", "HINDERS"]

FIGHTS: Final = frozenset({"hand changes a Service", "tool adds to selectors"})
"""What changes an object back again and again."""
HINDERS: Final = frozenset(
    {
        "API server answers with errors",
        "API server hangs",
        "admission refuses",
        "answers are lost",
        "clock jumps",
        "hand changes a Service",
        "hand deletes a child",
        "namespace ends",
        "operator dies",
        "operator is another build",
        "operator is paused",
        "record of a veto is lost",
        "reads are stale",
        "tool adds to selectors",
        "user deletes and creates again",
        "watch events are lost",
        "watch events come twice and late",
        "watches are answered 410",
        "watches are silent",
        "watches end",
        "watches end at once",
    }
)
"""What keeps an operator from writing, or from knowing what it has to."""
# -- the user


@deed("user asks for a bad image", image=list(BAD_IMAGES), for_s=(300.0, 900.0), weight=4)
async def _bad_image(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """And puts the one before back after a while."""
    async with _bad(storm, with_["image"]):
        await asyncio.sleep(with_["for_s"])


@deed("record of a veto is lost", image=list(BAD_IMAGES), for_s=(600.0, 1200.0), weight=2)
async def _veto_lost(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """The canary failed, and failed again when the user had asked for it once more."""
    async with _bad(storm, with_["image"]):
        try:
            async with asyncio.timeout(with_["for_s"]):
                await _given_up(storm)
                await _retry(storm, {})
                await asyncio.sleep(30.0)
                await _given_up(storm)
                storm.objects.remove(CONFIG_MAP, storm.namespace, f"{storm.name}-tuning")
                storm.leader().kill()
                await asyncio.Event().wait()
        except TimeoutError:
            pass


@asynccontextmanager
async def _bad(storm: "Storm", image: str) -> AsyncIterator[None]:
    """The user asks for an image until the end of the block."""
    before = storm.spec().get("engine", {}).get("image")
    if before not in BAD_IMAGES and storm.serves_as_asked():
        storm.edit({"engine.image": image})
        yield
        if storm.spec().get("engine", {}).get("image") == image:
            storm.edit({"engine.image": before})
    else:
        yield


async def _given_up(storm: "Storm") -> None:
    while storm.rollout().get("stage") != "RolledBack":
        await asyncio.sleep(5.0)


@deed(
    "user sets rollout bounds",
    bounds=[[1, 0], [0, 1], [1, 1], [2, 0]],
    room=["TakeReplica", "Wait"],
    minutes=[0, 1, 10],
    weight=2,
)
async def _bounds(storm: "Storm", with_: Mapping[str, Any]) -> None:
    unavailable, surge = with_["bounds"]
    storm.edit(
        {
            "rollout.maxUnavailable": unavailable,
            "rollout.maxSurge": surge,
            "rollout.whenNoCapacity": with_["room"],
            "rollout.capacityMinutes": with_["minutes"],
        }
    )


@deed("user pauses by annotation", for_s=(30.0, 400.0))
async def _paused(storm: "Storm", with_: Mapping[str, Any]) -> None:
    storm.annotate({names.ANNOTATION_PAUSED: "for a while"})
    await asyncio.sleep(with_["for_s"])
    storm.annotate({names.ANNOTATION_PAUSED: None})


@deed("user retries")
async def _retry(storm: "Storm", _: Mapping[str, Any]) -> None:
    storm.annotate({names.ANNOTATION_RETRY_ROLLOUT: f"at {storm.loop.time():.0f}"})


@deed("user asks for what is offered", weight=2)
async def _granted(storm: "Storm", _: Mapping[str, Any]) -> None:
    offered = storm.rollout()
    if offered.get("stage") == "Offered":
        storm.granted()
        storm.annotate({names.ANNOTATION_ROLLOUT: offered["revision"]})


# -- other hands


@deed("tool adds to selectors", times=(1, 12))
async def _selectors(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """As one that shifts traffic between versions does, with a field manager of its own."""
    for _ in range(with_["times"]):
        for kind, path in ((SERVICE, ()), (POD_DISRUPTION_BUDGET, ("matchLabels",))):
            for found in storm.children(kind):
                body = copy.deepcopy(found)
                selector = body["spec"]["selector"]
                for part in path:
                    selector = selector[part]
                selector["rollouts-pod-template-hash"] = "6c4f"
                if body != found:
                    storm.objects.put(kind, body)
        await asyncio.sleep(5.0)


@deed("autoscaler scales", low=(1, 2), high=(2, 4), for_s=(60.0, 300.0))
async def _autoscaled(storm: "Storm", with_: Mapping[str, Any]) -> None:
    chance = random.Random(f"scales-{with_}")
    end_s = storm.loop.time() + with_["for_s"]
    while storm.loop.time() < end_s:
        storm.edit({"replicas": chance.randint(with_["low"], with_["high"])})
        await asyncio.sleep(15.0)


# -- the operator


@deed("operator is another build", build=(0, BUILDS - 1), all=[True, True, False], weight=4)
async def _build(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """Up or down, in a version or between two; not all at once in a rollout under way."""
    for each in storm.operators if with_["all"] else [storm.leader()]:
        each.build = with_["build"]
        each.kill()


# -- nodes, and places on them


@deed("node dies and its pods stay", for_s=(60.0, 900.0), weight=2)
async def _silent(storm: "Storm", with_: Mapping[str, Any]) -> None:
    cluster = storm.cluster
    await node_away(storm, with_["for_s"], cluster.silence_node, cluster.hear_node)


@deed("node is drained", for_s=(60.0, 600.0), weight=2)
async def _drained(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """It is cordoned, and its pod leaves as soon as the budget allows."""
    for place, _, container in storm.cluster.serving()[-1:]:
        node, end_s = container.node or "", storm.loop.time() + with_["for_s"]
        if not storm.cluster.nodes.get(node):
            return
        storm.cluster.nodes[node] = False
        while storm.loop.time() < end_s:
            if storm.cluster.may_evict(place):
                storm.cluster.drain(place)
                break
            await asyncio.sleep(5.0)
        await asyncio.sleep(max(0.0, end_s - storm.loop.time()))
        storm.cluster.nodes[node] = True


@deed("every GPU is taken", for_s=(60.0, 900.0), weight=2)
async def _taken(storm: "Storm", with_: Mapping[str, Any]) -> None:
    held = {each.node for each in storm.cluster.containers.values()}
    free = {node for node in storm.cluster.nodes if node not in held} - storm.cluster.taken
    storm.cluster.taken |= free
    await asyncio.sleep(with_["for_s"])
    storm.cluster.taken -= free


@deed("pod is preempted", for_s=(30.0, 600.0))
async def _preempted(storm: "Storm", with_: Mapping[str, Any]) -> None:
    for place, _, container in storm.cluster.serving()[:1]:
        node = container.node or ""
        storm.cluster.preempt(place)
        await asyncio.sleep(with_["for_s"])
        storm.cluster.taken.discard(node)


@deed("nodes refuse pods", for_s=(20.0, 120.0))
async def _refused(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """As a device plugin that has just been restarted does."""
    storm.cluster.refuses_pods = True
    await asyncio.sleep(with_["for_s"])
    storm.cluster.refuses_pods = False


# -- groups


@deed("worker of a group fails", to_groups=True, weight=8)
async def _worker(storm: "Storm", _: Mapping[str, Any]) -> None:
    for place in storm.cluster.workers()[:1]:
        storm.cluster.evict(place)


@deed(
    "group breaks until the user's edit",
    args=(8, 16),
    for_s=(60.0, 300.0),
    to_groups=True,
    weight=8,
)
async def _group_breaks(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """The first one, while others serve: no other revision's engines crash."""
    # A user edits what is the user's own.
    ours = f"{storm.namespace}/{storm.name}-"
    serving = [place for place, _, _ in storm.cluster.serving() if place.startswith(ours)]
    for place in serving[:1]:
        storm.cluster.spoil(place)
        await asyncio.sleep(with_["for_s"])
        wanted, present = with_["args"], storm.spec().get("engine", {}).get("args", [])
        # What is asked for already is no edit.
        wanted += str(wanted) in present
        storm.edit({"engine.args": ["--max-num-seqs", str(wanted)]})
