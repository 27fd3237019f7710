"""A cluster in memory whose engines take their time to start, serve, crash and drain. No sleeps.

It plays what a real cluster does about Deployments (pods come and go, one GPU node each) and what
engines show on /metrics, on the clock of the test. What the operator does with it is the real loop.
"""

import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fathom.adapters.ports import PodEndpoint, Sample
from fathom.cluster.kinds import CONFIG_MAP, DEPLOYMENT, EVENT, POD
from fathom.measurement.counters import (
    Cell,
    CellCounts,
    EngineCounts,
    PodCounters,
    StepKind,
    Unread,
)
from fathom.reconcile.checkpoint import Checkpoint
from fathom.rollout.rollout import Rollout
from support.loop_harness import START_S, LoopHarness, replica_set

TICK_S = 5.0
STEP_S = 0.02
BATCH = 6.0
DEPTH = 3


@dataclass(frozen=True)
class Engine:
    """How engines of one image behave."""

    speed: float = 1.0
    """Tokens per step and request, over those of the usual engine."""
    start_s: float = 300.0
    crashes: bool = False
    """Exits while it starts."""
    crash_after_s: float | None = None
    """Exits so long after it became ready."""
    pulls: bool = True
    blind: bool = False
    """Shows no metrics."""
    deaf: bool = False
    """Never has a written depth in force."""
    failing: float = 0.0
    """Share of its requests that fail."""
    slow: float = 0.0
    """Share of its requests with a time to first token of several seconds."""


@dataclass
class _Pod:
    born_s: float
    engine: Engine
    ready_s: float | None = None
    restarts: int = 0
    leaves_s: float | None = None
    scheduled: bool = False
    steps: float = 0.0
    tokens: float = 0.0
    requests: float = 0.0
    failed: float = 0.0
    slow: float = 0.0


@dataclass
class PlayedCluster:
    """One SpeculativeDeployment of several replicas, and the cluster under it."""

    changes: Mapping[str, Any]
    engines: Mapping[str, Engine] = field(default_factory=dict)
    """By image; of any other image they are the usual ones."""
    nodes: int = 3
    drain_s: float = 30.0
    traffic: bool = True
    seed: int = 7

    def __post_init__(self) -> None:
        self.harness = LoopHarness(self.changes)
        self._pods: dict[str, _Pod] = {}
        self._serial = 0
        self._due_s = START_S
        self._random = random.Random(self.seed)
        self.steps: list[tuple[str, dict[str, int]]] = []
        """Stage, and replicas asked for by revision, each time one of them changed."""
        self.least_ready = 1_000_000
        self.most_held = 0
        self.dark = False
        """No metrics can be read at all."""
        self.harness.metrics = self  # type: ignore[assignment]  # the port is structural
        self.harness.restart()

    # -- what tests look at

    @property
    def wanted(self) -> int:
        count: int = self.harness.resource["spec"]["replicas"]
        return count

    @property
    def rollout(self) -> Rollout | None:
        found = [
            m for m in self.harness.kube.all_of(CONFIG_MAP) if "tuning" in m["metadata"]["name"]
        ]
        return Checkpoint.of(found[0]["data"]).rollout if found else None

    @property
    def stage(self) -> str:
        return self.rollout.stage if self.rollout else "None"

    def asked(self) -> dict[str, int]:
        """Replicas of each Deployment, by revision."""
        return {
            _letter(each["spec"]["template"]): each["spec"]["replicas"]
            for each in self.harness.kube.all_of(DEPLOYMENT)
        }

    def ready(self) -> dict[str, int]:
        """Pods that serve, by revision."""
        found: dict[str, int] = {}
        for pod in self.harness.kube.all_of(POD):
            name = _letter(pod)
            found[name] = found.get(name, 0) + self._serves(pod)
        return {name: count for name, count in found.items() if count}

    def revision_of(self, pod: str) -> str:
        return _letter(self.harness.kube.find(POD, pod))

    def events(self) -> list[str]:
        return [each["reason"] for each in self.harness.kube.all_of(EVENT)]

    def told(self, reason: str) -> str:
        """The newest event of this reason."""
        found = [e["message"] for e in self.harness.kube.all_of(EVENT) if e["reason"] == reason]
        assert found, f"no event {reason} among {self.events()}"
        return str(found[-1])

    # -- what tests do

    async def settle(self) -> None:
        """Until every replica serves; what was seen before is forgotten."""
        await self.run(3000)
        assert sum(self.ready().values()) == self.wanted, self.ready()
        self.steps, self.least_ready, self.most_held = [], 1_000_000, 0

    async def run(self, seconds: float, until: Any = None) -> None:
        end_s = self.harness.clock.at_s + seconds
        while self.harness.clock.at_s < end_s:
            await self.tick()
            if until is not None and until():
                return
        assert until is None, f"never so: {self.steps}"

    async def tick(self) -> None:
        """Five seconds: the cluster moves, and the operator looks if it was woken or is due."""
        before = self.harness.kube.version
        self._play()
        if self.harness.kube.version != before:
            self.harness.loop.wake()
            self._due_s = self.harness.clock.at_s
        if self.harness.clock.at_s >= self._due_s:
            delay = await self.harness.loop.tick()
            assert delay is not None
            self._due_s = self.harness.clock.at_s + delay
        self._note()
        self.harness.clock.at_s += TICK_S

    def edit(self, changes: Mapping[str, Any]) -> None:
        self.harness.edit(changes)
        self._due_s = self.harness.clock.at_s

    def away(self, seconds: float) -> None:
        """No operator runs: the cluster goes on without one. Then there is a new one."""
        end_s = self.harness.clock.at_s + seconds
        while self.harness.clock.at_s < end_s:
            self._play()
            self.harness.clock.at_s += TICK_S
        self.harness.restart()
        self._due_s = self.harness.clock.at_s

    def lose_node_of(self, revision: str) -> None:
        """One of its serving pods is gone at once, and its node with it."""
        for pod in self.harness.kube.all_of(POD):
            name = pod["metadata"]["name"]
            if _letter(pod) == revision and self._serves(pod):
                self.harness.kube.remove(POD, "llm", name)
                del self._pods[name]
                self.nodes -= 1
                return
        raise AssertionError(f"{revision} has no serving pod")

    # -- metrics: the port that the operator reads

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        if self.dark:
            return Sample((), tuple(Unread(each.pod, "no answer within 5 s") for each in pods))
        seen = [each.pod for each in pods if not self._pods[each.pod].engine.blind]
        return Sample(tuple(self._counters(name) for name in seen))

    def _counters(self, name: str) -> PodCounters:
        pod = self._pods[name]
        document = self.harness.kube.find(CONFIG_MAP, "kimi-depth")["data"]["depth.json"]
        generation = 0 if pod.engine.deaf else int(document.split('"generation":')[1].split(",")[0])
        fast = pod.requests - pod.slow
        return PodCounters(
            pod=name,
            at_s=self.harness.clock.at_s,
            started_at_s=pod.born_s + pod.restarts,
            engine=EngineCounts(
                generation_tokens=pod.tokens,
                tpot_seconds_sum=pod.requests * 0.01,
                tpot_count=pod.requests,
                finished_requests=pod.requests,
                failed_requests=pod.failed,
                requests_running=BATCH,
            ),
            live_depth=True,
            depth_generation=generation,
            cells={
                Cell(8, DEPTH, StepKind.DECODE): CellCounts(
                    pod.steps, pod.steps * STEP_S, pod.tokens, pod.steps * BATCH
                )
            },
            ttft=((0.5, fast), (1.0, fast), (10.0, pod.requests), (float("inf"), pod.requests)),
        )

    # -- the cluster

    def _play(self) -> None:
        now_s, kube = self.harness.clock.at_s, self.harness.kube
        for name, pod in list(self._pods.items()):
            if pod.leaves_s is not None and now_s >= pod.leaves_s:
                kube.remove(POD, "llm", name)
                del self._pods[name]
        for deployment in kube.all_of(DEPLOYMENT):
            self._replicas(deployment)
        owners = {each["metadata"]["name"] for each in kube.all_of(DEPLOYMENT)}
        for pod in kube.all_of(POD):
            if pod["metadata"]["name"].rsplit("-", 1)[0] not in owners:
                self._leave(pod)
        for pod in kube.all_of(POD):
            self._live(pod)

    def _replicas(self, deployment: Mapping[str, Any]) -> None:
        owner = deployment["metadata"]["name"]
        pods = [
            pod
            for pod in self.harness.kube.all_of(POD)
            if pod["metadata"]["name"].rsplit("-", 1)[0] == owner
            and "deletionTimestamp" not in pod["metadata"]
        ]
        # As a ReplicaSet does: pods that are not ready go first, then the youngest.
        pods.sort(key=lambda pod: (self._serves(pod), -self._pod(pod).born_s))
        for pod in pods[: max(0, len(pods) - deployment["spec"]["replicas"])]:
            self._leave(pod)
        for _ in range(len(pods), deployment["spec"]["replicas"]):
            self._start(owner, deployment["spec"]["template"])

    def _start(self, owner: str, template: Mapping[str, Any]) -> None:
        self._serial += 1
        name = f"{owner}-{self._serial:03d}"
        image = template["spec"]["containers"][0]["image"]
        self._pods[name] = _Pod(self.harness.clock.at_s, self.engines.get(image, Engine()))
        self.harness.kube.put(
            POD,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": "llm",
                    "labels": template["metadata"]["labels"],
                    "ownerReferences": [replica_set(owner)],
                    "creationTimestamp": _rfc(self.harness.clock.at_s),
                },
                "spec": copy.deepcopy(template["spec"]),
                "status": {"phase": "Pending"},
            },
        )

    def _leave(self, pod: Mapping[str, Any]) -> None:
        found = self._pod(pod)
        if found.leaves_s is None:
            found.leaves_s = self.harness.clock.at_s + (self.drain_s if found.scheduled else 0.0)
            leaving = copy.deepcopy(dict(pod))
            leaving["metadata"]["deletionTimestamp"] = _rfc(self.harness.clock.at_s)
            self.harness.kube.put(POD, leaving)

    def _live(self, pod: Mapping[str, Any]) -> None:
        """Five seconds of one pod's life."""
        found, now_s = self._pod(pod), self.harness.clock.at_s
        if not found.scheduled:
            found.scheduled = sum(each.scheduled for each in self._pods.values()) < self.nodes
            if found.scheduled:
                found.born_s = now_s
        state: dict[str, Any] = {}
        age_s = now_s - found.born_s
        if found.scheduled and not found.engine.pulls:
            state = {"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}
        elif found.engine.crashes and found.scheduled:
            found.restarts = int(age_s // 60)
            state = {"waiting": {"reason": "CrashLoopBackOff"}}
        elif found.scheduled and age_s >= found.engine.start_s:
            found.ready_s = now_s if found.ready_s is None else found.ready_s
            after_s = found.engine.crash_after_s
            if after_s is not None and now_s - found.ready_s >= after_s:
                found.restarts, found.ready_s, found.born_s = found.restarts + 1, None, now_s
        if found.ready_s is not None and self.traffic and found.leaves_s is None:
            self._serve(found)
        self._show(pod, found, state)

    def _serve(self, pod: _Pod) -> None:
        steps = TICK_S / STEP_S
        noise = 1 + self._random.gauss(0, 0.01)
        requests = TICK_S * 2
        pod.steps += steps
        pod.tokens += steps * BATCH * 3.0 * pod.engine.speed * noise
        pod.requests += requests
        pod.failed += requests * pod.engine.failing
        pod.slow += requests * pod.engine.slow

    def _show(self, pod: Mapping[str, Any], found: _Pod, state: Mapping[str, Any]) -> None:
        ready = found.ready_s is not None and found.leaves_s is None
        conditions = [
            {
                "type": "Ready",
                "status": "True" if ready else "False",
                "lastTransitionTime": _rfc(found.ready_s or found.born_s),
            }
        ]
        if not found.scheduled:
            message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
            conditions.append({"type": "PodScheduled", "status": "False", "message": message})
        ended = {"terminated": {"exitCode": 1, "reason": "Error"}} if found.restarts else {}
        status = {
            "phase": "Running" if found.scheduled else "Pending",
            "podIP": "10.0.0.1",
            "conditions": conditions,
            "containerStatuses": [
                {
                    "name": "vllm",
                    "image": pod["spec"]["containers"][0]["image"],
                    "restartCount": found.restarts,
                    "state": dict(state),
                    "lastState": ended,
                }
            ],
        }
        if pod.get("status") != status:
            self.harness.kube.put(
                POD, {**self.harness.kube.find(POD, pod["metadata"]["name"]), "status": status}
            )

    def _pod(self, pod: Mapping[str, Any]) -> _Pod:
        return self._pods[pod["metadata"]["name"]]

    def _serves(self, pod: Mapping[str, Any]) -> bool:
        found = self._pod(pod)
        return found.ready_s is not None and found.leaves_s is None

    def _note(self) -> None:
        now = (self.stage, {name: count for name, count in self.asked().items() if count})
        if not self.steps or self.steps[-1] != now:
            self.steps.append(now)
        self.least_ready = min(self.least_ready, sum(self.ready().values()))
        self.most_held = max(self.most_held, sum(each.scheduled for each in self._pods.values()))


def _letter(pod: Mapping[str, Any]) -> str:
    """Letter of its revision: `A`, `B` or `C`, by the image's last digit."""
    return "ABC"[int(pod["spec"]["containers"][0]["image"][-1])]


def _rfc(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")
