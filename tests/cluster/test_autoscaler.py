"""A HorizontalPodAutoscaler by `fathom_utilization`: Kubernetes' own controller decides.

The number comes from a real Prometheus, through the external metrics API. It is set here, as an
operator's own metrics show it; docs/around-the-pods.md has the manifest.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from prometheus_client import Gauge, generate_latest

from fathom.api.conditions import ConditionStatus, ConditionType, Reason
from fathom.api.status import Condition, MeasuredStatus, SpeculativeDeploymentStatus
from fathom.cluster.kinds import ObjectKey
from fathom.runtime.telemetry import Telemetry
from fathom.times import rfc3339
from local_cluster.control_plane.binaries import assets_binaries, cached_binaries
from local_cluster.kube import MERGE_PATCH
from support.external_metrics import Trigger, external_metrics
from support.local_cluster import TestNamespace
from support.operated import SPEC, Resource, operator, resource
from support.prometheus import running_prometheus
from support.waiting import GUARD_S, until

__all__ = ["operator", "resource"]

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).parents[2] / "docs" / "around-the-pods.md"
NOW_S = 1_800_000_000.0
TRIGGER = "s0-prometheus"
"""As KEDA calls the metric of a first trigger."""


class OperatorMetrics:
    """The page of an operator, with one number that is of interest."""

    def __init__(self, key: ObjectKey) -> None:
        self._key = key
        self._telemetry = Telemetry()
        self._waiting = Gauge(
            "vllm:num_requests_waiting",
            "As vLLM's.",
            ["namespace", "pod"],
            registry=self._telemetry.registry,
        )

    def show_waiting(self, requests: int | None) -> None:
        """Show so many requests that wait, as a pod of the resource does; None: no such series."""
        self._waiting.clear()
        if requests is not None:
            pod = f"{self._key.name}-0a1b2c3d-5f6g7-x8z9q"
            self._waiting.labels(self._key.namespace, pod).set(requests)

    def show(self, utilization: float | None) -> None:
        """None: it is not known."""
        served = None if utilization is None else round(1000 * utilization)
        headroom = None if served is None else 1000 - served
        tuning = Condition(
            type=ConditionType.TUNING,
            status=ConditionStatus.TRUE,
            reason=Reason.AT_BEST,
            last_transition_time=rfc3339(NOW_S),
        )
        measured = MeasuredStatus(
            at=rfc3339(NOW_S),
            window_seconds=30,
            tokens_per_second=served,
            headroom_tokens_per_second=headroom,
        )
        status = SpeculativeDeploymentStatus(conditions=(tuning,), measured=measured)
        self._telemetry.reported(self._key, status, NOW_S)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Its address, host and port."""

        async def page(_: web.Request) -> web.Response:
            return web.Response(body=generate_latest(self._telemetry.registry))

        application = web.Application()
        application.router.add_get("/metrics", page)
        runner = web.AppRunner(application)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            yield f"127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def shown(word: str) -> dict[str, Any]:
    """The page's manifest that has this word."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (text,) = (each for each in blocks if word in each)
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def trigger_of(namespace: str, name: str) -> tuple[Trigger, str]:
    """The page's trigger of KEDA's, for this resource; and its threshold."""
    (trigger,) = shown("ScaledObject")["spec"]["triggers"]
    said = trigger["metadata"]
    query = said["query"].replace('"llm"', f'"{namespace}"').replace("kimi-k2", name)
    return Trigger(query, said.get("ignoreNullValues", "true") == "true"), said["threshold"]


def of_keda(manifest: dict[str, Any], threshold: str) -> dict[str, Any]:
    """The autoscaler that KEDA makes of a ScaledObject with one trigger."""
    name = manifest["metadata"]["name"]
    found = deepcopy(manifest)
    found["metadata"]["name"] = f"keda-hpa-{name}"
    found["spec"]["metrics"] = [
        {
            "type": "External",
            "external": {
                "metric": {
                    "name": TRIGGER,
                    "selector": {"matchLabels": {"scaledobject.keda.sh/name": name}},
                },
                "target": {"type": "AverageValue", "averageValue": threshold},
            },
        }
    ]
    return found


def autoscaler(namespace: TestNamespace, name: str) -> tuple[str, dict[str, Any]]:
    """The page's own manifest, for this resource and without the wait; and where it goes."""
    found = shown("fathom_utilization")
    version = "v2" if namespace.release >= (1, 23) else "v2beta2"
    found["apiVersion"] = f"autoscaling/{version}"
    found["metadata"] = {"name": name}
    found["spec"]["scaleTargetRef"]["name"] = name
    found["spec"] |= {"minReplicas": 1, "maxReplicas": 2}
    found["spec"]["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    (metric,) = found["spec"]["metrics"]
    metric["external"]["metric"]["selector"]["matchLabels"]["name"] = name
    where = f"/apis/autoscaling/{version}/namespaces/{namespace.name}/horizontalpodautoscalers"
    return where, found


@asynccontextmanager
async def autoscaling(namespace: TestNamespace, folder: Path) -> AsyncIterator[None]:
    """Kubernetes' own controller, which the local cluster does not run; it looks each second."""
    binaries = assets_binaries() or cached_binaries()
    assert binaries is not None
    only = ["--port=0"] if namespace.release < (1, 24) else []
    with (folder / "autoscaler.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            str(binaries.path("kube-controller-manager")),
            f"--kubeconfig={namespace.cluster.kubeconfig}",
            "--controllers=horizontalpodautoscaling",
            "--horizontal-pod-autoscaler-sync-period=1s",
            *("--leader-elect=false", "--secure-port=0", "--profiling=false"),
            *only,
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.terminate()
            async with asyncio.timeout(GUARD_S):
                await process.wait()


@pytest.mark.usefixtures("operator")
async def test_an_autoscaler_follows_the_utilization_and_holds_where_it_is_not_known(
    namespace: TestNamespace, resource: Resource, tmp_path: Path
) -> None:
    metrics = OperatorMetrics(ObjectKey(namespace.name, resource.name))
    metrics.show(1.0)
    await resource.apply({**SPEC, "replicas": 1})
    await resource.wait("Ready", "True")
    where, manifest = autoscaler(namespace, resource.name)
    trigger, threshold = trigger_of(namespace.name, resource.name)

    async def replicas(number: int) -> None:
        async def reached() -> bool:
            found = await resource.get()
            ready = found["status"]["ready"] == f"{number}/{number}"
            return ready and bool(found["spec"]["replicas"] == number)

        await until(reached, f"the autoscaler asks for {number}, and as many are ready")

    async def holds(name: str) -> bool:
        found = await namespace.api.request("GET", f"{where}/{name}")
        conditions = (found.get("status") or {}).get("conditions") or []
        return ("ScalingActive", "False") in [(c["type"], c["status"]) for c in conditions]

    async with (
        metrics.served() as address,
        running_prometheus(
            [
                {
                    "job_name": "operator",
                    "honor_labels": True,
                    "static_configs": [{"targets": [address]}],
                }
            ],
            tmp_path,
        ) as prometheus,
        external_metrics(namespace, prometheus, {TRIGGER: trigger}),
        autoscaling(namespace, tmp_path),
    ):
        await namespace.api.request("POST", where, body=manifest)
        await replicas(2)

        metrics.show(None)
        await until(lambda: holds(resource.name), "it is not known, and the autoscaler says so")
        assert (await resource.get())["spec"]["replicas"] == 2

        # A rollout and a larger fleet at once: neither stops the other.
        await resource.edit({"speculation": {"maxTokens": 4}, "rollout": {"canaryMinutes": 0}})
        metrics.show(1.0)
        await namespace.api.request(
            "PATCH",
            f"{where}/{resource.name}",
            body={"spec": {"maxReplicas": 3}},
            content_type=MERGE_PATCH,
        )
        await replicas(3)
        await resource.wait("Progressing", "False", "UpToDate")

        metrics.show(0.25)
        await replicas(1)

        # By requests that wait, as KEDA would have it; silence is no reason to have fewer.
        await namespace.api.request("DELETE", f"{where}/{resource.name}")
        keda = of_keda(manifest, threshold)
        metrics.show_waiting(10)
        await namespace.api.request("POST", where, body=keda)
        await replicas(2)
        metrics.show_waiting(None)
        await until(lambda: holds(keda["metadata"]["name"]), "silence, and the autoscaler says so")
        assert (await resource.get())["spec"]["replicas"] == 2
        metrics.show_waiting(1)
        await replicas(1)
