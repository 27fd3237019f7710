"""The API server alone, with the programs that `KUBEBUILDER_ASSETS` names."""

import psutil
import pytest
from kubernetes.aio.client.exceptions import ApiException

from local_cluster.control_plane.api_server import api_server
from local_cluster.control_plane.binaries import ASSETS
from local_cluster.control_plane.obtain import ensure_binaries, present_binaries
from local_cluster.errors import LocalClusterError
from local_cluster.kube import KubeApi, connect
from local_cluster.progress import setup_progress

pytestmark = pytest.mark.cluster


@pytest.fixture
def assets(monkeypatch: pytest.MonkeyPatch) -> None:
    with setup_progress() as progress:
        binaries = ensure_binaries(progress)
    assert present_binaries() == binaries
    monkeypatch.setenv(ASSETS, str(binaries.directory))


@pytest.mark.usefixtures("assets")
async def test_api_server_alone_stores_and_validates() -> None:
    async with api_server() as plane:
        assert [record.name for record in plane.processes] == ["etcd", "kube-apiserver"]
        async with connect(plane.kubeconfig) as client:
            api = KubeApi(client)
            # A namespace of its own: the server makes `default` a moment after it is ready.
            mine = {"kind": "Namespace", "metadata": {"name": "mine"}}
            await api.request("POST", "/api/v1/namespaces", body=mine)
            config_maps = "/api/v1/namespaces/mine/configmaps"
            body = {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
            await api.request("POST", config_maps, body=body)
            assert (await api.request("GET", f"{config_maps}/c"))["data"] == {"a": "1"}
            with pytest.raises(ApiException) as refused:
                await api.request("POST", config_maps, body={**body, "metadata": {"name": "C!"}})
            assert refused.value.status == 422
    assert not any(psutil.pid_exists(record.pid) for record in plane.processes)
    assert not plane.directory.exists()


async def test_assets_folder_without_programs_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv(ASSETS, str(tmp_path))
    with pytest.raises(LocalClusterError, match=r"etcd is missing in .*KUBEBUILDER_ASSETS"):
        async with api_server():
            pass
