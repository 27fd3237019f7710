"""The local cluster for tests: one for a whole session, and a namespace for each test.

Import the fixtures in a `conftest.py`; several may, they still share one cluster.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import psutil
import pytest
from kubernetes.aio.client.exceptions import ApiException
from rich.progress import Progress

from local_cluster.cluster import LocalCluster, down, up
from local_cluster.control_plane.binaries import Binaries
from local_cluster.control_plane.obtain import ensure_binaries
from local_cluster.kube import MERGE_PATCH, KubeApi, Object
from local_cluster.state import all_states
from support.waiting import GUARD_S, until

SHELL_IMAGE = "fathom.local/shell:test"

GROUPS = {
    "Pod": ("/api/v1", "pods"),
    "ConfigMap": ("/api/v1", "configmaps"),
    "Secret": ("/api/v1", "secrets"),
    "Service": ("/api/v1", "services"),
    "Endpoints": ("/api/v1", "endpoints"),
    "Event": ("/api/v1", "events"),
    "ServiceAccount": ("/api/v1", "serviceaccounts"),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims"),
    "Deployment": ("/apis/apps/v1", "deployments"),
    "Job": ("/apis/batch/v1", "jobs"),
    "ReplicaSet": ("/apis/apps/v1", "replicasets"),
    "PodMonitor": ("/apis/monitoring.coreos.com/v1", "podmonitors"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
    "SpeculativeDeployment": ("/apis/fathom.dev/v1alpha1", "speculativedeployments"),
    "SpeculationTuner": ("/apis/fathom.dev/v1alpha1", "speculationtuners"),
    "LeaderWorkerSet": ("/apis/leaderworkerset.x-k8s.io/v1", "leaderworkersets"),
    "ResourceClaimTemplate": ("/apis/resource.k8s.io/v1", "resourceclaimtemplates"),
    "ComputeDomain": ("/apis/resource.nvidia.com/v1beta1", "computedomains"),
    "NetworkPolicy": ("/apis/networking.k8s.io/v1", "networkpolicies"),
    "HorizontalPodAutoscaler": ("/apis/autoscaling/v2", "horizontalpodautoscalers"),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "rolebindings"),
}


def own_binaries() -> Binaries:
    """What the control plane is made of, with a kubectl; obtained where it is not there."""
    with Progress(disable=True) as progress:
        return ensure_binaries(progress)


@dataclass(frozen=True)
class TestNamespace:
    """A namespace that one test has for itself."""

    __test__ = False

    cluster: LocalCluster
    api: KubeApi
    name: str

    def path(self, kind: str, name: str = "") -> str:
        group, plural = GROUPS[kind]
        return f"{group}/namespaces/{self.name}/{plural}" + (f"/{name}" if name else "")

    @property
    def release(self) -> tuple[int, int]:
        """Release of Kubernetes, such as (1, 36)."""
        plane = self.cluster.state.control_plane
        assert plane is not None
        return plane.release

    async def create(self, *objects: Object) -> None:
        for item in objects:
            await self.api.request("POST", self.path(item["kind"]), body=item)

    async def get(self, kind: str, name: str) -> Object | None:
        try:
            return await self.api.request("GET", self.path(kind, name))
        except ApiException as error:
            if error.status == 404:
                return None
            raise

    async def all_of(self, kind: str) -> list[Object]:
        listed = await self.api.request("GET", self.path(kind))
        return list(listed["items"])

    async def patch(self, kind: str, name: str, body: Object) -> None:
        await self.api.request("PATCH", self.path(kind, name), body=body, content_type=MERGE_PATCH)

    async def delete(self, kind: str, name: str, **options: Any) -> None:
        await self.api.request("DELETE", self.path(kind, name), body=options or None)

    async def wait(self, kind: str, name: str, holds: Callable[[Object], object]) -> Object:
        """The object, as soon as the condition holds for it."""
        last: list[Object | None] = [None]

        async def look() -> Object | None:
            last[0] = await self.get(kind, name)
            return last[0] if last[0] is not None and holds(last[0]) else None

        try:
            return await until(look, f"{kind} {name} gets there")
        except pytest.fail.Exception as failure:
            pytest.fail(f"{failure.msg} {(last[0] or {}).get('status')}")

    async def wait_gone(self, kind: str, name: str) -> None:
        async def look() -> bool:
            return await self.get(kind, name) is None

        await until(look, f"{kind} {name} is gone")

    async def wait_ready(self, *pods: str) -> list[Object]:
        return [await self.wait("Pod", pod, is_ready) for pod in pods]

    async def wait_available(self, deployment: str, replicas: int) -> list[Object]:
        """The deployment's pods, once so many are available."""
        await self.wait(
            "Deployment",
            deployment,
            lambda item: item["status"].get("availableReplicas", 0) == replicas,
        )
        return [pod for pod in await self.all_of("Pod") if is_ready(pod)]

    def output(self, pod: str, container: str = "main") -> str:
        log = self.cluster.pod_log(self.name, pod, container)
        return log.read_text() if log.exists() else ""

    async def run(self, script: str, **spec: Any) -> str:
        """What a shell script prints that runs to its end in a pod."""
        name = f"run-{uuid.uuid4().hex[:8]}"
        await self.create(shell_pod(name, script, restartPolicy="Never", **spec))
        pod = await self.wait("Pod", name, is_finished)
        assert pod["status"]["phase"] == "Succeeded", self.output(name)
        return self.output(name)


def is_ready(pod: Object) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod["status"].get("conditions", [])
    )


def is_finished(pod: Object) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def container_state(pod: Object, container: str = "main") -> Object:
    statuses = pod["status"].get("containerStatuses", [])
    return next((item for item in statuses if item["name"] == container), {})


def shell_container(script: str, **fields: Any) -> Object:
    return {
        "name": "main",
        "image": SHELL_IMAGE,
        "command": ["bash", "-c", script],
        **fields,
    }


def shell_pod(name: str, script: str, *, container: Object | None = None, **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [shell_container(script, **(container or {}))],
            **spec,
        },
    }


@pytest.fixture(scope="session")
def local_cluster() -> Iterator[LocalCluster]:
    for state in all_states():
        # Of a test run that was killed before it could clean up.
        owner = state.name.removeprefix("test-")
        if owner.isdecimal() and not psutil.pid_exists(int(owner)):
            down(state.name)
    name = f"test-{os.getpid()}"
    yield asyncio.run(up(name, nodes=4))
    down(name)


@asynccontextmanager
async def a_namespace(cluster: LocalCluster) -> AsyncIterator[TestNamespace]:
    """A namespace for as long as the context lasts."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    async with cluster.api() as api:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await api.request("POST", "/api/v1/namespaces", body=body)
        test_namespace = TestNamespace(cluster, api, name)
        await test_namespace.wait("ServiceAccount", "default", lambda _: True)
        yield test_namespace
        await api.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
async def namespace(local_cluster: LocalCluster) -> AsyncIterator[TestNamespace]:
    async with a_namespace(local_cluster) as found:
        yield found


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, timeout=GUARD_S) as client:
        yield client
