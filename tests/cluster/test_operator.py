"""The operator against a real control plane, with simulated engines in real pods."""

from collections.abc import Collection

import pytest

from local_cluster.engine.language import EASY
from local_cluster.engine.traffic import LoadGenerator, Phase
from local_cluster.kube import Object
from support.local_cluster import TestNamespace, is_ready
from support.operated import SIMULATED, SPEC, Resource, operator, resource
from support.operator_process import Operator
from support.waiting import until

__all__ = ["operator", "resource"]

pytestmark = pytest.mark.cluster


@pytest.mark.usefixtures("operator")
async def test_a_bad_spec_is_told_while_replicas_follow(
    namespace: TestNamespace, resource: Resource
) -> None:
    await resource.apply({**SPEC, "replicas": 1})
    await resource.wait("Ready", "True")
    await resource.edit({"engine": {"args": ["--port", "1"]}, "replicas": 2})
    degraded = await resource.wait("Degraded", "True", "InvalidSpec")
    assert "spec.engine.args" in degraded["message"]
    await resource.wait("Ready", "True")
    assert (await resource.get())["status"]["ready"] == "2/2"
    (deployment,) = await namespace.all_of("Deployment")
    assert deployment["spec"]["replicas"] == 2


@pytest.mark.usefixtures("operator")
async def test_a_selector_that_somebody_changed_is_put_right(
    namespace: TestNamespace, resource: Resource
) -> None:
    """An API server merges selectors by key up to Kubernetes 1.21, and later takes them whole."""
    await resource.apply({**SPEC, "replicas": 1})
    await resource.wait("Ready", "True")

    async def selector() -> Object:
        (service,) = await namespace.all_of("Service")
        found: Object = service["spec"]["selector"]
        return found

    ours = await selector()

    async def as_it_was() -> bool:
        return await selector() == ours

    for changes in (
        {"rollouts-pod-template-hash": "6f9cd"},
        {**dict.fromkeys(ours), "app": "another"},
    ):
        await namespace.patch("Service", resource.name, {"spec": {"selector": changes}})
        await until(as_it_was, "the Service selects the pods that serve")


@pytest.mark.usefixtures("operator")
async def test_a_change_that_needs_new_pods_rolls_and_says_so_first(
    namespace: TestNamespace, resource: Resource
) -> None:
    await resource.apply(SPEC)
    await resource.wait("Ready", "True")
    (before,) = await namespace.all_of("Deployment")
    # As soon as the canary is ready: it gets no requests to be judged by.
    await resource.edit({"speculation": {"maxTokens": 4}, "rollout": {"canaryMinutes": 0}})

    async def rolled() -> bool:
        deployments = await namespace.all_of("Deployment")
        names = [each["metadata"]["name"] for each in deployments]
        return len(names) == 1 and names != [before["metadata"]["name"]]

    await until(rolled, "only the new revision is left")
    await resource.wait("Progressing", "False", "UpToDate")
    events = await namespace.all_of("Event")
    (rolling,) = [event for event in events if event["reason"] == "Rolling"]
    assert "spec.speculation.maxTokens" in rolling["message"]


@pytest.mark.usefixtures("operator")
async def test_a_canary_takes_a_replicas_place_where_the_scheduler_finds_no_room(
    namespace: TestNamespace, resource: Resource
) -> None:
    """All GPUs of one tray are taken, and no other will do."""
    nodes = (await namespace.api.request("GET", "/api/v1/nodes"))["items"]
    tray = next(each for each in nodes if each["status"]["allocatable"].get("nvidia.com/gpu"))
    hostname = {"kubernetes.io/hostname": tray["metadata"]["name"]}
    engine = {**SPEC["engine"], "tensorParallelSize": 4}
    rollout = {"canaryMinutes": 0, "whenNoCapacity": "Wait", "capacityMinutes": 0}
    full = {"engine": engine, "nodePool": {"nodeSelector": hostname}, "rollout": rollout}
    await resource.apply({**SPEC, **full, "replicas": 1})
    await resource.wait("Ready", "True")
    before = {pod["metadata"]["name"] for pod in await namespace.all_of("Pod")}

    await resource.edit({"speculation": {"maxTokens": 4}})
    waits = await resource.wait("Progressing", "False", "NoCapacity")
    assert "Insufficient nvidia.com/gpu" in waits["message"]
    assert before < {pod["metadata"]["name"] for pod in await namespace.all_of("Pod")}

    await resource.edit({"rollout": {"whenNoCapacity": "TakeReplica"}})
    await resource.wait("Progressing", "False", "UpToDate")
    after = await namespace.all_of("Pod")
    assert before.isdisjoint(pod["metadata"]["name"] for pod in after)
    events = await namespace.all_of("Event")
    (takes,) = [each["message"] for each in events if each["reason"] == "TakesReplica"]
    assert "capacity 0 of 1 for about" in takes


@pytest.mark.usefixtures("operator")
async def test_drafting_off_and_mode_static_need_new_pods_and_lose_no_request(
    namespace: TestNamespace, resource: Resource
) -> None:
    """The price is told before it is paid."""
    engine = {name: each for name, each in SPEC["engine"].items() if name != "drainSeconds"}
    vllm = {"name": "vllm", "command": SIMULATED}
    # Engines that drain as they would elsewhere.
    template = {"podTemplate": {"spec": {"containers": [vllm]}}, "engine": engine}
    await resource.apply({**SPEC, **template, "rollout": {"canaryMinutes": 0}})
    await resource.wait("Ready", "True")
    service = await namespace.get("Service", resource.name)
    assert service is not None
    url = f"http://{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"

    async with LoadGenerator(url, "pair") as load:
        load.set_phase(Phase(EASY, concurrency=2, pause_s=0.05))
        for drafting, mode, depth in (("Disabled", "Auto", "off"), ("Enabled", "Static", "3")):
            before = {pod["metadata"]["name"] for pod in await namespace.all_of("Pod")}
            await resource.edit({"speculation": {"drafting": drafting, "tuning": {"mode": mode}}})

            async def rolled(before: Collection[str] = before) -> bool:
                pods = await namespace.all_of("Pod")
                new = [pod for pod in pods if pod["metadata"]["name"] not in before]
                return len(pods) == len(new) == sum(map(is_ready, new)) == 2

            await until(rolled, "only new pods are left, and serve")
            await resource.wait("Progressing", "False", "UpToDate")
            assert (await resource.get())["status"]["depth"]["summary"] == depth
    assert [result.error for result in load.results if not result.ok] == []
    assert len(load.results) > 20
    events = await namespace.all_of("Event")
    rolling = [event["message"] for event in events if event["reason"] == "Rolling"]
    assert sum("spec.speculation.drafting" in message for message in rolling) == 2, rolling


@pytest.mark.usefixtures("operator")
async def test_deletion_leaves_nothing_behind(namespace: TestNamespace, resource: Resource) -> None:
    await resource.apply({**SPEC, "replicas": 1})
    await resource.wait("Ready", "True")
    await resource.delete()

    async def nothing_left() -> bool:
        kinds = ("Deployment", "ReplicaSet", "Pod", "Service", "ConfigMap", "ServiceAccount")
        left = [item for kind in kinds for item in await namespace.all_of(kind)]
        ours = [item for item in left if item["metadata"].get("labels", {}).get("fathom.dev/name")]
        return not ours

    await until(nothing_left, "every child is gone")


async def test_a_signal_stops_it_at_once_and_changes_nothing(
    namespace: TestNamespace, operator: Operator, resource: Resource
) -> None:
    await resource.apply({**SPEC, "replicas": 1})
    await resource.wait("Ready", "True")
    before = len(operator.writes())
    assert await operator.terminate() == 0
    assert operator.writes()[before:] == []
    assert len(await namespace.all_of("Pod")) == 1


async def test_a_pod_that_finds_no_node_says_what_the_nodes_have_instead(
    operator: Operator, resource: Resource
) -> None:
    await resource.apply({**SPEC, "replicas": 1, "nodePool": {"accelerator": "H100"}})
    degraded = await resource.wait("Degraded", "True", "PodUnschedulable")
    assert (
        "finds no node: 0 nodes carry nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3; "
        in degraded["message"]
    )
    assert (
        "4 carry NVIDIA-GB200, 1 carries none: correct nodePool.accelerator"
        in (degraded["message"])
    )
    asked = [event for event in operator.requests() if event.resource == "nodes"]
    await resource.edit({"nodePool": {"accelerator": "GB200"}})
    await resource.wait("Ready", "True")
    assert asked
    assert {event.verb for event in asked} == {"list"}
