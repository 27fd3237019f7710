"""Services: who answers, under which names, and what becomes of open connections."""

import asyncio
from collections import Counter
from typing import Any

import httpx
import pytest

from fathom_local.kube import Object
from support.local_cluster import (
    TestNamespace,
    eventually,
    shell_pod,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

# Answers with the pod's name; a request for /slow takes two seconds, and SIGTERM lets it finish.
SERVER = """
import http.server, os, signal, socketserver, sys, threading, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    def do_GET(self):
        time.sleep(2 if self.path == "/slow" else 0)
        body = os.environ["HOSTNAME"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = False

server = Server(("", 8000), Handler)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
server.server_close()
"""


def web_pod(name: str) -> Object:
    pod = shell_pod(
        name,
        "",
        container={
            "command": ["python3", "-c", SERVER],
            "ports": [{"name": "http", "containerPort": 8000}],
            "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 1},
            "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}},
        },
        terminationGracePeriodSeconds=10,
    )
    pod["metadata"]["labels"] = {"app": "web"}
    return pod


SERVICE: dict[str, Any] = {
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]},
}


async def service_url(namespace: TestNamespace, endpoints: int) -> str:
    service = await namespace.wait("Service", "web", lambda item: item["spec"]["clusterIP"])

    def complete(item: Object) -> bool:
        subsets = item.get("subsets") or []
        return sum(len(subset.get("addresses", [])) for subset in subsets) == endpoints

    await namespace.wait("Endpoints", "web", complete)
    return f"http://{service['spec']['clusterIP']}"


async def answers(http: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(url)).is_success
    except httpx.TransportError:
        return False


async def test_service_spreads_requests_over_ready_pods(
    namespace: TestNamespace, http: httpx.AsyncClient
) -> None:
    await namespace.create(web_pod("a"), web_pod("b"), SERVICE)
    await namespace.wait_ready("a", "b")
    url = await service_url(namespace, endpoints=2)
    await eventually(lambda: answers(http, url), "an answer from the service")
    seen = Counter([(await http.get(url)).text for _ in range(40)])
    # In turn, but for a connection that has not quite ended when the next one begins.
    assert seen.total() == 40
    assert min(seen["a"], seen["b"]) >= 15


async def test_service_names_resolve_in_pods(namespace: TestNamespace) -> None:
    await namespace.create(web_pod("a"), SERVICE)
    await namespace.wait_ready("a")
    await service_url(namespace, endpoints=1)
    name = namespace.name
    names = f"web web.{name} web.{name}.svc web.{name}.svc.cluster.local"
    printed = await namespace.run(
        f"for n in {names}; do curl -sS --retry 5 --retry-connrefused http://$n/; echo; done"
    )
    assert printed.split() == ["a"] * 4


async def test_service_without_ready_pods_refuses_connections(
    namespace: TestNamespace, http: httpx.AsyncClient
) -> None:
    await namespace.create(SERVICE)
    url = await service_url(namespace, endpoints=0)
    with pytest.raises(httpx.ConnectError):
        await http.get(url)


async def test_leaving_pod_finishes_its_requests_and_gets_no_new_ones(
    namespace: TestNamespace, http: httpx.AsyncClient
) -> None:
    await namespace.create(web_pod("a"), SERVICE)
    await namespace.wait_ready("a")
    url = await service_url(namespace, endpoints=1)
    await eventually(lambda: answers(http, url), "an answer from the service")
    slow = asyncio.create_task(http.get(f"{url}/slow"))
    await namespace.create(web_pod("b"))
    await namespace.wait_ready("b")
    await namespace.delete("Pod", "a")

    async def only_b() -> bool:
        return {(await http.get(url)).text for _ in range(4)} == {"b"}

    await eventually(only_b, "all new requests go to the other pod", seconds=5)
    answer = await slow
    assert (answer.status_code, answer.text) == (200, "a")
    await namespace.wait_gone("Pod", "a")
