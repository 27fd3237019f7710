"""A check in the loop: what a pass has to hold, to keep and to say, and what engines are sent."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fathom.adapters.ports import PodEndpoint
from fathom.api import names
from fathom.api.status import QualityResult, QualityStatus, SpeculativeDeploymentStatus
from fathom.cluster.events import Severity
from fathom.cluster.kinds import ServedApis
from fathom.cluster.manifest import Meta
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.snapshot import Objects, Snapshot
from fathom.engine.depth import DepthDocument, flat
from fathom.measurement.counters import EngineCounts, PodCounters
from fathom.quality.check import PROMPTS, QUALITY_KEY
from fathom.quality.comparison import Completion, CompletionRequest, Unanswered
from fathom.reconcile.annotations import QualityStep, requested
from fathom.runtime.quality_check import QualityChecker
from manifest_samples import resource, started_with
from support.waiting import until

START_S = 1_800_000_000.0


@dataclass
class Engines:
    """A `CompletionsPort`. Each answers when the test lets it."""

    asked: list[tuple[str, str]] = field(default_factory=list)
    """Pod and model."""
    answer: Completion | Unanswered = field(
        default_factory=lambda: Completion(token_ids=(1, 2), text="x", prompt_token_ids=(9,))
    )
    open: asyncio.Event = field(default_factory=asyncio.Event)
    at_once: dict[str, int] = field(default_factory=dict)
    most_at_once: int = 0

    async def complete(
        self, pod: PodEndpoint, model: str, request: CompletionRequest
    ) -> Completion | Unanswered:
        assert (pod.namespace, pod.ip, pod.port) == ("llm", "10.0.0.1", 8000)
        assert request.prompt in PROMPTS
        self.asked.append((pod.pod, model))
        self.at_once[pod.pod] = self.at_once.get(pod.pod, 0) + 1
        self.most_at_once = max(self.most_at_once, self.at_once[pod.pod])
        await self.open.wait()
        self.at_once[pod.pod] -= 1
        return self.answer


def pod(name: str, annotations: Mapping[str, str] | None = None) -> ObservedPod:
    return ObservedPod.model_validate(
        {
            "metadata": {
                "name": name,
                "namespace": "llm",
                "labels": {names.LABEL_ROLE: "leader", names.LABEL_REVISION: "r1"},
                "annotations": dict(annotations or {}),
            },
            "spec": {"containers": [{"args": started_with(range(8))}]},
            "status": {
                "podIP": "10.0.0.1",
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "lastTransitionTime": "2027-01-15T08:00:00Z",
                    }
                ],
            },
        }
    )


@dataclass
class Cluster:
    """What the operator reads and writes, for one resource; and engines that obey."""

    request: str = "one"
    uid: str = "uid-1"
    changes: dict[str, Any] = field(default_factory=dict)
    pods: tuple[ObservedPod, ...] = (pod("pod-a"), pod("pod-b"))
    now_s: float = START_S
    document: DepthDocument = field(
        default_factory=lambda: DepthDocument(generation=3, schedule=flat(5, 256))
    )
    kept: dict[str, str] = field(default_factory=dict)
    status: QualityStatus | None = None
    engines: Engines = field(default_factory=Engines)
    schedule_hash: int = 0
    """What engines show of the schedule in force; 0: they show nothing."""
    named: bool = True
    told: list[tuple[str, str]] = field(default_factory=list)
    wakes: int = 0

    def __post_init__(self) -> None:
        self.checker = self.restarted()

    def restarted(self) -> QualityChecker:
        """A new operator's."""

        def wake() -> None:
            self.wakes += 1

        self.checker = QualityChecker(self.engines, wake)
        return self.checker

    def snapshot(self) -> Snapshot:
        asked = {names.ANNOTATION_CHECK_QUALITY: self.request} if self.request else {}
        metadata = Meta(name="kimi", namespace="llm", uid=self.uid, annotations=asked)
        counters = {
            each.name: PodCounters(
                pod=each.name,
                at_s=self.now_s,
                started_at_s=START_S,
                engine=EngineCounts(),
                live_depth=True,
                depth_generation=self.document.generation,
                schedule_hash=self.schedule_hash,
                named=self.named,
            )
            for each in self.pods
        }
        objects = Objects(
            read_at_s=self.now_s,
            resource={},
            metadata=metadata,
            status=SpeculativeDeploymentStatus(quality=self.status),
            workloads=(),
            pods=self.pods,
            config_maps=(),
            depth=self.document,
            tuning=dict(self.kept),
            live={},
        )
        return Snapshot(
            now_s=self.now_s,
            objects=objects,
            counters=counters,
            metrics_failures=(),
            served=ServedApis(),
        )

    async def tick(self) -> QualityStep:
        """One pass: the check's step, and all of it carried out."""
        self.now_s += 5
        sd = resource(self.changes)
        step = await self.checker.advance(self.snapshot(), self.pods, sd, live=sd.engine.live)
        pods = {name: flat(depth, 256) for name, depth in step.holds.items()}
        if pods != self.document.pods:
            self.document = DepthDocument(
                generation=self.document.generation + 1, schedule=flat(5, 256), pods=pods
            )
        self.kept = {} if step.kept is None else {QUALITY_KEY: step.kept}
        self.status = step.status
        self.told += [(each.severity, each.reason) for each in step.events]
        return step

    async def answers(self) -> None:
        """Let the engines speak, until the loop is woken, as all is there."""
        before = self.wakes
        self.engines.open.set()
        await until(lambda: self.wakes != before, "the loop to be woken")

    async def asking(self) -> None:
        """Held, in force, and the first prompts are under way."""
        await self.tick()
        await self.tick()
        await until(lambda: len(self.engines.asked) >= 2, "the first prompts")


@pytest.fixture
async def cluster() -> Any:
    made = Cluster()
    yield made
    await made.checker.stop()


async def test_a_request_is_carried_out_and_answered_once(cluster: Cluster) -> None:
    first = await cluster.tick()
    assert first.holds == {"pod-a": 0, "pod-b": 5}
    assert (first.status, first.events, cluster.engines.asked) == (None, (), [])

    await cluster.asking()
    assert (await cluster.tick()).holds == {"pod-a": 0, "pod-b": 5}
    await cluster.answers()
    last = await cluster.tick()

    assert (last.holds, last.kept) == ({}, None)
    assert last.status is not None
    assert (last.status.request_id, last.status.result) == ("one", QualityResult.LOSSLESS)
    assert len(cluster.engines.asked) == 2 * len(PROMPTS)
    assert {model for _, model in cluster.engines.asked} == {"nvidia/Kimi-K2.6-NVFP4"}
    assert cluster.engines.most_at_once == 1
    assert cluster.told == [(Severity.NORMAL, "QualityChecked")]

    assert await cluster.tick() == replace(last, events=())
    cluster.restarted()
    assert await cluster.tick() == replace(last, events=())
    assert len(cluster.engines.asked) == 2 * len(PROMPTS)


async def test_without_a_request_nothing_is_held_and_the_last_result_stays(
    cluster: Cluster,
) -> None:
    cluster.request = ""
    assert await cluster.tick() == QualityStep(holds={}, status=None, kept=None)

    cluster.status = QualityStatus(request_id="old", at="", result=QualityResult.DIFFERS)
    assert await cluster.tick() == QualityStep(holds={}, status=cluster.status, kept=None)


async def test_an_engine_that_runs_another_document_of_this_number_is_asked_nothing(
    cluster: Cluster,
) -> None:
    cluster.schedule_hash = 99
    for _ in range(5):
        assert (await cluster.tick()).holds == {"pod-a": 0, "pod-b": 5}
    assert cluster.engines.asked == []


async def test_an_engine_that_would_not_find_its_entry_is_not_held(cluster: Cluster) -> None:
    cluster.named = False
    step = await cluster.tick()
    assert step.holds == {}
    assert step.status is not None
    assert step.status.result is QualityResult.NOT_CHECKED
    assert "does not know its pod's name" in step.status.message


async def test_the_served_name_is_asked(cluster: Cluster) -> None:
    cluster.changes = {"model.servedName": "kimi"}

    await cluster.asking()

    assert {model for _, model in cluster.engines.asked} == {"kimi"}


async def test_a_restarted_operator_sends_the_prompts_again(cluster: Cluster) -> None:
    await cluster.asking()
    await cluster.checker.stop()
    cluster.restarted()

    step = await cluster.tick()
    assert step.holds == {"pod-a": 0, "pod-b": 5}
    await cluster.answers()
    await cluster.tick()

    assert cluster.status is not None
    assert cluster.status.result is QualityResult.LOSSLESS
    assert len(cluster.engines.asked) == 2 + 2 * len(PROMPTS)


async def test_a_depth_that_came_into_force_while_nobody_looked_is_awaited(
    cluster: Cluster,
) -> None:
    await cluster.tick()
    cluster.now_s += 3600
    cluster.restarted()

    await cluster.asking()
    await cluster.answers()
    await cluster.tick()

    assert cluster.status is not None
    assert cluster.status.result is QualityResult.LOSSLESS


@pytest.mark.parametrize("restarted", [True, False])
async def test_what_no_operator_waited_for_was_not_waited_for(
    cluster: Cluster, *, restarted: bool
) -> None:
    """In an hour for which it was away, or paused."""
    await cluster.asking()
    if restarted:
        await cluster.checker.stop()
        cluster.restarted()
    cluster.now_s += 3600

    assert (await cluster.tick()).holds == {"pod-a": 0, "pod-b": 5}
    await cluster.answers()
    await cluster.tick()

    assert cluster.status is not None
    assert cluster.status.result is QualityResult.LOSSLESS


async def test_an_engine_that_fell_silent_while_nobody_looked_is_asked_again(
    cluster: Cluster,
) -> None:
    cluster.engines.answer = Unanswered("Pod llm/pod-a does not answer.")
    await cluster.asking()
    await cluster.answers()
    cluster.engines.answer = Completion(token_ids=(1, 2), text="x", prompt_token_ids=(9,))
    cluster.now_s += 3600
    await cluster.tick()
    await cluster.answers()
    await cluster.tick()

    assert cluster.status is not None
    assert cluster.status.result is QualityResult.LOSSLESS


@pytest.mark.parametrize("set_back_s", [0.0, 3600.0])
async def test_what_was_watched_in_vain_ends(cluster: Cluster, set_back_s: float) -> None:
    await cluster.asking()
    cluster.now_s -= set_back_s
    for _ in range(62):
        await cluster.tick()

    assert cluster.status is not None
    assert cluster.status.result is QualityResult.NOT_CHECKED
    assert "did not answer all prompts within 300 s" in cluster.status.message


async def test_operators_that_end_again_and_again_hold_no_replica_for_ever(
    cluster: Cluster,
) -> None:
    await cluster.tick()
    for _ in range(40):
        cluster.now_s += 100
        cluster.restarted()
        await cluster.tick()

    assert cluster.status is not None
    assert cluster.status.result is QualityResult.NOT_CHECKED


async def test_a_withdrawn_request_lets_go_and_says_nothing(cluster: Cluster) -> None:
    await cluster.asking()
    cluster.request = ""

    step = await cluster.tick()

    assert (step.holds, step.kept, step.status, cluster.told) == ({}, None, None, [])
    assert cluster.wakes == 0


@pytest.mark.parametrize("change", [{"request": "two"}, {"uid": "uid-2"}], ids=str)
async def test_another_request_or_resource_begins_anew(
    cluster: Cluster, change: dict[str, str]
) -> None:
    await cluster.asking()
    for name, value in change.items():
        setattr(cluster, name, value)
    cluster.kept = {}

    await cluster.asking()
    await cluster.answers()
    step = await cluster.tick()

    assert step.status is not None
    assert step.status.request_id == cluster.request
    assert len(cluster.engines.asked) == 2 + 2 * len(PROMPTS)


@pytest.mark.parametrize("request_id", ["another", "zzz"])
async def test_a_restarted_operator_does_not_take_up_what_is_not_asked_for_any_more(
    cluster: Cluster, request_id: str
) -> None:
    await cluster.asking()
    await cluster.checker.stop()
    cluster.request = request_id
    cluster.restarted()

    await cluster.asking()
    await cluster.answers()
    await cluster.tick()

    assert cluster.status is not None
    assert cluster.status.request_id == request_id


async def test_an_engine_that_cannot_be_asked_is_a_warning(cluster: Cluster) -> None:
    cluster.engines.answer = Unanswered("Pod llm/pod-a does not answer.")
    await cluster.asking()
    await cluster.answers()

    step = await cluster.tick()

    assert step.status is not None
    assert step.status.result is QualityResult.NOT_CHECKED
    assert step.status.message == "Pod llm/pod-a does not answer."
    assert len(cluster.engines.asked) == 2
    assert cluster.told == [(Severity.WARNING, "QualityChecked")]


async def test_answers_of_a_pod_that_was_let_go_meanwhile_do_not_count(cluster: Cluster) -> None:
    await cluster.asking()
    await cluster.answers()
    cluster.document = DepthDocument(generation=20, schedule=flat(5, 256))

    step = await cluster.tick()

    assert step.status is not None
    assert step.status.result is QualityResult.NOT_CHECKED
    assert "does not hold pod-a at depth 0" in step.status.message


async def test_a_person_s_pin_is_left_alone(cluster: Cluster) -> None:
    cluster.pods = (pod("pod-a", {names.ANNOTATION_PIN_DEPTH: "2"}), pod("pod-b"), pod("pod-c"))

    assert (await cluster.tick()).holds == {"pod-b": 0, "pod-c": 5}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"speculation.tuning": {"mode": "Static"}}, "Mode Static"),
        ({"engine.image": "vllm/vllm-openai:v0.28.0"}, "Depth cannot be changed live: "),
    ],
)
async def test_where_depth_is_not_live_it_is_said(
    cluster: Cluster, changes: dict[str, Any], why: str
) -> None:
    cluster.changes = changes

    step = await cluster.tick()

    assert step.status is not None
    assert step.status.result is QualityResult.NOT_CHECKED
    assert step.status.message.startswith(why)
    assert cluster.told == [(Severity.WARNING, "QualityChecked")]


def test_an_endless_request_id_is_cut() -> None:
    asked = Meta(name="kimi", annotations={names.ANNOTATION_CHECK_QUALITY: " " + "x" * 1000})

    assert requested(asked) == "x" * 64
    assert requested(Meta(name="kimi")) == ""
