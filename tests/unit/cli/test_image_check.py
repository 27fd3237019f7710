"""`fathom check --image`: the Job that asks the engine's image, and how it is waited for."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from kubernetes.aio.client import models

from fathom.adapters.ports import KubeError
from fathom.cli.ask_engine import ROOM_S, ask_image
from fathom.cli.engine_check import (
    EngineAnswer,
    EngineQuestion,
    NotAskedError,
    check_code,
    check_job,
    question_of,
)
from fathom.cluster.kinds import CONFIG_MAP, JOB, PERSISTENT_VOLUME_CLAIM
from fathom.engine.plugin import plugin_bundle
from fathom.resource import SpeculativeDeployment
from fathom_measure.start_probe import PREFIX
from manifest_samples import resource
from support.job_scene import JobScene
from support.loop_harness import ManualClock

BUNDLE = plugin_bundle()
TAKEN = PREFIX + '{"vllm": "0.32.0", "answers": {"leader": {}}}\n'
FULL = {
    "podTemplate": {
        "spec": {
            "imagePullSecrets": [{"name": "pull"}],
            "initContainers": [{"name": "slow", "image": "busybox"}],
            "containers": [{"name": "beside", "image": "busybox"}],
            "volumes": [{"name": "logs", "emptyDir": {}}],
            "priorityClassName": "high",
        }
    },
    "engine.env": [{"name": "VLLM_X", "value": "y"}],
    "cache.claimName": "weights",
    "nodePool.nodeSelector": {"zone": "a"},
}


def question(sd: SpeculativeDeployment) -> EngineQuestion:
    return question_of(sd, BUNDLE)


def pod_of(changes: dict[str, Any], *missing: str) -> dict[str, Any]:
    sd = resource(changes)
    job: Any = check_job(sd, question(sd), run="r1", missing=missing)
    models.V1Job.model_validate(job)
    found: dict[str, Any] = job["spec"]["template"]["spec"]
    return found


def test_the_pod_has_the_image_with_its_variables_and_takes_no_gpu() -> None:
    pod = pod_of(FULL)

    (container,) = pod["containers"]
    assert container["image"] == resource().spec.engine.image
    assert container["command"] == [
        *("python3", "/etc/fathom/check/start_probe.py", "/etc/fathom/check/question.json")
    ]
    assert "args" not in container
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert (env["VLLM_X"], env["NVIDIA_VISIBLE_DEVICES"]) == ("y", "void")
    assert container["resources"] == {"requests": {"cpu": "500m", "memory": "2Gi"}}
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["nodeSelector"] == {"kubernetes.io/arch": "arm64", "zone": "a"}
    for left_out in ("affinity", "initContainers", "priorityClassName", "resourceClaims"):
        assert left_out not in pod


def test_the_pod_mounts_plugin_question_and_cache_and_nothing_of_serving() -> None:
    pod = pod_of(FULL)

    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["cache"]["persistentVolumeClaim"] == {"claimName": "weights"}
    code = {each["configMap"]["name"] for each in volumes.values() if "configMap" in each}
    assert code == {"kimi-check-r1"}
    assert {"fathom-depth", "logs"}.isdisjoint(volumes)
    mounted = {each["name"] for each in pod["containers"][0]["volumeMounts"]}
    assert mounted == set(volumes)


def test_a_claim_that_is_not_there_yet_is_not_waited_for() -> None:
    volumes = {each["name"]: each for each in pod_of(FULL, "weights")["volumes"]}
    assert volumes["cache"] == {"name": "cache", "emptyDir": {}}


def test_an_account_of_the_user_is_kept_and_the_operators_is_not_waited_for() -> None:
    assert "serviceAccountName" not in pod_of({})
    mine = {"podTemplate": {"spec": {"serviceAccountName": "mine"}}}
    assert pod_of(mine)["serviceAccountName"] == "mine"


def test_the_job_ends_by_itself_and_its_code_holds_all_that_it_mounts() -> None:
    sd = resource(FULL)
    job: Any = check_job(sd, question(sd), run="r1", missing=())
    code: Any = check_code(sd, question(sd), run="r1", owner=[])

    spec = job["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 1800)
    assert spec["ttlSecondsAfterFinished"] == 600
    assert "fathom.dev/name" not in job["metadata"]["labels"]
    wanted = {
        item["key"]
        for volume in spec["template"]["spec"]["volumes"]
        for item in volume.get("configMap", {}).get("items", [])
    }
    assert wanted == set(code["data"])


@dataclass
class Scene(JobScene):
    """It asks the engine's image."""

    job_name = "kimi-check-r1"

    told: list[str] = field(default_factory=list)

    async def ask(self, changes: dict[str, Any] | None = None) -> EngineAnswer:
        sd = resource(changes)
        return await ask_image(self.cluster, sd, question(sd), run="r1", tell=self.told.append)

    def job_has(self, condition: str, message: str = "") -> None:
        job = self.kube.find(JOB, "kimi-check-r1")
        conditions = [{"type": condition, "status": "True", "message": message}]
        self.kube.put(JOB, {**job, "status": {"conditions": conditions}})


def waiting(reason: str, message: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    status = {"name": "vllm", "image": "mine:1", "ready": False, "restartCount": 0, "state": state}
    return {"phase": "Pending", "containerStatuses": [status]}


async def test_the_answer_is_read_and_nothing_is_left() -> None:
    def goes_on(scene: Scene) -> None:
        if scene.pauses == 1:
            scene.pod(phase="Running")
        if scene.pauses == 2:
            scene.log = f"INFO a log\n{TAKEN}"

    scene = Scene(goes_on)

    answer = await scene.ask()

    assert answer.vllm == "0.32.0"
    assert [(each.verb, each.kind) for each in scene.kube.writes] == [
        ("create", "Job"),
        ("create", "ConfigMap"),
        ("delete", "Job"),
    ]
    (owner,) = scene.kube.writes[1].body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Job", "kimi-check-r1")
    assert scene.told == []


@pytest.mark.parametrize(
    ("there", "volume"), [(True, "persistentVolumeClaim"), (False, "emptyDir")]
)
async def test_a_claim_is_mounted_where_it_is_there(volume: str, *, there: bool) -> None:
    scene = Scene(lambda scene: scene.pod(phase="Running"), log=TAKEN)
    if there:
        claim = {"metadata": {"name": "weights", "namespace": "llm"}}
        scene.kube.put(PERSISTENT_VOLUME_CLAIM, claim)

    await scene.ask(FULL)

    (cache,) = (
        each
        for each in scene.kube.writes[0].body["spec"]["template"]["spec"]["volumes"]
        if each["name"] == "cache"
    )
    assert volume in cache


async def test_a_pod_that_has_trouble_for_long_is_a_sentence() -> None:
    scene = Scene(lambda scene: scene.pod(**waiting("ErrImagePull", "manifest unknown")))

    with pytest.raises(
        NotAskedError, match=r"could not be started: container vllm of pod .* cannot"
    ):
        await scene.ask()
    assert scene.clock.at_s - ManualClock().at_s == pytest.approx(ROOM_S, abs=5.0)
    assert scene.kube.names(JOB) == []


async def test_without_a_pod_the_job_says_why() -> None:
    with pytest.raises(NotAskedError, match="Job kimi-check-r1 has no pod: `kubectl describe"):
        await Scene().ask()


@pytest.mark.parametrize("condition", ["Failed", "Complete"])
async def test_a_job_that_ends_without_an_answer_is_a_sentence(condition: str) -> None:
    def goes_on(scene: Scene) -> None:
        scene.pod(phase="Running")
        scene.job_has(condition, "Job has reached the specified backoff limit")

    scene = Scene(goes_on, log="python3: No such file or directory\n")

    with pytest.raises(
        NotAskedError, match="Job llm/kimi-check-r1 ended before it answered: python3: No such"
    ):
        await scene.ask()
    assert scene.kube.names(JOB) == []


async def test_an_image_without_vllm_is_a_sentence() -> None:
    scene = Scene(
        lambda scene: scene.pod(phase="Running"), log=PREFIX + '{"failure": "it has no vLLM"}'
    )
    with pytest.raises(NotAskedError, match=r"The image vllm/.* cannot ask vLLM: it has no vLLM\."):
        await scene.ask()


async def test_a_job_that_somebody_deletes_is_a_sentence() -> None:
    scene = Scene(lambda scene: scene.kube.remove(JOB, "llm", "kimi-check-r1"))

    with pytest.raises(NotAskedError, match="Job llm/kimi-check-r1 was deleted before it"):
        await scene.ask()


async def test_what_is_gone_for_a_moment_does_not_end_the_waiting() -> None:
    def goes_on(scene: Scene) -> None:
        scene.kube.fail = lambda _verb, _kind: None
        scene.pod(phase="Running")

    scene = Scene(goes_on, log=TAKEN)
    scene.kube.fail = lambda verb, kind: (
        KubeError(0, "no answer") if (verb, kind) == ("get", JOB) else None
    )

    assert (await scene.ask()).vllm == "0.32.0"


@pytest.mark.parametrize("kind", [JOB, CONFIG_MAP])
async def test_without_a_right_nothing_is_left(kind: object) -> None:
    scene = Scene()
    verbs = {"create", "get", "delete"} if kind == JOB else {"create"}
    scene.kube.fail = lambda verb, which: (
        KubeError(403, "no") if which == kind and verb in verbs else None
    )

    with pytest.raises(KubeError) as refused:
        await scene.ask()
    assert refused.value.forbidden
    assert scene.kube.names(JOB) == []
    # Who may make none need not hear of one that may be left.
    assert scene.told == []


async def test_a_job_that_stays_is_named() -> None:
    scene = Scene(lambda scene: scene.pod(phase="Running"), log=TAKEN)
    scene.kube.fail = lambda verb, kind: (
        KubeError(403, "no right") if (verb, kind) == ("delete", JOB) else None
    )

    await scene.ask()

    (told,) = scene.told
    assert told.startswith("Job llm/kimi-check-r1 may still hold a place on a node: no right.")
