"""The external metrics API, as an adapter or KEDA serves it: answers of a real Prometheus."""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from aiohttp import web

from local_cluster.engine.process import free_port
from support.local_cluster import TestNamespace
from support.waiting import GUARD_S

GROUP: Final = "external.metrics.k8s.io"
_SERVICE: Final = "external-metrics"
_API: Final = "/apis/apiregistration.k8s.io/v1/apiservices"


@dataclass(frozen=True)
class Trigger:
    """A trigger of KEDA's for a Prometheus (its scaler `prometheus`)."""

    query: str
    ignores_null_values: bool
    """KEDA's `ignoreNullValues`: no result is 0; otherwise it is an error."""


@asynccontextmanager
async def external_metrics(
    namespace: TestNamespace,
    prometheus: str,
    triggers: Mapping[str, Trigger],
) -> AsyncIterator[None]:
    """Serve every metric of a Prometheus whose label `namespace` is this one.

    The API server asks the Service, and the Service leads to this process.

    Args:
        namespace: whose metrics.
        prometheus: its URL.
        triggers: by the name of a metric: it is what KEDA makes of a query.
    """
    state = namespace.cluster.state
    plane = state.control_plane
    assert plane is not None
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(plane.credentials.server_certificate, plane.credentials.server_key)
    address, port = str(state.network.gateway), free_port()
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        runner = web.AppRunner(_application(session, prometheus, triggers))
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, address, port, ssl_context=tls).start()
        await namespace.create(*_service(address, port))
        await namespace.api.request("POST", _API, body=_api_service(namespace.name))
        name = f"{_API}/v1beta1.{GROUP}"
        stack.push_async_callback(namespace.api.request, "DELETE", name)
        yield


def _application(
    session: aiohttp.ClientSession, prometheus: str, triggers: Mapping[str, Trigger]
) -> web.Application:
    async def resources(_: web.Request) -> web.Response:
        body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/v1beta1"}
        return web.json_response({**body, "resources": []})

    async def values(request: web.Request) -> web.Response:
        labels = dict(
            each.split("=") for each in request.query.get("labelSelector", "").split(",") if each
        )
        labels["namespace"] = request.match_info["namespace"]
        chosen = ",".join(f'{name}="{value}"' for name, value in labels.items())
        trigger = triggers.get(metric := request.match_info["metric"])
        query = {"query": trigger.query if trigger else f"{metric}{{{chosen}}}"}
        async with session.get(
            f"{prometheus}/api/v1/query",
            params=query,
            timeout=aiohttp.ClientTimeout(total=GUARD_S),
        ) as response:
            found = (await response.json())["data"]["result"]
        if trigger and not found:
            if not trigger.ignores_null_values:
                raise web.HTTPInternalServerError(text="no result")
            found = [{"metric": {}, "value": [0, "0"]}]
        items = [_value(metric, each) for each in found]
        body: dict[str, Any] = {"kind": "ExternalMetricValueList", "metadata": {}, "items": items}
        return web.json_response({**body, "apiVersion": f"{GROUP}/v1beta1"})

    application = web.Application()
    root = f"/apis/{GROUP}/v1beta1"
    application.router.add_get(root, resources)
    application.router.add_get(root + "/namespaces/{namespace}/{metric}", values)
    return application


def _value(metric: str, sample: dict[str, Any]) -> dict[str, Any]:
    value = f"{round(float(sample['value'][1]) * 1000)}m"
    return {
        "metricName": metric,
        "metricLabels": sample["metric"],
        "timestamp": "2026-01-01T00:00:00Z",
        "value": value,
    }


def _service(address: str, port: int) -> tuple[dict[str, Any], dict[str, Any]]:
    metadata = {"name": _SERVICE}
    return (
        {
            "kind": "Service",
            "metadata": metadata,
            "spec": {"ports": [{"port": 443, "targetPort": port}]},
        },
        {
            "kind": "Endpoints",
            "metadata": metadata,
            "subsets": [{"addresses": [{"ip": address}], "ports": [{"port": port}]}],
        },
    )


def _api_service(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"v1beta1.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": "v1beta1",
            "service": {"namespace": namespace, "name": _SERVICE},
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }
