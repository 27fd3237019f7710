"""Which way to the API server a kubeconfig and the environment lead."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from fathom.adapters import kube_config
from fathom.adapters.kube import Kube
from fathom.cluster.kinds import POD
from local_cluster.engine.process import free_port
from local_cluster.kube import KubeApi, connect
from support.kubeconfigs import ELSEWHERE, kubeconfig
from support.waiting import GUARD_S


@asynccontextmanager
async def answering() -> AsyncIterator[str]:
    """The URL of a server that is also a proxy; whoever is asked for, it has an answer."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"metadata": {"name": request.path.split("/")[-1]}})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        yield str(server.make_url("")).rstrip("/")


def set_proxy(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, url)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


async def pod_at(file: Path, *, as_operator: bool) -> object:
    configuration = await kube_config.load(file, as_operator=as_operator)
    async with kube_config.client(configuration) as api:
        return await Kube(api, timeout_s=GUARD_S).get(POD, "llm", "kimi")


FOUND = {"metadata": {"name": "kimi"}}


async def test_who_asks_directly_takes_no_proxy_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_proxy(monkeypatch, f"http://127.0.0.1:{free_port()}")
    async with answering() as url:
        assert await pod_at(kubeconfig(tmp_path, server=url), as_operator=True) == FOUND


async def test_a_command_goes_through_the_proxy_that_kubectl_would_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with answering() as proxy:
        set_proxy(monkeypatch, proxy)
        assert await pod_at(kubeconfig(tmp_path, server=ELSEWHERE), as_operator=False) == FOUND


@pytest.mark.parametrize("as_operator", [True, False])
async def test_a_proxy_that_the_kubeconfig_names_is_used_in_any_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, as_operator: bool
) -> None:
    set_proxy(monkeypatch, f"http://127.0.0.1:{free_port()}")
    async with answering() as proxy:
        file = kubeconfig(tmp_path, server=ELSEWHERE, **{"proxy-url": proxy})
        assert await pod_at(file, as_operator=as_operator) == FOUND


async def test_a_cluster_of_this_machine_is_asked_directly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_proxy(monkeypatch, f"http://127.0.0.1:{free_port()}")
    async with answering() as url, connect(kubeconfig(tmp_path, server=url)) as client:
        assert await KubeApi(client).request("GET", "/api/v1/namespaces/llm/pods/kimi") == FOUND


@pytest.fixture
def in_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without a kubeconfig, in a pod with a service account of another cluster."""
    token = tmp_path / "token"
    token.write_text("of-the-pod")
    monkeypatch.setattr(kube_config, "IN_CLUSTER", token)
    monkeypatch.setattr(kube_config, "_OWN_NAMESPACE", tmp_path / "namespace")
    (tmp_path / "namespace").write_text("of-the-pod")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


async def test_in_a_pod_too_kubeconfig_names_the_cluster(
    in_a_pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a command of a pipeline would pause what its runner's own cluster has of that name."""
    assert kube_config.namespace(None) == "of-the-pod"
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(in_a_pod, server=ELSEWHERE)))
    assert kube_config.namespace(None) == "default"
    assert (await kube_config.load(None)).host == ELSEWHERE


async def test_in_a_pod_too_the_default_kubeconfig_comes_first(in_a_pod: Path) -> None:
    (in_a_pod / ".kube").mkdir()
    kubeconfig(in_a_pod, server=ELSEWHERE).rename(in_a_pod / ".kube" / "config")
    assert kube_config.namespace(None) == "default"


async def test_the_operator_serves_the_cluster_that_it_runs_in(
    in_a_pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(in_a_pod, server=ELSEWHERE)))
    # As in-cluster: here there is no such address, which is said.
    with pytest.raises(kube_config.NoClusterError, match="Service host/port is not set"):
        await kube_config.load(None, as_operator=True)


async def test_a_token_of_a_plugin_is_renewed_once_it_has_expired(tmp_path: Path) -> None:
    """EKS's lasts for a quarter of an hour, and a bench for hours."""
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.json_response(FOUND)

    plugin = tmp_path / "plugin"
    plugin.write_text(
        f"""#!/bin/sh
echo x >> {tmp_path}/runs
run=$(wc -l < {tmp_path}/runs)
[ "$run" = "$FAILS" ] && exit 1
cat <<END
{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
  "status": {{"token": "token-$run", "expirationTimestamp": "$EXPIRES"}}}}
END
"""
    )
    plugin.chmod(0o755)

    async def asked(expires: str, *, fails: int = 0) -> list[str]:
        seen.clear()
        content = yaml.safe_load(kubeconfig(tmp_path, server=url).read_text())
        (user,) = content["users"]
        user["user"] = {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": str(plugin),
                "env": [
                    {"name": "EXPIRES", "value": expires},
                    {"name": "FAILS", "value": f"{fails}"},
                ],
            }
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(content))
        (tmp_path / "runs").unlink(missing_ok=True)
        configuration = await kube_config.load(tmp_path / "kubeconfig")
        async with kube_config.client(configuration) as api:
            for _ in range(2):
                assert await Kube(api, timeout_s=GUARD_S).get(POD, "llm", "kimi") == FOUND
        return seen

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        url = str(server.make_url("")).rstrip("/")
        assert await asked("2020-01-01T00:00:00Z") == ["Bearer token-2", "Bearer token-3"]
        assert await asked("2999-01-01T00:00:00Z") == ["Bearer token-1", "Bearer token-1"]
        # A plugin that fails is asked again, and the old token may yet do.
        assert await asked("2020-01-01T00:00:00Z", fails=2) == ["Bearer token-1", "Bearer token-3"]
        soon = datetime.now(UTC) + timedelta(minutes=4)
        assert await asked(f"{soon:%Y-%m-%dT%H:%M:%SZ}") == ["Bearer token-2", "Bearer token-3"]
