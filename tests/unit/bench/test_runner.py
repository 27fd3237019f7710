"""A bench is carried out: what is made, watched, kept and removed, and what ends it early."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from fathom.adapters.ports import KubeError
from fathom.bench.log import Heard
from fathom.bench.planning import planned
from fathom.bench.request import BenchRefusedError, BenchRequest
from fathom.bench.result import found
from fathom.bench.runner import follow, keep, remove, start, under_way
from fathom.cluster.kinds import CONFIG_MAP, DEPLOYMENT, JOB, PERSISTENT_VOLUME_CLAIM, Kind
from fathom.cluster.manifest import Manifest
from support.job_scene import JobScene
from support.loop_harness import ManualClock
from unit.bench.benches import BUNDLE, PROGRAM, log, result_line, sample

SD = sample()
ENDED = '{"said":"end"}'


@dataclass
class Scene(JobScene):
    """It benches."""

    job_name = "kimi-bench"

    said: list[Heard] = field(default_factory=list)

    async def start(self, source: str = "random") -> None:
        harness = planned(SD, BenchRequest(prompts=(source,)), BUNDLE)
        await start(self.cluster, SD, harness, run="r1", deadline_minutes=9, program=PROGRAM)

    async def follow(self, room_s: float = 60.0) -> Heard:
        return await follow(self.cluster, SD, run="r1", room_s=room_s, tell=self.said.append)

    def job_has(self, condition: str, message: str = "") -> None:
        self.kube.put(
            JOB, job(conditions=[{"type": condition, "status": "True", "message": message}])
        )


def job(**status: Any) -> dict[str, Any]:
    metadata = {
        "name": "kimi-bench",
        "namespace": "llm",
        "uid": "uid-of-job",
        "annotations": {"fathom.dev/bench-run": "r1"},
    }
    return {"metadata": metadata, "status": status}


def unschedulable() -> dict[str, Any]:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    }
    return {"phase": "Pending", "conditions": [condition]}


async def test_a_job_and_its_code_are_all_that_is_made() -> None:
    scene = Scene()

    await scene.start()

    assert [(each.verb, each.kind, each.name) for each in scene.kube.writes] == [
        ("create", "Job", "kimi-bench"),
        ("create", "ConfigMap", "kimi-bench-r1"),
    ]
    (owner,) = scene.kube.find(CONFIG_MAP, "kimi-bench-r1")["metadata"]["ownerReferences"]
    assert owner["uid"] == scene.kube.find(JOB, "kimi-bench")["metadata"]["uid"]


async def test_another_one_is_not_begun_while_one_is_under_way() -> None:
    scene = Scene()
    scene.kube.put(JOB, job(active=1))

    with pytest.raises(BenchRefusedError, match="A bench is under way, Job llm/kimi-bench"):
        await scene.start()
    assert scene.kube.writes == []


async def test_one_that_has_ended_makes_way() -> None:
    scene = Scene()
    scene.job_has("Complete")

    await scene.start()

    assert [each.verb for each in scene.kube.written("Job")] == ["delete", "create"]


async def test_without_its_code_the_job_does_not_stay() -> None:
    scene = Scene()

    def fail(verb: str, kind: object) -> KubeError | None:
        return KubeError(403, "no") if (verb, kind) == ("create", CONFIG_MAP) else None

    scene.kube.fail = fail
    with pytest.raises(KubeError):
        await scene.start()
    assert scene.kube.names(JOB) == []


async def test_it_is_watched_until_the_pod_says_that_nothing_more_comes() -> None:
    def goes_on(scene: Scene) -> None:
        match scene.pauses:
            case 1:
                scene.pod(phase="Running")
            case 2:
                scene.log = log('{"said":"plan","runs":1}', '{"said":"starting","drafts":true}')
            case 3:
                scene.log += log(result_line(3, 10.0), ENDED)

    scene = Scene(goes_on)
    scene.kube.put(JOB, job(active=1))

    told = await scene.follow()

    assert (len(told.results), told.failures) == (1, ())
    assert [each.now for each in scene.said] == [
        "Job kimi-bench has no pod: `kubectl describe job kimi-bench` says why.",
        "waits for its pod to start",
        "starts the engine with speculation",
    ]


async def test_without_room_it_is_refused_with_what_it_needs() -> None:
    scene = Scene()
    scene.kube.put(JOB, job(active=1))
    scene.pod(**unschedulable())

    with pytest.raises(BenchRefusedError) as refused:
        await scene.follow(room_s=60.0)

    said = str(refused.value)
    assert said.startswith(
        "There is no capacity for the bench: pod kimi-bench-x finds no node: 0/3"
    )
    assert "4 nvidia.com/gpu on one node" in said
    assert "`kubectl scale sd kimi --replicas=0`" in said
    assert scene.clock.at_s == ManualClock().at_s + 60.0


async def test_a_job_whose_pod_is_refused_is_not_waited_for() -> None:
    scene = Scene()
    scene.kube.put(JOB, job(active=0))

    with pytest.raises(BenchRefusedError, match="could not start: Job kimi-bench has no pod"):
        await scene.follow(room_s=60.0)


@pytest.mark.parametrize(
    ("source", "missing"),
    [("pvc:speed/a", "PersistentVolumeClaim llm/speed"), ("configmap:a/b.json", "ConfigMap llm/a")],
)
async def test_prompts_that_are_not_there_are_seen_before_anything_is_made(
    source: str, missing: str
) -> None:
    scene = Scene()

    with pytest.raises(BenchRefusedError, match=f"There is no {missing} to read prompts from"):
        await scene.start(source)
    assert scene.kube.writes == []


async def test_who_may_not_look_for_a_claim_may_bench_it_all_the_same() -> None:
    scene = Scene()

    def fail(verb: str, kind: object) -> KubeError | None:
        forbidden = (verb, kind) == ("get", PERSISTENT_VOLUME_CLAIM)
        return KubeError(403, "no") if forbidden else None

    scene.kube.fail = fail
    await scene.start("pvc:speed/a")

    assert scene.kube.names(JOB) == ["kimi-bench"]


async def test_room_that_comes_in_time_is_taken() -> None:
    def goes_on(scene: Scene) -> None:
        if scene.pauses == 10:
            scene.pod(phase="Running")
        if scene.pauses == 60:
            scene.log = log(ENDED)

    scene = Scene(goes_on)
    scene.kube.put(JOB, job(active=1))
    scene.pod(**unschedulable())

    assert (await scene.follow(room_s=60.0)).ended


async def test_a_pod_that_ends_early_leaves_what_it_had_measured() -> None:
    scene = Scene(log=log('{"said":"plan","runs":4}', result_line(3, 10.0)))
    scene.job_has("Failed", "Job was active longer than specified deadline")
    scene.pod(phase="Failed", message="The node was low on resource: memory.")

    told = await scene.follow()

    assert len(told.results) == 1
    (why,) = told.failures
    assert "Job was active longer than specified deadline" in why
    assert "low on resource" in why


@pytest.mark.parametrize("goes", ["failed", "gone"])
async def test_a_log_that_goes_before_the_job_takes_back_nothing(goes: str) -> None:
    """As with a pod that is drained: kubelet has removed its containers before it is gone."""

    def goes_on(scene: Scene) -> None:
        match scene.pauses:
            case 1:
                scene.log = ""
            case 2 if goes == "failed":
                scene.job_has("Failed", "Job has reached the specified backoff limit")
            case 2:
                scene.kube.remove(JOB, "llm", "kimi-bench")

    scene = Scene(goes_on, log=log('{"said":"plan","runs":4}', result_line(3, 10.0)))
    scene.kube.put(JOB, job(active=1))
    scene.pod(phase="Running")

    told = await scene.follow()

    assert len(told.results) == 1
    (why,) = told.failures
    assert ("backoff limit" if goes == "failed" else "it was deleted") in why


async def test_what_is_gone_for_a_moment_does_not_end_the_watching() -> None:
    def goes_on(scene: Scene) -> None:
        scene.unreadable = None

    scene = Scene(goes_on, log=log(ENDED), unreadable=KubeError(0, "no answer"))
    scene.kube.put(JOB, job(active=1))
    scene.pod(phase="Running")

    assert (await scene.follow()).ended


async def test_a_log_that_may_not_be_read_does() -> None:
    scene = Scene(unreadable=KubeError(403, "pods/log is forbidden"))
    scene.kube.put(JOB, job(active=1))
    scene.pod(phase="Running")

    with pytest.raises(KubeError):
        await scene.follow()


async def test_there_is_nothing_to_follow_without_a_job() -> None:
    with pytest.raises(BenchRefusedError, match="There is no Job llm/kimi-bench"):
        await Scene().follow()


async def test_the_result_takes_the_place_of_the_last() -> None:
    scene = Scene()
    for rate in (10.0, 20.0):
        told = Heard(results=(), failures=(f"{rate}",), ended=True)
        await keep(scene.cluster, SD, found(SD, told, "2026-11-25T16:00:00Z"))

    assert "20.0" in scene.kube.find(CONFIG_MAP, "kimi-bench")["data"]["result.json"]


async def test_what_is_removed_is_the_job_and_nothing_of_the_fleet() -> None:
    scene = Scene()
    scene.kube.put(JOB, job())
    scene.kube.put(DEPLOYMENT, {"metadata": {"name": "kimi-1", "namespace": "llm"}})

    await remove(scene.cluster, SD, "r1")
    await remove(scene.cluster, SD, "r1")

    assert [(each.verb, each.kind) for each in scene.kube.writes] == [("delete", "Job")]


async def test_the_job_of_another_bench_is_neither_followed_nor_removed() -> None:
    scene = Scene()
    scene.kube.put(JOB, job())

    assert await under_way(scene.cluster, SD) == "r1"
    assert await remove(scene.cluster, SD, "r2") == ""
    assert scene.kube.writes == []
    with pytest.raises(BenchRefusedError, match="not the same one any more"):
        await follow(scene.cluster, SD, run="r2", room_s=60.0, tell=scene.said.append)


@pytest.mark.parametrize(("refusals", "left"), [(2, False), (99, True)])
async def test_a_job_that_is_written_to_is_removed_all_the_same(
    refusals: int, *, left: bool
) -> None:
    scene = Scene()
    scene.kube.put(JOB, job())

    def fail(verb: str, kind: object) -> KubeError | None:
        nonlocal refusals
        if (verb, kind) != ("delete", JOB) or not refusals:
            return None
        refusals -= 1
        return KubeError(409, "the object has been modified")

    scene.kube.fail = fail
    why = await remove(scene.cluster, SD, "r1")
    assert bool(scene.kube.names(JOB)) is left
    assert bool(why) is left
    assert "may still hold GPUs" in why or not left


async def test_a_job_whose_creation_nobody_heard_of_does_not_stay() -> None:
    scene = Scene()
    create = scene.kube.create

    async def unheard(kind: Kind, manifest: Manifest) -> Manifest:
        await create(kind, manifest)
        raise KubeError(0, "no answer in 15 s")

    scene.kube.create = unheard  # type: ignore[method-assign]
    with pytest.raises(KubeError):
        await scene.start()
    assert scene.kube.names(JOB) == []
