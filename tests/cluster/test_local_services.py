"""Services: who answers, under which names, and what becomes of open connections."""

import asyncio
from collections import Counter
from typing import Any

import httpx
import pytest

from local_cluster.kube import Object
from support.local_cluster import TestNamespace, shell_pod
from support.waiting import until

pytestmark = pytest.mark.cluster

# Answers with the pod's name; a request for /slow takes until SIGTERM, which lets it finish.
SERVER = """
import http.server, os, pathlib, signal, socketserver, sys, threading

told, waiting = threading.Event(), []

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    def do_GET(self):
        body = os.environ["HOSTNAME"].encode()
        if self.path == "/slow":
            waiting.append(self)
            told.wait()
        elif self.path == "/waiting":
            body = str(len(waiting)).encode()
        elif self.path == "/leave":
            pathlib.Path("/tmp/leave").touch()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = False

def end(*_):
    told.set()
    threading.Thread(target=server.shutdown).start()

server = Server(("", 8000), Handler)
signal.signal(signal.SIGTERM, end)
server.serve_forever()
server.server_close()
"""
STAYS_UNTIL_ASKED = "until [ -e /tmp/leave ]; do sleep 0.1; done"


def web_pod(name: str, *, before_it_leaves: str = "true") -> Object:
    pod = shell_pod(
        name,
        "",
        container={
            "command": ["python3", "-c", SERVER],
            "ports": [{"name": "http", "containerPort": 8000}],
            "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 1},
            "lifecycle": {"preStop": {"exec": {"command": ["bash", "-c", before_it_leaves]}}},
        },
        terminationGracePeriodSeconds=3600,
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
    await until(lambda: answers(http, url), "an answer from the service")
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
    await namespace.create(web_pod("a", before_it_leaves=STAYS_UNTIL_ASKED), SERVICE)
    (pod,) = await namespace.wait_ready("a")
    pod_url = f"http://{pod['status']['podIP']}:8000"
    url = await service_url(namespace, endpoints=1)
    await until(lambda: answers(http, url), "an answer from the service")
    slow = asyncio.create_task(http.get(f"{url}/slow"))

    async def arrived() -> bool:
        return (await http.get(f"{pod_url}/waiting")).text == "1"

    await until(arrived, "the slow request is in the pod")
    await namespace.create(web_pod("b"))
    await namespace.wait_ready("b")
    await namespace.delete("Pod", "a")

    async def only_b() -> bool:
        return {(await http.get(url)).text for _ in range(4)} == {"b"}

    await until(only_b, "all new requests go to the other pod")
    assert not slow.done()
    await http.get(f"{pod_url}/leave")
    answer = await slow
    assert (answer.status_code, answer.text) == (200, "a")
    await namespace.wait_gone("Pod", "a")
