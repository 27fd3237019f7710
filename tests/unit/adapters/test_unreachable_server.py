"""Why an API server could not be asked: the cause first, then its URL and the request."""

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from fathom.adapters import kube_config
from fathom.adapters.jobs import PodLog
from fathom.adapters.kube import Kube
from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import POD
from local_cluster.control_plane.credentials import Credentials, create_credentials
from local_cluster.engine.process import free_port
from support.kubeconfigs import kubeconfig
from support.waiting import GUARD_S

POD_PATH = "/api/v1/namespaces/llm/pods/kimi"
ASKED = f" (GET {POD_PATH})"


async def why(folder: Path, server: str, **cluster: str) -> str:
    """What is said whether a pod is read or its log."""
    file = kubeconfig(folder, server=server, **cluster)
    configuration = await kube_config.load(file, as_operator=True)
    async with kube_config.client(configuration) as api:
        with pytest.raises(KubeError) as failed:
            await Kube(api, timeout_s=GUARD_S).get(POD, "llm", "kimi")
        with pytest.raises(KubeError) as of_log:
            await PodLog(api, timeout_s=GUARD_S).read("llm", "kimi", "vllm")
    assert f"{of_log.value.message}".replace(f"{POD_PATH}/log", POD_PATH) == failed.value.message
    assert failed.value.transient
    return failed.value.message


@asynccontextmanager
async def server_with_tls(folder: Path) -> AsyncIterator[tuple[TestServer, Credentials]]:
    loopback = ipaddress.IPv4Address("127.0.0.1")
    credentials = create_credentials(
        folder / "credentials", cluster="it", address=loopback, port=6443, service=loopback
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(credentials.server_certificate, credentials.server_key)
    server = TestServer(web.Application(), scheme="https", host="127.0.0.1")
    await server.start_server(ssl=context)
    try:
        yield server, credentials
    finally:
        await server.close()


async def test_nothing_listens(tmp_path: Path) -> None:
    server = f"https://127.0.0.1:{free_port()}"
    assert await why(tmp_path, server) == (
        f"{server} refuses connections: it does not run, or has another address{ASKED}"
    )


async def test_its_host_is_not_known(tmp_path: Path) -> None:
    said = await why(tmp_path, "https://api.of-the-cluster.invalid:6443")
    assert said.startswith("the host of https://api.of-the-cluster.invalid:6443 is not known: ")
    assert said.endswith(ASKED)


async def test_it_is_no_url(tmp_path: Path) -> None:
    assert await why(tmp_path, "api server") == f"the server 'api server' is no URL{ASKED}"


async def test_a_proxy_before_it_cannot_be_reached(tmp_path: Path) -> None:
    proxy, server = f"127.0.0.1:{free_port()}", "http://api.of-the-cluster.invalid"
    said = await why(tmp_path, server, **{"proxy-url": f"http://{proxy}"})
    assert said == f"the proxy {proxy} to {server} cannot be reached{ASKED}"


async def test_it_closes_the_connection(tmp_path: Path) -> None:
    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listening = await asyncio.start_server(close, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        said = await why(tmp_path, f"http://127.0.0.1:{port}")
    assert said.startswith(f"the request to http://127.0.0.1:{port} failed: ")


async def test_its_certificate_is_not_trusted(tmp_path: Path) -> None:
    async with server_with_tls(tmp_path) as (server, credentials):
        url = f"https://127.0.0.1:{server.port}"
        said = await why(tmp_path, url)
        trusted = {"certificate-authority": str(credentials.ca_certificate)}
        other = await why(tmp_path, url, **trusted, **{"tls-server-name": "api.other"})
    assert said.startswith(f"the certificate of {url} is not trusted: unable to get ")
    assert other.startswith(f"the certificate of {url} is not trusted: Hostname mismatch, ")


async def test_it_knows_no_tls(tmp_path: Path) -> None:
    async with TestServer(web.Application(), host="127.0.0.1") as server:
        url = f"https://127.0.0.1:{server.port}"
        said = await why(tmp_path, url)
    assert said.startswith(f"{url} does not answer by TLS: ")


async def test_it_does_not_answer_in_time(tmp_path: Path) -> None:
    configuration = await kube_config.load(kubeconfig(tmp_path, server="http://127.0.0.1:1"))
    async with kube_config.client(configuration) as api:
        with pytest.raises(KubeError) as failed:
            await Kube(api, timeout_s=0).get(POD, "llm", "kimi")
    assert failed.value.message == f"no answer to GET {POD_PATH} in 0 s from http://127.0.0.1:1"
