"""What a pod sees, and what becomes of it."""

import asyncio
import base64
from pathlib import Path

import httpx
import pytest

from fathom.adapters.jobs import PodLog
from support.local_cluster import (
    TestNamespace,
    container_state,
    is_finished,
    is_ready,
    shell_container,
    shell_pod,
)
from support.waiting import until

pytestmark = pytest.mark.cluster

SERVE = "exec python3 -m http.server 8000"
READY_WHEN_SERVING = {
    "ports": [{"name": "http", "containerPort": 8000}],
    "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1},
}


async def test_deployment_gets_ready_pods_at_their_own_addresses(
    namespace: TestNamespace, http: httpx.AsyncClient
) -> None:
    await namespace.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "containers": [
                            shell_container(
                                f"echo $NAME > /srv/name; cd /srv; {SERVE}",
                                env=[
                                    {
                                        "name": "NAME",
                                        "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
                                    }
                                ],
                                **READY_WHEN_SERVING,
                            )
                        ],
                    },
                },
            },
        }
    )
    pods = await namespace.wait_available("web", 2)
    answers = {
        (await http.get(f"http://{pod['status']['podIP']}:8000/name")).text.strip() for pod in pods
    }
    assert answers == {pod["metadata"]["name"] for pod in pods}


async def test_gpu_pod_lands_on_a_gb200_node_and_only_if_it_tolerates_it(
    namespace: TestNamespace,
) -> None:
    tolerations = [
        {"key": "kubernetes.io/arch", "value": "arm64", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu", "operator": "Exists"},
    ]
    gpus = {"resources": {"limits": {"nvidia.com/gpu": 4}}}
    await namespace.create(
        shell_pod("tolerant", "sleep 600", container=gpus, tolerations=tolerations),
        shell_pod("intolerant", "sleep 600", container=gpus),
    )
    (tolerant,) = await namespace.wait_ready("tolerant")
    assert tolerant["spec"]["nodeName"].startswith("gb200-")
    intolerant = await namespace.wait(
        "Pod", "intolerant", lambda pod: pod["status"].get("conditions")
    )
    assert intolerant["status"]["conditions"][0]["reason"] == "Unschedulable"


async def test_environment_comes_from_values_fields_config_maps_and_secrets(
    namespace: TestNamespace,
) -> None:
    await namespace.create(
        {"kind": "ConfigMap", "metadata": {"name": "conf"}, "data": {"DEPTH": "3", "K": "7"}},
        {
            "kind": "Secret",
            "metadata": {"name": "token"},
            "data": {"HF": base64.b64encode(b"hf_x").decode()},
        },
    )
    printed = await namespace.run(
        'echo "$1 $DEPTH $P_K $TOKEN $NODE $IP"',
        containers=[
            {
                **shell_container(""),
                "command": ["bash", "-c", 'echo "$1 $DEPTH $P_K $TOKEN $NODE"', "x"],
                "args": ["$(BOTH)/$(UNKNOWN)/$$(BOTH)"],
                "envFrom": [{"prefix": "P_", "configMapRef": {"name": "conf"}}],
                "env": [
                    {"name": "A", "value": "a"},
                    {"name": "BOTH", "value": "$(A)b"},
                    {
                        "name": "DEPTH",
                        "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "DEPTH"}},
                    },
                    {
                        "name": "TOKEN",
                        "valueFrom": {"secretKeyRef": {"name": "token", "key": "HF"}},
                    },
                    {
                        "name": "NODE",
                        "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}},
                    },
                ],
            }
        ],
    )
    assert printed == "ab/$(UNKNOWN)/$(BOTH) 3 7 hf_x cpu-0\n"


async def test_config_map_volume_follows_its_source_all_files_at_once(
    namespace: TestNamespace, http: httpx.AsyncClient
) -> None:
    await namespace.create(
        {"kind": "ConfigMap", "metadata": {"name": "conf"}, "data": {"a": "1", "b": "1"}},
        shell_pod(
            "reader",
            f"cd /conf; {SERVE}",
            container={
                **READY_WHEN_SERVING,
                "volumeMounts": [{"name": "conf", "mountPath": "/conf"}],
            },
            volumes=[{"name": "conf", "configMap": {"name": "conf"}}],
        ),
    )
    (pod,) = await namespace.wait_ready("reader")
    url = f"http://{pod['status']['podIP']}:8000"
    assert (await http.get(f"{url}/a")).text == "1"
    await namespace.patch("ConfigMap", "conf", {"data": {"a": "2", "b": None, "c": "2"}})
    # Who looks now and then would look later: a pod that is made after it has ended by then.
    await namespace.run("true")
    assert (await http.get(f"{url}/a")).text == "2"
    assert (await http.get(f"{url}/c")).text == "2"
    assert (await http.get(f"{url}/b")).status_code == 404
    assert (await http.get(f"{url}/..data/a")).text == "2"


async def test_pod_waits_for_a_config_map_that_is_not_there_yet(namespace: TestNamespace) -> None:
    await namespace.create(
        shell_pod(
            "early",
            "cat /conf/a; sleep 600",
            container={"volumeMounts": [{"name": "conf", "mountPath": "/conf"}]},
            volumes=[{"name": "conf", "configMap": {"name": "late"}}],
        )
    )
    pod = await namespace.wait(
        "Pod",
        "early",
        lambda pod: "late" in str(container_state(pod).get("state", {})),
    )
    assert container_state(pod)["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    await namespace.create({"kind": "ConfigMap", "metadata": {"name": "late"}, "data": {"a": "x"}})
    await namespace.wait_ready("early")


async def test_init_containers_run_first_and_share_volumes(namespace: TestNamespace) -> None:
    mounts = [{"name": "shared", "mountPath": "/dev/shm"}]
    printed = await namespace.run(
        "",
        initContainers=[
            {**shell_container("echo first > /dev/shm/f"), "name": "a", "volumeMounts": mounts},
            {**shell_container("echo second >> /dev/shm/f"), "name": "b", "volumeMounts": mounts},
        ],
        containers=[shell_container("cat /dev/shm/f; stat -fc %T /dev/shm", volumeMounts=mounts)],
        volumes=[{"name": "shared", "emptyDir": {"medium": "Memory"}}],
    )
    assert printed == "first\nsecond\ntmpfs\n"


async def test_what_a_pod_writes_stays_in_the_pod(namespace: TestNamespace) -> None:
    await namespace.run("echo x > /written-by-a-pod; echo x > /tmp/written-by-a-pod")
    assert await namespace.run("ls /written-by-a-pod /tmp/written-by-a-pod 2>&1 | wc -l") == "2\n"


async def test_a_claim_outlives_its_pods_and_its_files_go_with_it(namespace: TestNamespace) -> None:
    await namespace.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    )
    mounted = {
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "container": {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
    }
    await namespace.run("echo first > /data/file", **mounted)
    assert await namespace.run("cat /data/file", **mounted) == "first\n"
    (claim,) = await namespace.all_of("PersistentVolumeClaim")
    assert claim["status"]["phase"] == "Bound"

    volume = f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}"
    folder = Path((await namespace.api.request("GET", volume))["spec"]["hostPath"]["path"])
    assert await asyncio.to_thread((folder / "file").exists)
    await namespace.delete("PersistentVolumeClaim", "data")
    await namespace.wait_gone("PersistentVolumeClaim", "data")

    async def removed() -> bool:
        return not await asyncio.to_thread(folder.exists)

    await until(removed, "the claim's files are gone")


async def test_a_container_leaves_a_message(namespace: TestNamespace) -> None:
    script = "echo all is well > /dev/termination-log"
    await namespace.create(shell_pod("teller", script, restartPolicy="Never"))
    pod = await namespace.wait("Pod", "teller", is_finished)
    ended = container_state(pod)["state"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (0, "all is well\n")


async def test_crashing_container_is_restarted_with_backoff(namespace: TestNamespace) -> None:
    await namespace.create(
        shell_pod(
            "crash",
            "echo about to fail; exit 3",
            container={"terminationMessagePolicy": "FallbackToLogsOnError"},
        )
    )

    def backs_off(pod: dict) -> bool:
        status = container_state(pod)
        waiting = status.get("state", {}).get("waiting", {})
        return status.get("restartCount", 0) >= 2 and waiting.get("reason") == "CrashLoopBackOff"

    pod = await namespace.wait("Pod", "crash", backs_off)
    last = container_state(pod)["lastState"]["terminated"]
    assert last["exitCode"] == 3
    assert "about to fail" in last["message"]
    assert pod["status"]["phase"] == "Running"


@pytest.mark.parametrize(
    ("policy", "script", "phase"),
    [
        ("Never", "exit 4", "Failed"),
        ("Never", "true", "Succeeded"),
        ("OnFailure", "true", "Succeeded"),
    ],
)
async def test_finished_pods_stay_finished(
    namespace: TestNamespace, policy: str, script: str, phase: str
) -> None:
    await namespace.create(shell_pod("once", script, restartPolicy=policy))
    await namespace.wait("Pod", "once", lambda pod: pod["status"]["phase"] == phase)


async def test_unknown_image_is_an_image_pull_error(namespace: TestNamespace) -> None:
    await namespace.create(shell_pod("alien", "true", container={"image": "example.com/alien:1"}))

    def backs_off(pod: dict) -> bool:
        waiting = container_state(pod).get("state", {}).get("waiting", {})
        return waiting.get("reason") == "ImagePullBackOff"

    pod = await namespace.wait("Pod", "alien", backs_off)
    message = container_state(pod)["state"]["waiting"]["message"]
    assert 'No local program stands in for the image "example.com/alien:1"' in message
    assert pod["status"]["phase"] == "Pending"


async def test_program_that_does_not_exist_is_a_create_error(namespace: TestNamespace) -> None:
    await namespace.create(shell_pod("typo", "", container={"command": ["no-such-program"]}))

    def refused(pod: dict) -> bool:
        waiting = container_state(pod).get("state", {}).get("waiting", {})
        return waiting.get("reason") == "CreateContainerError"

    pod = await namespace.wait("Pod", "typo", refused)
    assert "no-such-program" in container_state(pod)["state"]["waiting"]["message"]


async def test_failed_liveness_restarts_the_container(namespace: TestNamespace) -> None:
    await namespace.create(
        shell_pod(
            "sick",
            "touch /tmp/well; sleep 2; rm /tmp/well; sleep 600",
            container={
                "livenessProbe": {
                    "exec": {"command": ["cat", "/tmp/well"]},
                    "initialDelaySeconds": 1,
                    "periodSeconds": 1,
                    "failureThreshold": 2,
                }
            },
        )
    )
    await namespace.wait(
        "Pod", "sick", lambda pod: container_state(pod).get("restartCount", 0) >= 1
    )
    events = await namespace.all_of("Event")
    assert any("Liveness probe failed" in event["message"] for event in events)


async def test_startup_probe_holds_readiness_back(namespace: TestNamespace) -> None:
    """It is up as soon as a ConfigMap says so."""
    probe = {"periodSeconds": 1, "timeoutSeconds": 3600}
    tried = "echo tried > /proc/1/fd/1; cat /gate/up"
    await namespace.create(
        {"kind": "ConfigMap", "metadata": {"name": "gate"}, "data": {}},
        shell_pod(
            "slow",
            "sleep 3600",
            container={
                "startupProbe": {
                    "exec": {"command": ["bash", "-c", tried]},
                    "failureThreshold": 3600,
                    **probe,
                },
                "livenessProbe": {
                    "exec": {"command": ["cat", "/gate/up"]},
                    "failureThreshold": 1,
                    **probe,
                },
                "volumeMounts": [{"name": "gate", "mountPath": "/gate"}],
            },
            volumes=[{"name": "gate", "configMap": {"name": "gate"}}],
        ),
    )
    await until(lambda: namespace.output("slow").count("tried") > 2, "it is tried again and again")
    pod = await namespace.get("Pod", "slow")
    assert pod is not None
    assert "running" in container_state(pod)["state"]
    assert not is_ready(pod)

    await namespace.patch("ConfigMap", "gate", {"data": {"up": "yes"}})

    (ready,) = await namespace.wait_ready("slow")
    assert container_state(ready)["restartCount"] == 0


async def test_drain_runs_the_hook_then_terminates(namespace: TestNamespace) -> None:
    hook = ["bash", "-c", "sleep 1; echo hook > /proc/1/fd/1"]
    await namespace.create(
        shell_pod(
            "drained",
            'trap "echo TERM; exit" TERM; echo up; while true; do sleep 0.1; done',
            container={"lifecycle": {"preStop": {"exec": {"command": hook}}}},
            terminationGracePeriodSeconds=3600,
        )
    )
    await namespace.wait_ready("drained")
    await namespace.delete("Pod", "drained")
    await namespace.wait_gone("Pod", "drained")
    assert namespace.output("drained").splitlines() == ["up", "hook", "TERM"]


async def test_drain_kills_what_has_not_ended_in_its_time(namespace: TestNamespace) -> None:
    await namespace.create(
        shell_pod(
            "deaf",
            'trap "" TERM; echo up; while true; do sleep 0.1; done',
            terminationGracePeriodSeconds=2,
        )
    )
    await namespace.wait_ready("deaf")
    await until(lambda: namespace.output("deaf"), "it is deaf by now")
    await namespace.delete("Pod", "deaf")
    await namespace.wait_gone("Pod", "deaf")
    assert namespace.output("deaf").splitlines() == ["up"]


async def test_forced_deletion_leaves_no_process(namespace: TestNamespace) -> None:
    deaf = 'trap "" TERM; while true; do sleep 1; done'
    await namespace.create(shell_pod("forced", deaf, terminationGracePeriodSeconds=3600))
    (pod,) = await namespace.wait_ready("forced")
    await namespace.delete("Pod", "forced", gracePeriodSeconds=0)
    folder = namespace.cluster.state.directory / "pods" / pod["metadata"]["uid"]

    async def removed() -> bool:
        return not await asyncio.to_thread(folder.exists)

    await until(removed, f"{folder} removed")


async def test_operator_image_runs_this_project_on_a_read_only_root(
    namespace: TestNamespace,
) -> None:
    pod = shell_pod("operator", "", restartPolicy="Never")
    pod["spec"]["containers"] = [
        {
            "name": "main",
            "image": "ghcr.io/fathom-dev/operator:test",
            "args": ["--help"],
            "env": [{"name": "HOME", "value": "/tmp"}],
            "securityContext": {"readOnlyRootFilesystem": True},
            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
        }
    ]
    pod["spec"]["volumes"] = [{"name": "tmp", "emptyDir": {}}]
    await namespace.create(pod)
    finished = await namespace.wait("Pod", "operator", is_finished)
    assert finished["status"]["phase"] == "Succeeded", namespace.output("operator")
    assert "render" in namespace.output("operator")


async def test_read_only_root_refuses_writes_outside_volumes(namespace: TestNamespace) -> None:
    printed = await namespace.run(
        "",
        containers=[
            shell_container(
                "touch /x 2>/dev/null || echo refused; touch /tmp/x && echo allowed",
                securityContext={"readOnlyRootFilesystem": True},
                volumeMounts=[{"name": "tmp", "mountPath": "/tmp"}],
            )
        ],
        volumes=[{"name": "tmp", "emptyDir": {}}],
    )
    assert printed == "refused\nallowed\n"


async def test_output_is_read_through_the_api_server(namespace: TestNamespace) -> None:
    """As `kubectl logs` reads it, and `fathom bench`."""
    await namespace.create(shell_pod("says", "echo one; echo two; sleep 60"))
    log = PodLog(namespace.api.client)

    async def said() -> bool:
        return await log.read(namespace.name, "says", "main") == "one\ntwo\n"

    await until(said, "the pod's output")
    assert await log.read(namespace.name, "nobody", "main") == ""
