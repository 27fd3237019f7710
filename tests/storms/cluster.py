"""The cluster of a history: Deployments, ReplicaSets' pods, nodes, kubelets, garbage collection.

It plays what matters to the operator, always correctly. What goes wrong in it, deeds do.
"""

import asyncio
import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from fathom.api import names
from fathom.cluster.kinds import (
    CHILD_KINDS,
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    NODE,
    POD,
    POD_DISRUPTION_BUDGET,
    SPANNING_KINDS,
    SPECULATIVE_DEPLOYMENT,
    Kind,
)
from local_cluster.engine.language import vocabulary
from storms.engine import MAX_BATCH, Engine, page, write_atomically
from storms.groups import CHANGED, SHRANK, Groups
from storms.hub import PASSWORD
from storms.jobs import DIES_AFTER_S, PULL_S, Jobs
from storms.network import Connection, Network, Request
from storms.quota import Quota
from storms.server import Objects, rfc3339
from storms.workloads import WORKLOADS

START_S: Final = 40.0
REQUEST_S: Final = 5.0
"""What a client asks for takes so long."""
SYNC_S: Final = 60.0
"""How often a kubelet refreshes a mounted ConfigMap, unless its pod changes."""
CRASH_BACKOFF_S: Final = 30.0
LOOK_S: Final = 2.5
"""How often it moves when nothing is written."""
PORT: Final = 8000


SLOWER_IMAGE: Final = "acme/slower-vllm:v0.32.1"
FAILING_IMAGE: Final = "acme/failing-vllm:v0.32.1"
DEAF_IMAGE: Final = "acme/deaf-vllm:v0.32.1"
CRASHING_IMAGE: Final = "acme/crashing-vllm:v0.32.1"
MISSING_IMAGE: Final = "acme/missing-vllm:v0.32.1"
BAD_IMAGES: Final = (SLOWER_IMAGE, FAILING_IMAGE, DEAF_IMAGE, CRASHING_IMAGE, MISSING_IMAGE)
"""No canary of one may be promoted."""
REVISION: Final = "deployment.kubernetes.io/revision"
"""By which a Deployment's controller counts its templates."""
NO_TAG: Final = "no such tag"
_NO_IMAGE: Final = f"{NO_TAG} at https://robot:{PASSWORD}@registry.acme"
BY_HAND: Final = "by hand"
"""Why a pod goes, where it was not its own end."""
REFUSED: Final = "UnexpectedAdmissionError"
LAST_WORDS: Final = f"RuntimeError: no such file: Authorization: Bearer {PASSWORD}"
"""What an engine says that crashes."""


@dataclass
class Image:
    """How engines of one image behave; deeds change it."""

    start_s: float = START_S
    pulls: bool = True
    always_crashes: bool = False
    crashing: int = 0
    """How many deeds make it crash for now."""
    slower: float = 1.0
    """Times as long as a step of the others takes."""
    fails: bool = False
    """Whether all requests fail."""
    deaf: bool = False
    """Whether no depth document ever reaches the engine."""

    @property
    def crashes(self) -> bool:
        return self.always_crashes or self.crashing > 0


_BAD: Final = {
    SLOWER_IMAGE: Image(slower=2.0),
    FAILING_IMAGE: Image(fails=True),
    DEAF_IMAGE: Image(deaf=True),
    CRASHING_IMAGE: Image(always_crashes=True),
    MISSING_IMAGE: Image(pulls=False),
}


@dataclass
class Container:
    """What runs of one pod."""

    name: str
    serial: int
    leads: bool
    """Whether it serves; the workers of a group do not."""
    node: str | None = None
    bound_at_s: float = 0.0
    started_at_s: float | None = None
    gathered_at_s: float = 0.0
    """When the last rank of what serves here had started."""
    ready: bool = False
    restarts: int = 0
    engine: Engine | None = None
    directory: Path = Path()
    synced_at_s: float = float("-inf")
    synced_annotation: str = ""
    refuses_at_s: float | None = None
    """From then on its engine takes no new requests, since it was told to stop."""
    leaves_at_s: float | None = None
    awaits_workers: bool = False
    """Whether its object stays until the last worker of its group is gone."""
    drained: bool = False
    """Whether it was told to stop, and did."""
    ended: str = ""
    """Why it is over for good, such as Evicted."""
    traffic: asyncio.Task[None] | None = None


class Cluster:
    """Moves when something was written, and every few seconds."""

    def __init__(
        self, objects: Objects, network: Network, directory: Path, *, nodes: int, load: int
    ) -> None:
        self._objects = objects
        self._network = network
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self._serial = 0
        self.images: dict[str, Image] = {}
        self.nodes = {f"node-{index}": True for index in range(nodes)}
        """By name: whether it is there."""
        self.containers: dict[str, Container] = {}
        """By namespace/name of the pod."""
        self.load = load
        """Requests in flight at each ready pod."""
        self.pages: dict[str, Any] = {}
        """By pod's place: what its metrics page does instead of showing the truth."""
        self.stuck_volumes: set[str] = set()
        """Pods whose kubelet refreshes no volume."""
        self.taken: set[str] = set()
        """Nodes whose GPUs are somebody else's."""
        self.silent: dict[str, float] = {}
        """Nodes that answer no more, whose pods nobody removes: since when."""
        self.refuses_pods = False
        """Whether kubelets refuse what the scheduler sends them."""
        self.spoilt: set[str] = set()
        """Uids of LeaderWorkerSets whose leaders' engines crash at each start."""
        self.spoilt_revisions: set[str] = set()
        """Revisions of which such a set was, whose next canary may fail as well."""
        self.disk_full = False
        """Whether engines that start now have no room for what they count."""
        self.disturbed_at_s = float("-inf")
        """When something last happened to pods that the operator did not do."""
        self.canaries_suffer = False
        """Whether anything ever did of what canaries may suffer from."""
        self.removals: list[tuple[float, str, str, str]] = []
        """Pods of serving revisions that went: when, pod, revision, why."""
        self._marks: dict[str, str] = {}
        """Marks of the templates of Deployments, by resource version."""
        self._collected = -1
        """The version at which nothing was left that nobody owns."""
        self.quota = Quota(objects=objects)
        self.jobs = Jobs(objects=objects, network=network, cluster=self)
        self.counts_revisions = False
        """Whether Deployments bear the number of their revision, as their controller leaves it."""
        self._groups = Groups(
            objects=objects,
            start=self._make,
            content=self.quota.content,
            leave=self._leave,
            give_up=self._give_up,
            broken=self._is_broken,
        )
        self._moved = asyncio.Event()
        objects.changed.append(lambda *_: self._moved.set())
        for name in self.nodes:
            self._put_node(name)
        self._task = self._loop.create_task(self._run(), name="cluster")

    def stop(self) -> None:
        """Nothing moves any more."""
        self._task.cancel()
        for container in self.containers.values():
            self._end_engine(container)

    # -- what deeds do

    def image(self, name: str) -> Image:
        """How engines of an image behave."""
        if name not in self.images:
            self.images[name] = replace(_BAD.get(name, Image()))
        return self.images[name]

    def now_s(self) -> float:
        """Simulated seconds."""
        return self._loop.time()

    def disturbed(self) -> None:
        """Remember that pods suffer from something else than the operator."""
        self.disturbed_at_s = self._loop.time()
        self.canaries_suffer = True

    def spoil(self, pod: str) -> None:
        """The engines of its set crash from now on, and no others do."""
        found = self._pod(pod)
        if found is not None:
            self.disturbed_at_s = self._loop.time()
            self.spoilt.add(_owner(found))
            self.spoilt_revisions.add(found["metadata"]["labels"][names.LABEL_REVISION])
            self._crash(self.containers[pod])

    def crash(self, pod: str) -> None:
        """Its engine's process ends."""
        container = self.containers.get(pod)
        if container is not None and container.engine is not None:
            self.disturbed()
            self._crash(container)

    def _crash(self, container: Container) -> None:
        self._end_engine(container)
        container.restarts += 1
        container.ready = False
        container.started_at_s = self._loop.time() + CRASH_BACKOFF_S

    def workers(self) -> list[str]:
        """Headless pods of groups that are ready and stay, by place."""
        return [
            place
            for place, each in sorted(self.containers.items())
            if each.ready and each.leaves_at_s is None and not each.leads
        ]

    def replace_blind(self) -> None:
        """End engines that found no room for what they count."""
        for place, container in list(self.containers.items()):
            if container.engine is not None and container.engine.blind:
                self.crash(place)

    def evict(self, pod: str) -> None:
        """It has failed for good; its object stays until somebody removes it."""
        container = self.containers.get(pod)
        if container is not None and not container.ended:
            self.disturbed()
            self._end_engine(container)
            container.ended, container.ready = "Evicted", False

    def lose_node(self, node: str) -> None:
        """A node goes, with all that ran on it."""
        if self.nodes.get(node):
            self.disturbed()
            self.nodes[node] = False
            self._objects.remove(NODE, "", node)
            for place, container in list(self.containers.items()):
                if container.node == node:
                    self._remove_pod(place)

    def silence_node(self, node: str) -> None:
        """It answers no more; its pods stay, first not ready and then for ever leaving."""
        if self.nodes.get(node):
            self.disturbed()
            self.nodes[node] = False
            self.silent[node] = self._loop.time()

    def hear_node(self, node: str) -> None:
        """It is back, and its kubelet ends what had to leave, and starts what had not."""
        if self.silent.pop(node, None) is None:
            return
        self.disturbed()
        self.nodes[node] = True
        for place, container in list(self.containers.items()):
            if container.node != node:
                continue
            pod = self._pod(place)
            if pod is None or "deletionTimestamp" in pod["metadata"]:
                self._remove_pod(place)
            else:
                container.restarts += 1
                container.started_at_s = self._loop.time()

    def drain(self, pod: str) -> None:
        """Its node is emptied."""
        found = self._pod(pod)
        if found is not None:
            self.disturbed()
            self._leave(found, BY_HAND)

    def preempt(self, pod: str) -> None:
        """What matters more takes its node at once, and keeps it until `taken` says otherwise."""
        container, found = self.containers.get(pod), self._pod(pod)
        if container is not None and found is not None and container.node is not None:
            self.disturbed()
            self.taken.add(container.node)
            self._leave(found, BY_HAND)

    def may_evict(self, pod: str) -> bool:
        """Whether its budget lets a drain take it now."""
        namespace, _, _ = pod.partition("/")
        found = self._pod(pod) or {"metadata": {}}
        labels = found["metadata"].get("labels") or {}
        for budget in self._objects.each(POD_DISRUPTION_BUDGET):
            selector = budget["spec"]["selector"].get("matchLabels", {}).items()
            if budget["metadata"]["namespace"] != namespace or not selector <= labels.items():
                continue
            chosen = [
                each
                for each in self._objects.each(POD)
                if selector <= (each["metadata"].get("labels") or {}).items()
            ]
            away = sum(not self._is_ready(each) for each in chosen)
            if self._is_ready(found) and away >= budget["spec"]["maxUnavailable"]:
                return False
        return True

    def return_node(self, node: str) -> None:
        """A lost node is back, empty."""
        if not self.nodes.get(node, True):
            self.nodes[node] = True
            self._put_node(node)

    def pods(self) -> list[tuple[str, dict[str, Any]]]:
        """All that have a container, by place."""
        found = ((place, self._pod(place)) for place in self.containers)
        return [(place, pod) for place, pod in found if pod is not None]

    def serving(self) -> list[tuple[str, dict[str, Any], Container]]:
        """Pods that take requests, are ready and stay, by place."""
        found = []
        for place, container in sorted(self.containers.items()):
            pod = self._pod(place)
            stays = container.ready and container.leaves_at_s is None
            if pod is not None and stays and container.leads:
                found.append((place, pod, container))
        return found

    # -- the controllers

    async def _run(self) -> None:
        while True:
            self._moved.clear()
            self._step()
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._moved.wait()
                await asyncio.sleep(0.05)
            except TimeoutError:
                pass

    def _step(self) -> None:
        self._collect()
        for deployment in self._objects.each(DEPLOYMENT):
            if "deletionTimestamp" not in deployment["metadata"]:
                self._deployment(deployment)
        self._groups.step()
        self.jobs.step()
        for pod in self._objects.each(POD):
            self._live(pod)
        self._statuses()

    def _collect(self) -> None:
        """What is owned by something that is gone goes too."""
        if self._collected == self._objects.version:
            return
        self._collected = self._objects.version
        uids = {
            body["metadata"]["uid"]
            for kind in (SPECULATIVE_DEPLOYMENT, *WORKLOADS, JOB, POD)
            for body in self._objects.each(kind)
        }
        for kind in (*CHILD_KINDS, POD_DISRUPTION_BUDGET, *SPANNING_KINDS):
            for body in self._objects.each(kind):
                owners = body["metadata"].get("ownerReferences") or []
                if owners and not any(owner["uid"] in uids for owner in owners):
                    self._delete(kind, body)
        for resource in self._objects.each(SPECULATIVE_DEPLOYMENT):
            if "deletionTimestamp" in resource["metadata"]:
                self._delete(SPECULATIVE_DEPLOYMENT, resource)

    def _delete(self, kind: Kind, body: Mapping[str, Any]) -> None:
        metadata = body["metadata"]
        if kind == POD:
            self._leave(body)
        else:
            self._objects.remove(kind, metadata["namespace"], metadata["name"])

    def _mark(self, deployment: Mapping[str, Any]) -> str:
        version = deployment["metadata"]["resourceVersion"]
        if version not in self._marks:
            template = json.dumps(deployment["spec"]["template"], sort_keys=True)
            self._marks[version] = hashlib.sha256(template.encode()).hexdigest()[:10]
        return self._marks[version]

    def _deployment(self, deployment: Mapping[str, Any]) -> None:
        metadata, spec = deployment["metadata"], deployment["spec"]
        if self.counts_revisions and REVISION not in (metadata.get("annotations") or {}):
            counted = copy.deepcopy(dict(deployment))
            counted["metadata"].setdefault("annotations", {})[REVISION] = "1"
            self._objects.put(DEPLOYMENT, counted)
            return
        mark = self._mark(deployment)
        pods = [
            pod
            for pod in self._objects.each(POD)
            if _owner(pod) == metadata["uid"]
            and "deletionTimestamp" not in pod["metadata"]
            and pod.get("status", {}).get("phase") not in {"Failed", "Succeeded"}
        ]
        current = [pod for pod in pods if pod["metadata"]["labels"]["pod-template-hash"] == mark]
        stale = [pod for pod in pods if pod not in current]
        wanted = spec.get("replicas", 1)
        # The pods of an older template go one by one, as new ones become ready.
        ready = sum(self._is_ready(pod) for pod in pods)
        for pod in stale:
            if not self._is_ready(pod) or ready >= wanted:
                ready -= self._is_ready(pod)
                self._leave(pod, CHANGED)
                pods.remove(pod)
        # As a ReplicaSet does: pods that are not ready go first, then the youngest.
        current.sort(key=lambda pod: (self._is_ready(pod), -_age_key(pod)))
        for pod in current[: max(0, len(pods) - wanted)]:
            self._leave(pod, SHRANK)
            pods.remove(pod)
        if len(pods) >= wanted:
            self.quota.content(metadata["uid"])
        asked = len(pods), wanted
        for _ in range(len(pods), wanted):
            if not self._start(deployment, mark, asked):
                break

    def _start(self, deployment: Mapping[str, Any], mark: str, asked: tuple[int, int]) -> bool:
        metadata, template = deployment["metadata"], deployment["spec"]["template"]
        name = f"{metadata['name']}-{self._serial + 1:04d}"
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "labels": {**template["metadata"]["labels"], "pod-template-hash": mark},
                "annotations": dict(template["metadata"].get("annotations") or {}),
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "Deployment",
                        "name": metadata["name"],
                        "uid": metadata["uid"],
                        "controller": True,
                    }
                ],
            },
            "spec": copy.deepcopy(template["spec"]),
        }
        return self._make(body, asked)

    def _make(self, body: dict[str, Any], asked: tuple[Any, ...]) -> bool:
        if not self.quota.admits(body, asked, self.now_s()):
            self.disturbed()
            return False
        self._serial += 1
        name = body["metadata"]["name"]
        self.containers[_place(body)] = Container(
            name,
            self._serial,
            leads=body["metadata"]["labels"].get(names.LABEL_ROLE) != names.ROLE_WORKER,
            directory=self._directory / f"{name}-{self._serial}",
        )
        self._objects.put(POD, {**body, "status": {"phase": "Pending"}})
        return True

    def _is_broken(self, pod: Mapping[str, Any]) -> bool:
        container = self.containers[_place(pod)]
        return bool(container.ended or container.restarts)

    def _give_up(self, leader: Mapping[str, Any]) -> None:
        """Its group is incomplete: what it had to answer is lost with it."""
        container = self.containers[_place(leader)]
        self._end_engine(container)
        container.awaits_workers = True

    def _leave(self, pod: Mapping[str, Any], why: str = "deleted") -> None:
        place = _place(pod)
        container = self.containers.get(place)
        silent = container is not None and container.node in self.silent
        if "deletionTimestamp" not in pod["metadata"]:
            leaving = copy.deepcopy(dict(pod))
            leaving["metadata"]["deletionTimestamp"] = rfc3339(self._loop.time())
            self._objects.put(POD, leaving)
        if container is None or container.leaves_at_s is not None or silent:
            return
        if container.ready and container.leads:
            revision = pod["metadata"]["labels"].get("fathom.dev/revision", "")
            self.removals.append((self._loop.time(), place, revision, why))
        now_s = self._loop.time()
        container.refuses_at_s = container.leaves_at_s = now_s
        if container.engine is not None:
            waits_s, drains_s, most_s = _farewell(pod)
            container.refuses_at_s = now_s + min(waits_s, most_s)
            container.leaves_at_s = now_s + min(waits_s + drains_s, most_s)

    # -- the kubelets

    def _live(self, pod: Mapping[str, Any]) -> None:
        place, now_s = _place(pod), self._loop.time()
        container = self.containers.get(place)
        if container is None:
            # Nobody's pod: as a person makes one by hand.
            return
        if container.node in self.silent:
            self._live_unheard(pod, container, now_s)
            return
        if "deletionTimestamp" in pod["metadata"]:
            if container.leaves_at_s is None:
                self._leave(pod)
            assert container.leaves_at_s is not None
            container.ready = False
            if now_s >= container.leaves_at_s and not self._awaits_workers(pod, container):
                container.drained = container.engine is not None
                self._remove_pod(place)
                return
        elif not container.ended:
            self._run_pod(pod, container, now_s)
        self._show(pod, container)

    def _awaits_workers(self, pod: Mapping[str, Any], container: Container) -> bool:
        uid = pod["metadata"]["uid"]
        return container.awaits_workers and any(
            _owner(each) == uid for each in self._objects.each(POD)
        )

    def _live_unheard(self, pod: Mapping[str, Any], container: Container, now_s: float) -> None:
        """As the node controller does it: nobody ends what a silent node runs."""
        self._end_engine(container)
        container.ready = False
        if now_s - self.silent[str(container.node)] >= DIES_AFTER_S:
            self._leave(pod, "its node is silent")
        live = self._pod(_place(pod))
        if live is not None:
            self._show(live, container)

    def _run_pod(self, pod: Mapping[str, Any], container: Container, now_s: float) -> None:
        if container.node is None:
            free = self.free_nodes()
            if not free:
                return
            container.node, container.bound_at_s = free[0], now_s
        image = self.image(_main(pod)["image"])
        if self.refuses_pods and container.started_at_s is None:
            # It takes a while, else a ReplicaSet would make another one at once, without an end.
            if now_s >= container.bound_at_s + PULL_S:
                self.disturbed()
                container.ended = REFUSED
            return
        if not image.pulls or now_s < container.bound_at_s + PULL_S:
            return
        self._sync(pod, container, now_s)
        if container.started_at_s is None:
            if not self._mounts_exist(pod):
                return
            container.started_at_s = now_s
        self._run_engine(pod, container, now_s - container.started_at_s)

    def free_nodes(self) -> list[str]:
        """Nodes whose GPUs nobody has."""
        held = {each.node for each in self.containers.values() if not each.ended} | self.taken
        held |= self.jobs.held()
        return [node for node, there in self.nodes.items() if there and node not in held]

    def _run_engine(self, pod: Mapping[str, Any], container: Container, age_s: float) -> None:
        image = self.image(_main(pod)["image"])
        crashes = image.crashes or _owner(pod) in self.spoilt
        if crashes and age_s >= image.start_s / 2:
            self._crash(container)
        elif age_s >= image.start_s and not container.leads:
            container.ready = True
        elif age_s >= image.start_s and container.engine is None:
            gathered_at_s = self._groups.gathered_at_s(dict(pod), self._started_at_s)
            if gathered_at_s is not None and self.now_s() - gathered_at_s >= image.start_s:
                self._start_engine(pod, container)
                container.gathered_at_s, container.ready = gathered_at_s, True

    def _started_at_s(self, pod: Mapping[str, Any]) -> float | None:
        return self.containers[_place(pod)].started_at_s

    def _mounts_exist(self, pod: Mapping[str, Any]) -> bool:
        namespace = pod["metadata"]["namespace"]
        names = [
            volume["configMap"]["name"]
            for volume in pod["spec"].get("volumes", [])
            if "configMap" in volume and not volume["configMap"].get("optional")
        ]
        return all(self._objects.look(CONFIG_MAP, namespace, name) is not None for name in names)

    def _sync(self, pod: Mapping[str, Any], container: Container, now_s: float) -> None:
        """Refresh the mounted depth document: now and then, and when the pod has changed."""
        told = json.dumps(pod["metadata"].get("annotations") or {}, sort_keys=True)
        if now_s - container.synced_at_s < SYNC_S and told == container.synced_annotation:
            return
        if _place(pod) in self.stuck_volumes or self.image(_main(pod)["image"]).deaf:
            return
        container.synced_at_s, container.synced_annotation = now_s, told
        labels = pod["metadata"]["labels"]
        name = f"{labels.get('fathom.dev/name', '')}-depth"
        found = self._objects.look(CONFIG_MAP, pod["metadata"]["namespace"], name)
        if found is None:
            return
        text = (found.get("data") or {}).get("depth.json")
        path = container.directory / "depth" / "depth.json"
        if text is None:
            path.unlink(missing_ok=True)
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            write_atomically(path, text)

    def _start_engine(self, pod: Mapping[str, Any], container: Container) -> None:
        config, image = _speculative_config(pod), self.image(_main(pod)["image"])
        container.directory.mkdir(parents=True, exist_ok=True)
        container.engine = Engine(
            container.directory,
            container.name,
            depth=int(config.get("num_speculative_tokens", 0)),
            table=_table(config),
            max_batch=MAX_BATCH,
            cuts_drafts=bool(config.get("enable_adaptive_verification")),
            disk_full=self.disk_full,
            slower=image.slower,
            fails=image.fails,
        )
        container.traffic = self._loop.create_task(
            self._drive(container.engine), name=f"traffic of {container.name}"
        )
        place = _place(pod)
        self._network.listen(
            f"{_ip(container)}:{PORT}", lambda c, r: self._page(place, container, c, r)
        )

    def _end_engine(self, container: Container) -> None:
        if container.engine is not None:
            container.engine.stop()
            container.engine = None
        if container.traffic is not None:
            container.traffic.cancel()
            container.traffic = None

    async def _drive(self, engine: Engine) -> None:
        serial = 0
        prompts = [vocabulary()[word] for word in ("easy-1", "hard-1")]
        while True:
            if not self.load:
                for request in [*engine.engine.running.values(), *engine.engine.waiting]:
                    engine.engine.abort(request)
            running = len(engine.engine.running) + len(engine.engine.waiting)
            for _ in range(running, self.load):
                serial += 1
                prompt = [prompts[serial % len(prompts)]]
                # Short ones of several lengths: some end in every window of a comparison.
                engine.engine.submit(f"r{serial}", prompt, 8 + 7 * serial % 16)
            await asyncio.sleep(5.0)

    async def _page(
        self, place: str, container: Container, connection: Connection, asked: Request
    ) -> None:
        """The metrics page of a pod."""
        del asked
        engine = container.engine
        if engine is None:
            connection.reset()
            return
        instead = self.pages.get(place)
        if instead is not None:
            await instead(engine, connection)
            return
        connection.respond(200, page(engine.samples()))

    def _show(self, pod: Mapping[str, Any], container: Container) -> None:
        status = self._status(pod, container)
        if pod.get("status") != status:
            live = self._objects.look(POD, pod["metadata"]["namespace"], container.name)
            assert live is not None
            self._objects.put(POD, {**live, "status": status})

    def _status(self, pod: Mapping[str, Any], container: Container) -> dict[str, Any]:
        if container.ended:
            return {"phase": "Failed", "reason": container.ended, "message": LAST_WORDS}
        changed_s = container.started_at_s or container.bound_at_s
        if container.ready:
            start_s = self.image(_main(pod)["image"]).start_s
            changed_s = max(changed_s, container.gathered_at_s) + start_s
        conditions = [
            {
                "type": "Ready",
                "status": "True" if container.ready else "False",
                "lastTransitionTime": rfc3339(changed_s),
            }
        ]
        if container.node is None:
            message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
            conditions.append({"type": "PodScheduled", "status": "False", "message": message})
        image = self.image(_main(pod)["image"])
        state: dict[str, Any] = {}
        if container.node is not None and not image.pulls:
            state = {"waiting": {"reason": "ImagePullBackOff", "message": _NO_IMAGE}}
        elif container.engine is None and container.restarts:
            state = {"waiting": {"reason": "CrashLoopBackOff"}}
        crash = {"exitCode": 1, "reason": "Error", "message": LAST_WORDS}
        ended = {"terminated": crash} if container.restarts else {}
        return {
            "phase": "Running" if container.started_at_s is not None else "Pending",
            "podIP": _ip(container) if container.node is not None else "",
            "conditions": conditions,
            "containerStatuses": [
                {
                    "name": _main(pod)["name"],
                    "image": _main(pod)["image"],
                    "restartCount": container.restarts,
                    "state": state,
                    "lastState": ended,
                }
            ],
        }

    def _statuses(self) -> None:
        for kind in WORKLOADS:
            for workload in self._objects.each(kind):
                pods = [
                    pod
                    for pod in self._objects.each(POD)
                    if _owner(pod) == workload["metadata"]["uid"]
                ]
                ready = sum(self._is_ready(pod) for pod in pods)
                status: dict[str, Any] = {"replicas": len(pods), "readyReplicas": ready}
                refused = self.quota.conditions(workload["metadata"]["uid"])
                if refused and kind == DEPLOYMENT:
                    status["conditions"] = refused
                if workload.get("status") != status:
                    self._objects.put(kind, {**workload, "status": status})

    def _remove_pod(self, place: str) -> None:
        container = self.containers.pop(place)
        self._end_engine(container)
        self._network.forget(f"{_ip(container)}:{PORT}")
        namespace, name = place.split("/")
        self._objects.remove(POD, namespace, name)

    def _is_ready(self, pod: Mapping[str, Any]) -> bool:
        container = self.containers.get(_place(pod))
        return container is not None and container.ready and container.leaves_at_s is None

    def _pod(self, place: str) -> dict[str, Any] | None:
        namespace, name = place.split("/")
        return self._objects.look(POD, namespace, name)

    def _put_node(self, name: str) -> None:
        self._objects.put(
            NODE,
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "namespace": ""},
                "status": {"allocatable": {"nvidia.com/gpu": "4"}},
            },
        )


def _place(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _owner(pod: Mapping[str, Any]) -> str:
    owners = pod["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))


def _age_key(pod: Mapping[str, Any]) -> int:
    return int(pod["metadata"]["name"].rsplit("-", 1)[1])


def _main(pod: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod["spec"]["containers"][0]
    return found


def _ip(container: Container) -> str:
    return f"10.0.{container.serial // 250}.{container.serial % 250 + 1}"


def _farewell(pod: Mapping[str, Any]) -> tuple[float, float, float]:
    """Seconds from a pod's deletion, as the pod itself has them.

    How long its engine goes on as before, how long it then ends what it has, and when it is killed.
    """
    main, metadata = _main(pod), pod["metadata"]
    hook = main.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])
    waits_s = float(hook[1]) if hook[:1] == ["sleep"] else 0.0
    most_s = pod["spec"].get("terminationGracePeriodSeconds", 30)
    most_s = metadata.get("deletionGracePeriodSeconds", most_s)
    told = _told(pod, "--shutdown-timeout")
    return waits_s, min(float(told or 0.0), REQUEST_S), float(most_s)


def _speculative_config(pod: Mapping[str, Any]) -> dict[str, Any]:
    """What an engine's command line says of speculation."""
    config: dict[str, Any] = json.loads(_told(pod, "--speculative-config") or "{}")
    return config


def _told(pod: Mapping[str, Any], flag: str) -> str:
    """What an engine's command line gives a flag, the last time; empty: it does not."""
    words = [*(_main(pod).get("command") or []), *(_main(pod).get("args") or [])]
    told = ""
    for index, word in enumerate(words):
        if word == flag:
            told = words[index + 1]
        elif word.startswith(f"{flag}="):
            told = word.split("=", 1)[1]
    return str(told)


def _table(config: Mapping[str, Any]) -> list[int] | None:
    """Its depths by batch; None: its depth is not live."""
    ranges = config.get("num_speculative_tokens_per_batch_size")
    if not ranges:
        return None
    table = [0] * (MAX_BATCH + 1)
    for first, last, each in ranges:
        for batch in range(first, min(last, MAX_BATCH) + 1):
            table[batch] = each
    return table
