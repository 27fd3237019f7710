"""A SpeculativeDeployment as its user has it, with simulated engines behind it."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from local_cluster.engine.language import EASY
from local_cluster.engine.traffic import LoadGenerator, Phase
from local_cluster.kube import MERGE_PATCH
from support.local_cluster import TestNamespace
from support.operator_process import Operator, operator_in
from support.surfaces import Surfaces
from support.waiting import GUARD_S, until

# Of what the operator mounts, only the depth document concerns a simulated engine: it brings the
# whole of fathom_vllm along, and the mounted part of it would hide the rest.
SIMULATED = ["env", "-u", "PYTHONPATH", "python", "-m", "local_cluster.engine.simulated", "serve"]

SPEC: Mapping[str, Any] = {
    "replicas": 2,
    "model": {"id": "pair"},
    "draft": {"id": "draft"},
    "speculation": {"tokens": 3, "maxTokens": 5},
    # The command below is what really runs.
    "engine": {
        "image": "fathom.local/shell:v0.32.0",
        "version": "0.32.0",
        "tensorParallelSize": 1,
        "drainSeconds": 0,
        # It captures no graphs, so it has all depths.
        "args": ["--max-num-seqs", "16", "--enforce-eager"],
    },
    "podTemplate": {
        "spec": {
            "terminationGracePeriodSeconds": 2,
            "containers": [
                {
                    "name": "vllm",
                    "command": SIMULATED,
                    "lifecycle": {"preStop": None},
                }
            ],
        }
    },
}


class Resource:
    """One SpeculativeDeployment, as its user has it."""

    def __init__(
        self, namespace: TestNamespace, name: str = "sd", patience_seconds: float = GUARD_S
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.patience_seconds = patience_seconds
        self._all = f"/apis/fathom.dev/v1alpha1/namespaces/{namespace.name}/speculativedeployments"

    async def apply(self, spec: Mapping[str, Any]) -> None:
        body = {
            "apiVersion": "fathom.dev/v1alpha1",
            "kind": "SpeculativeDeployment",
            "metadata": {"name": self.name},
            "spec": spec,
        }
        await self.namespace.api.request("POST", self._all, body=body)

    async def edit(self, spec: Mapping[str, Any]) -> None:
        await self.namespace.api.request(
            "PATCH", f"{self._all}/{self.name}", body={"spec": spec}, content_type=MERGE_PATCH
        )

    async def annotate(self, annotations: Mapping[str, str]) -> None:
        await self.namespace.api.request(
            "PATCH",
            f"{self._all}/{self.name}",
            body={"metadata": {"annotations": annotations}},
            content_type=MERGE_PATCH,
        )

    async def report(self, status: Mapping[str, Any]) -> None:
        """As an operator does."""
        await self.namespace.api.request(
            "PATCH",
            f"{self._all}/{self.name}/status",
            body={"status": status},
            content_type=MERGE_PATCH,
        )

    async def get(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.namespace.api.request("GET", f"{self._all}/{self.name}")
        return found

    async def delete(self) -> None:
        await self.namespace.api.request("DELETE", f"{self._all}/{self.name}")

    async def wait(self, kind: str, status: str, reason: str = "") -> dict[str, Any]:
        """The condition, as soon as it is so for the newest generation.

        One that says why the resource is not well is the first thing that people see.
        """
        what, seen = f"{kind} is {status} {reason}".strip(), list[Any]([None])

        async def look() -> dict[str, Any] | None:
            found = await self.get()
            seen[0] = found.get("status")
            for each in (seen[0] or {}).get("conditions", []):
                fresh = each["observedGeneration"] == found["metadata"]["generation"]
                right = (each["type"], each["status"]) == (kind, status)
                if right and fresh and reason in {"", each["reason"]}:
                    if (kind, status) == ("Degraded", "True"):
                        Surfaces.of(found, time.time()).assert_begin_with(each)
                    result: dict[str, Any] = each
                    return result
            return None

        try:
            return await until(look, what, within_s=self.patience_seconds)
        except pytest.fail.Exception as failure:
            pytest.fail(f"{failure.msg} {seen[0]}")


@asynccontextmanager
async def under_traffic(namespace: TestNamespace) -> AsyncIterator[list[LoadGenerator]]:
    """Requests to each pod, nearly all of whose drafts are accepted."""
    async with AsyncExitStack() as stack:
        loads = [
            await stack.enter_async_context(
                LoadGenerator(f"http://{pod['status']['podIP']}:8000", "pair", seed=number)
            )
            for number, pod in enumerate(await namespace.all_of("Pod"))
        ]
        for load in loads:
            load.set_phase(Phase(EASY, concurrency=2))
        yield loads


@pytest.fixture
async def operator(namespace: TestNamespace, tmp_path: Path) -> AsyncIterator[Operator]:
    async with operator_in(namespace, tmp_path) as operator:
        yield operator
        assert not [event for event in operator.requests() if event.code == 403]


@pytest.fixture
async def resource(namespace: TestNamespace) -> Resource:
    return Resource(namespace)
