"""What an API server leaves out of a pod, nodes that die for good, and edits at bad moments.

Also sidecars that restart, and pods that the cluster refuses.
"""

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from fathom.cluster.kinds import DEPLOYMENT, POD
from fathom.tuning.interface import TuningDecision, TuningSnapshot
from support.fake_kube import FakeKube
from support.loop_harness import LoopHarness, holding
from support.played_cluster import Engine, PlayedCluster

NEW = "vllm/vllm-openai:v0.32.1"
NEWEST = "vllm/vllm-openai:v0.32.2"
LONGEST_S = 12 * 3600.0

OMITTED = {"readOnly", "hostNetwork", "hostPID", "tty", "stdin", "initialDelaySeconds"}
"""Fields of a pod: `omitempty` without a pointer in k8s.io/api/core/v1: false and 0 are dropped."""
REPLACED = {"timeoutSeconds": 1, "terminationMessagePath": "/dev/termination-log"}
"""And these get a default in their place."""


def without_zeros(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: without_zeros(each) or REPLACED.get(key, each)
            for key, each in value.items()
            if not (key in OMITTED and not each)
        }
    return [without_zeros(each) for each in value] if isinstance(value, list) else value


def omitting(kube: FakeKube) -> None:
    """As the API server stores Deployments."""
    store = kube._store

    def stored(place: Any, body: dict[str, Any]) -> Any:
        return store(place, without_zeros(body) if place[0] == DEPLOYMENT else body)

    kube._store = stored  # type: ignore[method-assign]


ZEROS: Mapping[str, Mapping[str, Any]] = {
    "a mount that may be written to": {
        "containers": [
            {
                "name": "vllm",
                "volumeMounts": [{"name": "s", "mountPath": "/s", "readOnly": False}],
            }
        ],
        "volumes": [{"name": "s", "emptyDir": {}}],
    },
    "a probe without delay": {
        "containers": [{"name": "vllm", "livenessProbe": {"initialDelaySeconds": 0}}]
    },
    "no network of the host's": {"hostNetwork": False},
    "a probe without time": {
        "containers": [{"name": "vllm", "livenessProbe": {"timeoutSeconds": 0}}]
    },
    "no path for last words": {"containers": [{"name": "vllm", "terminationMessagePath": ""}]},
}


@pytest.mark.parametrize("what", ZEROS)
async def test_what_the_api_server_leaves_out_is_no_tug_of_war(what: str) -> None:
    harness = LoopHarness({"replicas": 2, "podTemplate": {"spec": ZEROS[what]}})
    omitting(harness.kube)
    for _ in range(6):
        await harness.tick()
        harness.play_controllers()
        harness.clock.at_s += 1
    harness.kube.writes.clear()
    await harness.run_for(3600)
    assert harness.condition("Degraded")["status"] == "False", harness.condition("Degraded")[
        "message"
    ]
    assert harness.kube.written("Deployment") == []


def lose_node_for_good(cluster: PlayedCluster, revision: str) -> str:
    """A node is dead: its pod is deleted by the node controller, and no kubelet ever confirms."""
    kube = cluster.harness.kube
    for pod in kube.all_of(POD):
        name = pod["metadata"]["name"]
        if cluster.revision_of(name) == revision and cluster._serves(pod):
            cluster._pods[name].leaves_s = float("inf")
            leaving = copy.deepcopy(pod)
            leaving["metadata"]["deletionTimestamp"] = "2027-01-15T09:00:00Z"
            leaving["metadata"]["deletionGracePeriodSeconds"] = 150
            kube.put(POD, leaving)
            return str(name)
    raise AssertionError


@pytest.mark.parametrize("replicas", [1, 3])
async def test_a_pod_on_a_dead_node_costs_no_serving_replica_in_a_rollout(replicas: int) -> None:
    """The lost replica has been replaced, on a spare node; three hours later someone edits."""
    cluster = PlayedCluster({"replicas": replicas}, nodes=replicas + 1)
    await cluster.settle()
    lose_node_for_good(cluster, "A")
    await cluster.run(3 * 3600)
    assert sum(cluster.ready().values()) == replicas
    cluster.edit({"engine.image": NEW})
    # An engine starts within five minutes here: half an hour is more than a canary needs.
    await cluster.run(1800)
    assert cluster.asked().get("B", 0) >= 1, (cluster.asked(), cluster.ready())


async def test_a_node_that_dies_in_a_rollout_costs_its_replica_only_until_it_is_replaced() -> None:
    """There is a spare node for it."""
    cluster = PlayedCluster({"replicas": 3}, nodes=4)
    await cluster.settle()
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: cluster.ready() == {"A": 1, "B": 2})
    lose_node_for_good(cluster, "B")
    await cluster.run(LONGEST_S, until=lambda: cluster.ready() == {"B": 3})
    await cluster.run(600)
    assert cluster.ready() == {"B": 3}, cluster.harness.condition("Progressing")["message"]


async def test_a_pod_on_a_dead_node_does_not_keep_a_rollout_from_its_end() -> None:
    """It is of the revision before, and is gone only with its Node object."""
    cluster = PlayedCluster({"replicas": 3}, nodes=4)
    await cluster.settle()
    lose_node_for_good(cluster, "A")
    await cluster.run(3600)
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: cluster.ready() == {"B": 3})
    await cluster.run(600)
    assert cluster.stage == "None", cluster.harness.condition("Progressing")["message"]


async def canary_of(cluster: PlayedCluster) -> None:
    """At rest, then edited, until the canary serves."""
    await cluster.settle()
    cluster.edit({"engine.image": NEW})
    await cluster.run(LONGEST_S, until=lambda: cluster.ready().get("B") == 1)


async def test_a_second_edit_takes_the_unproven_canary_and_not_what_is_proven() -> None:
    """Two replicas, A and the canary B, both ready, B failing requests; then C is asked for."""
    cluster = PlayedCluster({"replicas": 2}, {NEW: Engine(failing=0.2)}, nodes=2)
    await canary_of(cluster)
    assert cluster.ready() == {"A": 1, "B": 1}
    cluster.edit({"engine.image": NEWEST})
    await cluster.run(LONGEST_S, until=lambda: cluster.asked().get("C") == 1)
    assert cluster.ready() == {"A": 1}


async def test_a_mending_of_the_canary_is_not_vetoed_for_metrics_that_can_be_read() -> None:
    """As above, to its end: C is as good as A was."""
    cluster = PlayedCluster({"replicas": 2}, {NEW: Engine(failing=0.2)}, nodes=2)
    await canary_of(cluster)
    cluster.edit({"engine.image": NEWEST})
    await cluster.run(LONGEST_S, until=lambda: cluster.stage in {"Promoted", "RolledBack"})
    assert cluster.stage == "Promoted", cluster.harness.status["rollout"]


async def canary_in(harness: LoopHarness) -> str:
    """Edited, until the canary serves; the name of its pod."""
    harness.edit({"engine.image": NEW})
    for _ in range(30):
        harness.clock.at_s += await harness.tick() or 0
        harness.play_controllers()
        if harness.status["rollout"]["reason"] == "CanaryBaking":
            break
    (canary,) = harness.pods_of(f"kimi-{harness.status['rollout']['revision']}")
    return str(canary["metadata"]["name"])


async def test_a_sidecar_that_restarts_is_no_crash_of_the_engine(harness: LoopHarness) -> None:
    """As Istio's proxy does when its certificate cannot be had for a moment."""
    canary = await canary_in(harness)
    statuses = [
        {"name": "vllm", "restartCount": 0, "state": {"running": {}}},
        {"name": "istio-proxy", "restartCount": 1, "state": {"running": {}}},
    ]
    harness.set_ready(canary, containerStatuses=statuses)
    await harness.tick()
    assert harness.status["rollout"]["stage"] == "Canary", harness.status["rollout"]["message"]


async def test_why_a_canary_cannot_be_created_is_what_it_goes_back_for(
    harness: LoopHarness,
) -> None:
    """A ResourceQuota that leaves no room for it says so at once, in the Deployment's status."""
    said = 'pods "kimi" is forbidden: exceeded quota: gpus'
    harness.edit({"engine.image": NEW, "rollout": {"maxUnavailable": 0, "maxSurge": 1}})
    old = harness.kube.names(DEPLOYMENT)[0]
    for _ in range(600):
        harness.clock.at_s += await harness.tick() or 0
        for deployment in harness.kube.all_of(DEPLOYMENT):
            if deployment["metadata"]["name"] != old and "status" not in deployment:
                failure = {"type": "ReplicaFailure", "status": "True", "message": said}
                harness.kube.put(DEPLOYMENT, {**deployment, "status": {"conditions": [failure]}})
        if harness.status["rollout"]["stage"] == "RolledBack":
            break
    rollout = harness.status["rollout"]
    assert (rollout["stage"], rollout["reason"]) == ("RolledBack", "ChildRefused")
    assert said in rollout["message"]
    assert said in harness.condition("Degraded")["message"]


async def test_mode_advise_is_the_stop_button_after_a_roll_back_too(harness: LoopHarness) -> None:
    """What was rolled back may stand for days, and meanwhile somebody wants the tuner to stop."""
    harness.metrics.generation = 0  # no engine takes a depth
    harness.edit({"engine.image": NEW})
    for _ in range(400):
        harness.clock.at_s += await harness.tick() or 0
        harness.play_controllers()
        if harness.status["rollout"]["stage"] == "RolledBack":
            break
    assert harness.status["rollout"]["stage"] == "RolledBack"
    harness.edit({"speculation.tuning": {"mode": "Advise"}})
    modes = set()

    def decide(snapshot: TuningSnapshot) -> TuningDecision:
        modes.add(str(snapshot.settings.mode))
        return holding(snapshot)

    harness.decide = decide
    await harness.run_for(600)
    assert modes == {"Advise"}
    assert harness.status["rollout"]["stage"] == "RolledBack"
