"""One loop on a fake cluster, with a clock of the test's own. Nothing here sleeps."""

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import structlog

from fathom.adapters.ports import MetricsPort, PodEndpoint, Sample
from fathom.api.conditions import Reason
from fathom.cluster.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    EVENT,
    POD,
    SPECULATIVE_DEPLOYMENT,
    ObjectKey,
    ServedApis,
)
from fathom.engine.depth import DepthDocument, flat
from fathom.engine.plugin import PluginBundle
from fathom.engine.report import NOTHING_TOLD, EngineReport
from fathom.fetch.state import FetchedBytes, FetchProgram
from fathom.manifests.intake_job import IntakeProgram
from fathom.measurement.counters import EngineCounts, PodCounters, Unread
from fathom.model_facts import ModelFacts
from fathom.model_refs import ModelRef
from fathom.quality.comparison import Completion, CompletionRequest, Unanswered
from fathom.reconcile.loop_state import Decide
from fathom.runtime.caches import NodeCache
from fathom.runtime.child_cache import ChildCache
from fathom.runtime.deployment_loop import DeploymentLoop
from fathom.runtime.gather import read_nodes
from fathom.runtime.ports import Pace, World
from fathom.runtime.telemetry import Telemetry
from fathom.times import rfc3339
from fathom.tuning.interface import Action, TuningDecision, TuningSnapshot
from manifest_samples import manifest
from support.fake_kube import FakeKube

START_S = 1_800_000_000.0
KEY = ObjectKey("llm", "kimi")
AT_ONCE = Pace(settle_s=0, apart_s=0)
"""For loops that need not wait for anybody."""


class ManualClock:
    def __init__(self) -> None:
        self.at_s = START_S
        self.set_forward_s = 0.0
        """By how much it was set, beside the time that has passed."""

    def now_s(self) -> float:
        return self.at_s + self.set_forward_s

    def steady_s(self) -> float:
        return self.at_s


class FakeMetrics:
    """Pods that report what the test says; by default, nothing at all has been counted."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.down = False
        self.generation = 1
        self.schedule_hash = 0
        self.named = True
        self.reports: dict[str, EngineReport] = {}
        """What engines say that they run with, by pod; those that are absent do not say."""
        self.asked: list[str] = []

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        self.asked = [pod.pod for pod in pods]
        if self.down:
            return Sample((), tuple(Unread(pod.pod, "no answer within 5 s") for pod in pods))
        return Sample(
            tuple(
                PodCounters(
                    pod=pod.pod,
                    at_s=self._clock.now_s(),
                    started_at_s=START_S,
                    engine=EngineCounts(),
                    live_depth=True,
                    depth_generation=self.generation,
                    schedule_hash=self.schedule_hash,
                    named=self.named,
                    report=self.reports.get(pod.pod, NOTHING_TOLD),
                )
                for pod in pods
            )
        )


class FakeCompletions:
    """Engines that all say the same."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.requests: list[tuple[str, CompletionRequest]] = []

    async def complete(
        self,
        pod: PodEndpoint,
        model: str,
        request: CompletionRequest,
    ) -> Completion | Unanswered:
        self.asked.append(pod.pod)
        self.requests.append((model, request))
        return Completion(token_ids=(1, 2, 3), text="abc", prompt_token_ids=(9,))


def holding(snapshot: TuningSnapshot) -> TuningDecision:
    """A tuner that never moves: the document that is there, or the first one."""
    settings = snapshot.settings
    first = DepthDocument(generation=1, schedule=flat(settings.tokens, settings.max_batch))
    readable = any(pod.counters is not None for pod in snapshot.pods)
    reason = Reason.NO_TRAFFIC if readable else Reason.NO_METRICS
    return TuningDecision(
        action=Action.HOLD,
        reason=reason,
        message="no requests, nothing to measure." if readable else "no pod's metrics can be read.",
        document=snapshot.document or first,
        state=snapshot.state,
        wake_after_s=30.0,
        measured=None,
    )


class FakeFetches:
    """What a fetch's pod shows; by default it cannot be read."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.shown: tuple[int, int] | None = None
        """Present and total bytes."""
        self.asked: list[str] = []

    async def look(self, pod: PodEndpoint) -> FetchedBytes | None:
        self.asked.append(pod.pod)
        if self.shown is None:
            return None
        return FetchedBytes(self._clock.now_s(), *self.shown)


@dataclass
class LoopHarness:
    """A fake cluster with one SpeculativeDeployment in it."""

    changes: Mapping[str, Any] | None = None
    served: ServedApis = field(default_factory=ServedApis)
    clock: ManualClock = field(default_factory=ManualClock)
    decide: Decide = holding
    models: dict[ModelRef, ModelFacts] = field(default_factory=dict)
    """What is known of models."""
    told: dict[ModelRef, Callable[[], None]] = field(default_factory=dict)
    """Whom to tell when that changes."""

    def __post_init__(self) -> None:
        self.kube = FakeKube(self.served)
        self.metrics = FakeMetrics(self.clock)
        self.completions = FakeCompletions()
        self.fetches = FakeFetches(self.clock)
        self.bundle = PluginBundle({"fathom_vllm/__init__.py": "one = 1\n"}, "aaaaaaaaaa")
        self.loops = 0
        self._serial = itertools.count(1)
        # A canary takes the place of a replica at once: few tests are about room for one more.
        document = manifest({"rollout.maxSurge": 0, **(self.changes or {})})
        document["metadata"]["uid"] = "uid-of-kimi"
        self.kube.put(SPECULATIVE_DEPLOYMENT, document)
        self.loop = self.restart()

    def restart(self) -> DeploymentLoop:
        """A new operator: all that the old one held in memory is gone."""

        async def models(ref: ModelRef, changed: Callable[[], None]) -> ModelFacts:
            self.told[ref] = changed
            return self.models.get(ref, ModelFacts())

        async def served() -> ServedApis:
            return await self.kube.served()

        def metrics_for(_: object, __: str) -> MetricsPort:
            return self.metrics

        self.world = World(
            kube=self.kube,
            children=ChildCache(self.clock),
            nodes=NodeCache(lambda: read_nodes(self.kube), self.clock).get,
            metrics_for=metrics_for,
            completions=self.completions,
            fetches=self.fetches,
            clock=self.clock,
            decide=self._decide,
            models=models,
            served=served,
            bundle=self.bundle,
            program=FetchProgram({"fathom_fetch/__init__.py": "one = 1\n"}, "cccccccccc"),
            intake=IntakeProgram({"fathom_intake/__init__.py": "one = 1\n"}, "dddddddddd"),
            identity="operator-0",
            telemetry=Telemetry(),
        )
        self.loop = DeploymentLoop(KEY, self.world)
        return self.loop

    def _decide(self, snapshot: TuningSnapshot) -> TuningDecision:
        # Looked up anew: a test may exchange the tuner of a running loop.
        return self.decide(snapshot)

    # -- the user

    def edit(self, changes: Mapping[str, Any]) -> None:
        """Set values at dotted paths below spec."""
        document = copy.deepcopy(self.resource)
        for path, value in changes.items():
            *parents, last = path.split(".")
            place = document["spec"]
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = value
        self.kube.put(SPECULATIVE_DEPLOYMENT, document)
        self.loop.wake()

    @property
    def resource(self) -> dict[str, Any]:
        return self.kube.find(SPECULATIVE_DEPLOYMENT, "kimi")

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.resource["status"]
        return found

    def condition(self, kind: str) -> dict[str, Any]:
        return next(each for each in self.status["conditions"] if each["type"] == kind)

    # -- the cluster's controllers

    def play_controllers(self, *, ready: bool = True) -> None:
        """Give each Deployment the pods it asks for, and take away what is too much."""
        for deployment in self.kube.all_of(DEPLOYMENT):
            pods = self.pods_of(deployment["metadata"]["name"])
            template = deployment["spec"]["template"]
            asked = deployment["spec"]["replicas"]
            for pod in pods[asked:]:
                self.kube.remove(POD, "llm", pod["metadata"]["name"])
            for _ in range(len(pods), asked):
                self._start_pod(deployment["metadata"]["name"], template)
        for pod in self.kube.all_of(POD):
            owners = {each["kind"] for each in pod["metadata"].get("ownerReferences", ())}
            if "deletionTimestamp" not in pod["metadata"] and "Job" not in owners:
                self.set_ready(pod["metadata"]["name"], ready=ready)

    def pods_of(self, deployment: str) -> list[dict[str, Any]]:
        return [
            pod for pod in self.kube.all_of(POD) if pod["metadata"]["name"].startswith(deployment)
        ]

    def refuse_pod(self, kind: str, owner: str, message: str, at_s: float) -> None:
        """Kubernetes tells that it refuses a pod of this Job or StatefulSet."""
        self.kube.put(
            EVENT,
            {
                "metadata": {"name": f"{owner}.{message[-5:]}", "namespace": "llm"},
                "involvedObject": {"kind": kind, "name": owner},
                "reason": "FailedCreate",
                "message": message,
                "lastTimestamp": rfc3339(at_s),
            },
        )

    def set_ready(self, pod: str, *, ready: bool = True, **status: Any) -> None:
        found = copy.deepcopy(self.kube.find(POD, pod))
        before = {each["type"]: each for each in found.get("status", {}).get("conditions", [])}
        state = "True" if ready else "False"
        if before.get("Ready", {}).get("status") != state or status:
            found["status"] = {
                "phase": "Running",
                "podIP": "10.0.0.1",
                "conditions": [
                    {"type": "Ready", "status": state, "lastTransitionTime": "2027-01-15T08:00:00Z"}
                ],
                **status,
            }
            self.kube.put(POD, found)

    def lose_pod(self, **status: Any) -> str:
        """A replica's pod is gone; the one in its place is not ready, and has this status.

        Returns:
            The new pod's name.
        """
        (deployment,) = self.kube.names(DEPLOYMENT)
        before = [each["metadata"]["name"] for each in self.pods_of(deployment)]
        self.kube.remove(POD, "llm", before[0])
        self.play_controllers()
        (newest,) = {each["metadata"]["name"] for each in self.pods_of(deployment)} - {*before}
        self.set_ready(newest, ready=False, **status)
        return str(newest)

    def _start_pod(self, deployment: str, template: Mapping[str, Any]) -> None:
        self.kube.put(
            POD,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{deployment}-{next(self._serial)}",
                    "namespace": "llm",
                    "labels": template["metadata"]["labels"],
                    "ownerReferences": [replica_set(deployment)],
                },
                "spec": copy.deepcopy(template["spec"]),
            },
        )

    # -- time

    async def tick(self) -> float | None:
        """One pass after something moved."""
        self.loop.wake()
        return await self.loop.tick()

    async def until_ready(self, passes: int = 12) -> None:
        """Passes and controllers in turn, until nothing moves any more."""
        for _ in range(passes):
            before = self.kube.version
            await self.tick()
            self.play_controllers()
            self.clock.at_s += 1
            if self.kube.version == before:
                return
        raise AssertionError(f"never at rest: {self.kube.writes[-10:]}")

    async def until_rolled(self) -> None:
        """As `until_ready`, with as much time as a rollout and its canary's bake take."""
        for _ in range(400):
            before = self.kube.version
            self.clock.at_s += await self.tick() or 0
            self.play_controllers()
            kept = self.kube.find(CONFIG_MAP, "kimi-tuning")["data"]
            if self.kube.version == before and "rollout.json" not in kept:
                return
        raise AssertionError(f"never at rest: {self.status['rollout']}")

    async def run_for(self, seconds: float) -> None:
        """Passes whenever the loop wants one."""
        until_s = self.clock.at_s + seconds
        while self.clock.at_s < until_s:
            delay = await self.loop.tick()
            if delay is None:
                return
            self.clock.at_s += delay


def replica_set(deployment: str) -> dict[str, Any]:
    """The reference of a pod to its owner."""
    name = f"{deployment}-5d4f8c7b9"
    return {"kind": "ReplicaSet", "name": name, "uid": f"uid-of-{name}", "controller": True}


def moved(decision: TuningDecision, document: DepthDocument, **changes: Any) -> TuningDecision:
    """A decision that changes depth instead."""
    return replace(decision, document=document, **changes)


@pytest.fixture
async def harness() -> LoopHarness:
    """Two replicas, up and at rest."""
    harness = LoopHarness({"replicas": 2})
    await harness.until_ready()
    harness.kube.writes.clear()
    return harness


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """What the loop logs is not what these tests are about."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()
