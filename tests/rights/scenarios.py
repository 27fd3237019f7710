"""What an operator does that needs each of its rights, and what shows that it was done.

Each scenario fails, within its place's patience, where the operator cannot do its part.
"""

import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fathom.api import names
from fathom.api.conditions import AlarmKind, Reason
from fathom.cluster.missing_pods import CREATION_FAILED
from fathom.manifests.config_maps import STATE_KEY
from fathom.tuning.alarms.alarm import Watch
from fathom.tuning.learned_state import TuningState
from local_cluster.kube import MERGE_PATCH, Object
from support.foreign_kinds import crd
from support.hub_server import HubServer, Repository, serving
from support.local_cluster import TestNamespace
from support.operated import SPEC, Resource
from support.operator_process import (
    CRDS,
    LEASES,
    TUNER_CRD,
    Operator,
    install_crd,
    lease_in,
    operator_in,
)
from support.waiting import until

FOREIGN = ("podmonitors.yaml", "leaderworkersets.yaml", "computedomains.yaml")
SERVES_BUDGETS = (1, 21)
"""The release of Kubernetes from which on there is policy/v1."""
STEPWISE = {"rollout": {"canaryMinutes": 0, "maxSurge": 0}}
"""As soon as the canary is ready: it gets no requests to be judged by."""
TWO_DAYS = dt.timedelta(days=2)


@dataclass(frozen=True)
class Place:
    """A namespace, and an operator that serves it with the chart's rights."""

    namespace: TestNamespace
    operator: Operator
    patience_seconds: float

    @property
    def resource(self) -> Resource:
        return Resource(self.namespace, patience_seconds=self.patience_seconds)

    async def until(self, look: Callable[[], Awaitable[object]], what: str) -> None:
        await until(look, what, within_s=self.patience_seconds)

    async def until_there(self, kind: str, *, count: int = 1) -> None:
        async def look() -> bool:
            return len(await self.namespace.all_of(kind)) == count

        await self.until(look, f"{count} {kind}")

    async def until_told(self, reason: str) -> None:
        async def look() -> bool:
            found = await self.namespace.all_of("Event")
            return any(event["reason"] == reason for event in found)

        await self.until(look, f"an event {reason}")


@asynccontextmanager
async def place_in(
    namespace: TestNamespace, directory: Path, patience_seconds: float
) -> AsyncIterator[Place]:
    """A place whose operator leads."""
    async with operator_in(namespace, directory, leader_elect=True) as operator:
        place = Place(namespace, operator, patience_seconds)

        async def leads() -> object:
            return (await lease_in(namespace)).get("holderIdentity")

        await until(leads, "the operator leads")
        yield place


@asynccontextmanager
async def foreign_kinds(namespace: TestNamespace) -> AsyncIterator[None]:
    """Our second kind, and those of others that the operator makes objects of."""
    await install_crd(namespace, yaml.safe_load(TUNER_CRD.read_text(encoding="utf-8")))
    definitions = [crd(file) for file in FOREIGN]
    try:
        for definition in definitions:
            await install_crd(namespace, definition)
        yield
    finally:
        for definition in definitions:
            await namespace.api.request("DELETE", f"{CRDS}/{definition['metadata']['name']}")


async def leads_anew(place: Place) -> None:
    """Its lease is made, read and renewed."""
    place.operator.kill()
    await place.namespace.api.request("DELETE", LEASES.format(place.namespace.name))
    place.operator.start()

    async def renewed() -> bool:
        lease = await lease_in(place.namespace)
        return lease.get("renewTime", "") > lease.get("acquireTime", "~")

    await place.until(renewed, "the lease is made, and then renewed")


async def finds_no_node(place: Place) -> None:
    """A pod that nodes have no room for is told with what the nodes have instead."""
    await place.resource.apply({**SPEC, "replicas": 1, "nodePool": {"accelerator": "H100"}})

    async def told() -> bool:
        degraded = await place.resource.wait("Degraded", "True", "PodUnschedulable")
        return "0 nodes carry" in degraded["message"]

    await place.until(told, "the nodes are said")


async def tunes_pods_of_others(place: Place) -> None:
    """A tuner that selects no pod is told so in its status."""
    manifest = {
        "apiVersion": names.API_VERSION,
        "kind": names.TUNER_KIND,
        "metadata": {"name": "nobodys"},
        "spec": {"selector": {"matchLabels": {"app": "nobodys"}}},
    }
    await place.namespace.create(manifest)

    async def told() -> bool:
        found = await place.namespace.get(names.TUNER_KIND, "nobodys")
        return found is not None and bool(found.get("status", {}).get("conditions"))

    await place.until(told, "the tuner has a status")


async def restarts_for_age(place: Place) -> None:
    """A replica whose acceptance has decayed is started afresh.

    Nobody waits for two days here: pods that no node runs are shown as old ones, and the alarm
    stands in what the tuner remembers.
    """
    template = {"spec": {**SPEC["podTemplate"]["spec"], "schedulerName": "nobody"}}
    rollout = {**STEPWISE["rollout"], "refresh": "Auto"}
    await place.resource.apply({**SPEC, "replicas": 4, "podTemplate": template, "rollout": rollout})
    await place.until_there("Pod", count=4)
    for pod in await place.namespace.all_of("Pod"):
        await _show_as_old(place.namespace, pod)
    await place.resource.wait("Ready", "True")
    before = {pod["metadata"]["uid"] for pod in await place.namespace.all_of("Pod")}
    tuning = names.tuning_config_map(place.resource.name)
    place.operator.kill()
    state = TuningState(watches=(_decay(),), tokens=SPEC["speculation"]["tokens"])
    await place.namespace.patch("ConfigMap", tuning, {"data": {STATE_KEY: state.to_json()}})
    place.operator.start()

    async def restarted() -> bool:
        found = await place.namespace.all_of("Pod")
        return len(before - {pod["metadata"]["uid"] for pod in found}) == 1

    await place.until(restarted, "one pod is restarted")


async def spans_nodes(place: Place) -> None:
    """A group that nobody can make is told in the cluster's words; then a tray is enough."""
    wide = {**SPEC["engine"], "tensorParallelSize": 8}
    await place.resource.apply({**SPEC, **STEPWISE, "replicas": 1, "engine": wide})
    await place.until_there("LeaderWorkerSet")
    await place.until_there("ComputeDomain")
    (group,) = await place.namespace.all_of("LeaderWorkerSet")
    await place.namespace.create(_refused_pod(place.namespace, group["metadata"]["name"]))
    # Nobody tells it of events: it looks when something else moves.
    await place.resource.edit({"speculation": {"tuning": {"windowSeconds": 20}}})

    async def told() -> bool:
        degraded = await place.resource.wait("Degraded", "True")
        return "exceeded quota" in degraded["message"]

    await place.until(told, "why there is no pod")
    await place.resource.edit({"engine": {"tensorParallelSize": 4}})
    await place.resource.wait("Ready", "True")
    await place.until_there("LeaderWorkerSet", count=0)
    await place.until_there("ComputeDomain", count=0)


async def fetches_weights(place: Place) -> None:
    """Weights are fetched once into a claim, and what fetched them goes when nobody wants them."""
    repositories = {
        "org/target": Repository({"config.json": b"{}", "model.safetensors": b"w" * 1000}),
        "org/draft": Repository({"config.json": b"{ }", "model.safetensors": b"d" * 1000}),
    }
    gateway = str(place.namespace.cluster.state.network.gateway)
    async with serving(HubServer(repositories), gateway) as hub:
        endpoint = {"name": "HF_ENDPOINT", "value": hub.endpoint}
        models = {"model": {"id": "org/target"}, "draft": {"id": "org/draft"}}
        engine = {**SPEC["engine"], "env": [endpoint]}
        asked = {**SPEC, **STEPWISE, **models, "engine": engine, "replicas": 1}
        await place.resource.apply({**asked, "cache": {"size": "1Gi"}})
        await place.until_told("WeightsFetched")
        await place.resource.wait("Ready", "True")
        await place.resource.edit({"cache": None})
        await place.until_there("Job", count=0)
        await place.until_there("PersistentVolumeClaim")


async def serves(place: Place) -> None:
    """Pods come, learn of a new depth, and make room for others; what is not asked for goes."""
    resource = place.resource
    await resource.apply({**SPEC, **STEPWISE, "replicas": 1})
    await resource.wait("Ready", "True")
    await place.until_told("AllReplicasReady")
    await place.until_there("PodMonitor")
    if place.namespace.release >= SERVES_BUDGETS:
        await place.until_there("PodDisruptionBudget")
    never = {"rollout": {"podDisruptionBudget": "Never"}, "metrics": {"podMonitor": "Never"}}
    await resource.edit({"speculation": {"tokens": 2}, **never})

    async def nudged() -> bool:
        (pod,) = await place.namespace.all_of("Pod")
        return names.ANNOTATION_DEPTH_GENERATION in pod["metadata"].get("annotations", {})

    await place.until(nudged, "the pod is told of its new depth")
    elsewhere = {"spec": {"selector": {names.LABEL_ROLE: "nobody"}}}
    await place.namespace.patch("Service", resource.name, elsewhere)

    async def mended() -> bool:
        found = await place.namespace.get("Service", resource.name)
        return found is not None and found["spec"]["selector"][names.LABEL_ROLE] != "nobody"

    await place.until(mended, "somebody's edit of the Service is taken back")
    await place.until_there("PodMonitor", count=0)
    if place.namespace.release >= SERVES_BUDGETS:
        await place.until_there("PodDisruptionBudget", count=0)
    await resource.edit({"speculation": {"tuning": {"mode": "Static"}}})

    async def replaced() -> bool:
        found = await place.namespace.all_of("ConfigMap")
        left = {each["metadata"]["name"] for each in found}
        plugin = any(name.startswith(f"{resource.name}-plugin") for name in left)
        return not plugin and len(await place.namespace.all_of("Deployment")) == 1

    await place.until(replaced, "the old Deployment goes, and what its pods mounted")
    await resource.wait("Progressing", "False", "UpToDate")


Scenario = Callable[[Place], Awaitable[None]]
SCENARIOS: Mapping[str, Scenario] = {
    "leads anew": leads_anew,
    "finds no node": finds_no_node,
    "tunes pods of others": tunes_pods_of_others,
    "restarts for age": restarts_for_age,
    "spans nodes": spans_nodes,
    "fetches weights": fetches_weights,
    "serves": serves,
}
"""Those that are over soonest first."""


async def _show_as_old(namespace: TestNamespace, pod: Object) -> None:
    since = (dt.datetime.now(dt.UTC) - TWO_DAYS).strftime("%Y-%m-%dT%H:%M:%SZ")
    (container,) = pod["spec"]["containers"]
    running: dict[str, Any] = {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": True,
        "restartCount": 1,
        "state": {"running": {"startedAt": since}},
    }
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
    status = {"phase": "Running", "conditions": [ready], "containerStatuses": [running]}
    path = f"{namespace.path('Pod', pod['metadata']['name'])}/status"
    await namespace.api.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)


def _decay() -> Watch:
    raised_s = dt.datetime.now(dt.UTC).timestamp() - 3600
    return Watch(
        kind=AlarmKind.ACCEPTANCE_DECAY,
        reason=Reason.OLDER_REPLICAS_ACCEPT_LESS,
        message="Old ones accept less.",
        recommendation="Restart them.",
        first_seen_s=raised_s,
        last_seen_s=raised_s,
        raised_at_s=raised_s,
        older_than_s=4 * 3600.0,
    )


def _refused_pod(namespace: TestNamespace, name: str) -> Object:
    """What the controller of a group's StatefulSet says when the cluster takes no pod of it."""
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.refused"},
        "involvedObject": {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": name,
            "namespace": namespace.name,
        },
        "reason": CREATION_FAILED,
        "message": "create Pod failed: exceeded quota: gpus",
        "type": "Warning",
        "firstTimestamp": now,
        "lastTimestamp": now,
    }
