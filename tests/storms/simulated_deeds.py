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
from fathom.cluster.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    POD,
    POD_DISRUPTION_BUDGET,
    SERVICE,
    SERVICE_ACCOUNT,
    SPECULATIVE_DEPLOYMENT,
    Kind,
)
from storms.cluster import BAD_IMAGES
from storms.deeds import DEEDS, deed, delete_pod, node_away
from storms.history import BUILDS, MOST_REPLICAS
from storms.hub import DRAFT, OTHER_DRAFT
from storms.server import rfc3339
from storms.trainings import Trainings

if TYPE_CHECKING:
    from storms.storm import Storm

__all__ = ["BACK_OFF", "DEEDS", "FIGHTS", "HINDERS", "Trainings"]

THEIRS: Final = "acme.example/team"
"""A label, an annotation or a condition of somebody else."""
REACHES_S: Final = 600.0
"""For so long after a deed something may still come of it."""

FIGHTS: Final = frozenset(
    {
        "another manager takes a field by force",
        "autoscaler scales a Deployment",
        "hand changes a Service",
        "tool adds to selectors",
    }
)
"""What changes an object back again and again."""
BACK_OFF: Final = frozenset({"autoscaler scales a Deployment", "quota refuses pods"})
"""What makes a controller, or the operator, wait for as long again as it has lasted."""
HINDERS: Final = frozenset(
    {
        "API server answers with errors",
        "API server hangs",
        "admission refuses",
        "another manager takes a field by force",
        "answers are lost",
        "autoscaler scales a Deployment",
        "clock jumps",
        "hand changes a Service",
        "hand deletes a child",
        "hand takes our labels off",
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


@deed(
    "another manager labels children",
    kind=["Deployment", "Service", "ConfigMap", "ServiceAccount", "SpeculativeDeployment"],
    where=["labels", "annotations"],
    for_s=(30.0, 600.0),
    needs="shared",
    weight=6,
)
async def _labelled(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """By server-side apply, twice a minute, as policies and GitOps tools do."""
    kind, end_s = _kind(storm, with_["kind"]), storm.loop.time() + with_["for_s"]
    while storm.loop.time() < end_s:
        resource = storm.objects.look(SPECULATIVE_DEPLOYMENT, storm.namespace, storm.name)
        for found in [resource] if kind == SPECULATIVE_DEPLOYMENT else storm.children(kind):
            if found is None:
                continue
            storm.objects.apply_as_another(
                kind, found, {"metadata": {with_["where"]: {THEIRS: "llm"}}}
            )
            storm.theirs(found, with_["where"], THEIRS)
        await asyncio.sleep(30.0)


@deed("another manager adds a condition", needs="shared", weight=4)
async def _condition(storm: "Storm", _: Mapping[str, Any]) -> None:
    """As a tool does that says of each resource what it found."""
    found = storm.objects.look(SPECULATIVE_DEPLOYMENT, storm.namespace, storm.name)
    if found is None or "status" not in found:
        return
    condition = {
        "type": THEIRS,
        "status": "True",
        "reason": "Audited",
        "message": "",
        "lastTransitionTime": rfc3339(storm.loop.time()),
    }
    storm.objects.apply_as_another(
        SPECULATIVE_DEPLOYMENT, found, {"status": {"conditions": [condition]}}
    )
    storm.theirs(found, "conditions", THEIRS)


@deed(
    "another manager takes a field by force",
    what=["replicas", "managed-by", "port", "budget"],
    times=(1, 12),
    needs="shared",
    weight=8,
)
async def _forced(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """With `--force-conflicts`, and again whenever it is taken back."""
    for _ in range(with_["times"]):
        kind, theirs = _TAKEN[with_["what"]]
        kind = storm.workload if kind == DEPLOYMENT else kind
        for found in storm.children(kind)[:1]:
            if kind == storm.workload:
                storm.cluster.disturbed()
            storm.objects.apply_as_another(kind, found, theirs)
        await asyncio.sleep(20.0)


_TAKEN: Final[Mapping[str, tuple[Kind, Mapping[str, Any]]]] = {
    "replicas": (DEPLOYMENT, {"spec": {"replicas": 3}}),
    "managed-by": (SERVICE, {"metadata": {"labels": {names.LABEL_MANAGED_BY: "Helm"}}}),
    "port": (SERVICE, {"spec": {"ports": [{"name": "http", "port": 8000, "targetPort": 9}]}}),
    "budget": (POD_DISRUPTION_BUDGET, {"spec": {"maxUnavailable": 0}}),
}


@deed(
    "autoscaler scales a Deployment", replicas=(1, 4), for_s=(60.0, 600.0), needs="shared", weight=6
)
async def _scaled(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """Through its scale, as a HorizontalPodAutoscaler does that was pointed at it by mistake."""
    end_s = storm.loop.time() + with_["for_s"]
    while storm.loop.time() < end_s:
        for found in storm.children(storm.workload)[:1]:
            if found["spec"]["replicas"] != with_["replicas"]:
                storm.cluster.disturbed()
                theirs = {"spec": {"replicas": with_["replicas"]}}
                storm.objects.apply_as_another(storm.workload, found, theirs)
        await asyncio.sleep(15.0)
    storm.cluster.disturbed()


@deed(
    "hand takes our labels off",
    kind=["Deployment", "Service", "ConfigMap", "ServiceAccount"],
    needs="shared",
    weight=6,
)
async def _unlabelled(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """As `kubectl edit` does, in one of them."""
    kind = _kind(storm, with_["kind"])
    for found in storm.children(kind)[:1]:
        body = copy.deepcopy(found)
        labels = body["metadata"]["labels"]
        body["metadata"]["labels"] = {k: v for k, v in labels.items() if k not in _LABELS}
        storm.objects.put(kind, body)


_LABELS: Final = frozenset({names.LABEL_NAME, names.LABEL_MANAGED_BY})


def _kind(storm: "Storm", name: str) -> Kind:
    kinds = (CONFIG_MAP, SERVICE, SERVICE_ACCOUNT, SPECULATIVE_DEPLOYMENT)
    return next((each for each in kinds if each.kind == name), storm.workload)


# -- quotas, Jobs


@deed(
    "quota refuses pods",
    of=["pods", "requests.nvidia.com/gpu"],
    room=[0, 0, 1],
    takes=[True, True, False],
    for_s=(30.0, 600.0),
    needs="shared",
    weight=24,
)
async def _quota(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """No more than there is now, or one pod more; and one that serves may go."""
    quota, what = storm.cluster.quota, with_["of"]
    a_pod = 1 if what == "pods" else 4
    quota.limits[what] = quota.used()[what] + a_pod * with_["room"]
    if with_["takes"]:
        await delete_pod(storm, {})
        # The place that it leaves is somebody else's.
        quota.limits[what] = max(0, quota.limits[what] - a_pod)
    await asyncio.sleep(with_["for_s"])
    quota.limits.pop(what, None)


@deed(
    "fetch goes wrong",
    how=["fails", "is slow", "deleted", "pod deleted", "node lost", "node silent"],
    draft=[DRAFT, OTHER_DRAFT],
    revision=(1, 99),
    for_s=(60.0, 600.0),
    needs="cached",
    weight=24,
)
async def _fetch(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """A fetch of weights that the user has just asked for fails, is slow, or is lost."""
    jobs, how = storm.cluster.jobs, with_["how"]
    end_s = storm.loop.time() + with_["for_s"]
    storm.edit({"draft.id": with_["draft"], "draft.revision": f"v{with_['revision']}"})
    jobs.fails, jobs.slower = how == "fails", 10.0 if how == "is slow" else 1.0
    while storm.loop.time() < end_s and not any(map(jobs.node_of, jobs.fetching())):
        await asyncio.sleep(1.0)
    for place in jobs.fetching()[:1]:
        left_s = max(0.0, end_s - storm.loop.time())
        match how:
            case "deleted":
                for job in jobs.of_fetches():
                    storm.objects.remove(JOB, storm.namespace, job["metadata"]["name"])
            case "pod deleted":
                storm.objects.remove(POD, *place.split("/"))
            case "node lost" | "node silent":
                await _without_node(storm, jobs.node_of(place), left_s, silent="silent" in how)
        await asyncio.sleep(max(0.0, end_s - storm.loop.time()))
    jobs.fails, jobs.slower = False, 1.0


async def _without_node(storm: "Storm", node: str, for_s: float, *, silent: bool) -> None:
    cluster = storm.cluster
    goes, comes = (
        (cluster.silence_node, cluster.hear_node)
        if silent
        else (cluster.lose_node, cluster.return_node)
    )
    goes(node)
    await asyncio.sleep(for_s)
    comes(node)


@deed(
    "somebody benches",
    on_the_last=[True, True, False],
    then=["nothing", "node lost", "scaled up"],
    for_s=(120.0, 1200.0),
    needs="shared",
    weight=14,
)
async def _bench(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """Beside whatever rollout there is, maybe on the last free GPU, when a replica needs one."""
    cluster, then = storm.cluster, with_["then"]
    taken = set(cluster.free_nodes()[1:]) if with_["on_the_last"] else set[str]()
    cluster.taken |= taken
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(storm.bench(with_["for_s"]))
        await asyncio.sleep(30.0)
        if then == "node lost":
            away_s = with_["for_s"] - 30.0
            await node_away(storm, away_s, cluster.lose_node, cluster.return_node)
        elif then == "scaled up" and 0 < storm.spec().get("replicas", 0) < MOST_REPLICAS:
            storm.edit({"replicas": storm.spec()["replicas"] + 1})
    cluster.taken -= taken


@deed(
    "user waits out the bake of a bad image",
    image=list(BAD_IMAGES),
    for_s=(1800.0, 2400.0),
    needs="bakes_long",
    weight=16,
)
async def _long_bake(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """Where nothing else happens meanwhile, it is given up by then."""
    begins_s = storm.loop.time()
    ends_s = begins_s + with_["for_s"]
    async with _bad(storm, with_["image"]):
        seen = storm.canaries.is_seen(with_["image"])
        while storm.loop.time() < ends_s and storm.rollout().get("stage") != "RolledBack":
            await asyncio.sleep(5.0)
        given_up = storm.rollout().get("stage") == "RolledBack"
        if seen and not given_up and storm.undisturbed(begins_s - REACHES_S, ends_s):
            storm.fail(
                f"in {with_['for_s']:.0f} s nobody saw that the canary of {with_['image']} is bad"
            )


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


@deed("worker of a group fails", needs="groups", weight=8)
async def _worker(storm: "Storm", _: Mapping[str, Any]) -> None:
    for place in storm.cluster.workers()[:1]:
        storm.cluster.evict(place)


@deed(
    "group breaks until the user's edit",
    args=(8, 16),
    for_s=(60.0, 300.0),
    needs="groups",
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
