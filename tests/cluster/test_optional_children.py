"""A child of somebody else's kind, against a real API server that has it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.foreign_kinds import crd
from support.local_cluster import TestNamespace
from support.operated import SPEC, Resource, resource
from support.operator_process import CRDS, Operator, install_crd, operator_in
from support.waiting import until

__all__ = ["resource"]

pytestmark = pytest.mark.cluster

SERVES_BUDGETS = (1, 21)
"""The release of Kubernetes from which on there is policy/v1."""


@pytest.fixture
async def operator(namespace: TestNamespace, tmp_path: Path) -> AsyncIterator[Operator]:
    """An operator that starts on a cluster with PodMonitors."""
    definition = crd("podmonitors.yaml")
    await install_crd(namespace, definition)
    try:
        async with operator_in(namespace, tmp_path) as operator:
            yield operator
    finally:
        await namespace.api.request("DELETE", f"{CRDS}/{definition['metadata']['name']}")


async def test_a_pod_monitor_comes_rests_and_goes(
    namespace: TestNamespace, operator: Operator, resource: Resource
) -> None:
    await resource.apply({**SPEC, "replicas": 0})
    progressing = await resource.wait("Progressing", "False")
    (monitor,) = await namespace.all_of("PodMonitor")
    assert monitor["spec"]["podMetricsEndpoints"] == [
        {"port": "http", "path": "/metrics", "interval": "15s"}
    ]
    assert monitor["metadata"]["ownerReferences"][0]["kind"] == "SpeculativeDeployment"
    left_out = str((await resource.get())["status"].get("leftOut", []))
    assert "No Pod" not in progressing["message"]
    assert "No PodMonitor" not in left_out
    unserved = "No PodDisruptionBudget, as this cluster does not serve policy/v1"
    assert (unserved in left_out) is (namespace.release < SERVES_BUDGETS)

    version = monitor["metadata"]["resourceVersion"]
    await resource.edit({"metrics": {"podMonitor": "Never"}})

    async def gone() -> bool:
        return await namespace.all_of("PodMonitor") == []

    await until(gone, "the PodMonitor goes when it is not asked for")
    applied = [e for e in operator.writes() if e.resource == "podmonitors" and e.verb == "patch"]
    assert len(applied) == 1, f"written again although it was at rest at version {version}"
