"""What the operator expects of a Kubernetes API: the fake and a real API server, side by side."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from fathom.adapters.kube import Kube
from fathom.adapters.ports import KubeError, KubePort
from fathom.core.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    EVENT,
    POD,
    POD_MONITOR,
    SERVICE,
    SPECULATIVE_DEPLOYMENT,
    Kind,
)
from support.fake_kube import FakeKube
from support.local_cluster import TestNamespace, local_cluster, namespace
from support.operator_process import install_crd

__all__ = ["local_cluster", "namespace"]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

LABELS = {"fathom.dev/name": "kimi"}


@dataclass(frozen=True)
class Server:
    kube: KubePort
    namespace: str

    def object(self, kind: Kind, name: str, **fields: Any) -> dict[str, Any]:
        metadata = {"name": name, "namespace": self.namespace, "labels": LABELS}
        return {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": metadata | fields.pop("metadata", {}),
            **fields,
        }

    def deployment(self, **spec: Any) -> dict[str, Any]:
        return self.object(
            DEPLOYMENT,
            "kimi-1",
            spec={
                "replicas": 0,
                "selector": {"matchLabels": LABELS},
                "template": {
                    "metadata": {"labels": LABELS},
                    "spec": {"containers": [{"name": "vllm", "image": "vllm:1"}]},
                },
                **spec,
            },
        )

    async def get(self, kind: Kind, name: str) -> Any:
        found = await self.kube.get(kind, self.namespace, name)
        assert found is not None, f"{kind.kind} {name} is not there"
        return found


@pytest.fixture
async def real(namespace: TestNamespace) -> AsyncIterator[Server]:
    await install_crd(namespace)
    async with namespace.cluster.api_client() as client:
        yield Server(Kube(client), namespace.name)


@pytest.fixture
def fake() -> Server:
    return Server(FakeKube(), "test")


@pytest.fixture(params=["fake", "real"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


async def test_what_is_not_there_is_none(server: Server) -> None:
    assert await server.kube.get(CONFIG_MAP, server.namespace, "none") is None
    assert await server.kube.select(CONFIG_MAP, server.namespace, "fathom.dev/name=none") == ()


async def test_an_empty_namespace_is_all_of_them(server: Server) -> None:
    await server.kube.apply(CONFIG_MAP, server.object(CONFIG_MAP, "anywhere", data={}))

    found: Any = await server.kube.select(CONFIG_MAP, "", "")

    named = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in found]
    assert (server.namespace, "anywhere") in named


async def test_apply_creates_then_changes_then_changes_nothing(server: Server) -> None:
    first = server.object(CONFIG_MAP, "a", data={"x": "1"})
    created: Any = await server.kube.apply(CONFIG_MAP, first)
    assert created["metadata"]["uid"]
    again: Any = await server.kube.apply(CONFIG_MAP, first)
    assert again["metadata"]["uid"] == created["metadata"]["uid"]
    await server.kube.apply(CONFIG_MAP, server.object(CONFIG_MAP, "a", data={"x": "2"}))
    assert (await server.get(CONFIG_MAP, "a"))["data"] == {"x": "2"}


async def test_a_field_that_is_no_longer_applied_goes(server: Server) -> None:
    await server.kube.apply(CONFIG_MAP, server.object(CONFIG_MAP, "a", data={"x": "1", "y": "2"}))
    await server.kube.apply(CONFIG_MAP, server.object(CONFIG_MAP, "a", data={"x": "1"}))
    assert (await server.get(CONFIG_MAP, "a"))["data"] == {"x": "1"}


async def test_a_list_item_that_is_no_longer_applied_goes(server: Server) -> None:
    def service(*ports: int) -> dict[str, Any]:
        listed = [{"name": f"p{port}", "port": port, "protocol": "TCP"} for port in ports]
        return server.object(SERVICE, "kimi", spec={"ports": listed})

    await server.kube.apply(SERVICE, service(8000, 9000))
    await server.kube.apply(SERVICE, service(8000))
    ports = (await server.get(SERVICE, "kimi"))["spec"]["ports"]
    assert [port["port"] for port in ports] == [8000]


async def test_an_empty_string_is_a_value(server: Server) -> None:
    await server.kube.apply(CONFIG_MAP, server.object(CONFIG_MAP, "a", data={"x": ""}))
    assert (await server.get(CONFIG_MAP, "a"))["data"] == {"x": ""}


async def test_select_finds_by_label_and_names_the_kind(server: Server) -> None:
    await server.kube.apply(CONFIG_MAP, server.object(CONFIG_MAP, "a", data={}))
    other = {"labels": {"fathom.dev/name": "other"}}
    await server.kube.apply(CONFIG_MAP, server.object(CONFIG_MAP, "b", metadata=other, data={}))
    found = await server.kube.select(CONFIG_MAP, server.namespace, "fathom.dev/name=kimi")
    assert [(each["apiVersion"], each["kind"]) for each in found] == [("v1", "ConfigMap")]


async def test_merge_changes_only_what_it_names(server: Server) -> None:
    await server.kube.apply(DEPLOYMENT, server.deployment())
    patch = {"spec": {"paused": True}, "metadata": {"annotations": {"x": "y"}}}
    await server.kube.merge(DEPLOYMENT, server.namespace, "kimi-1", patch)
    found = await server.get(DEPLOYMENT, "kimi-1")
    assert found["spec"]["paused"] is True
    assert found["metadata"]["annotations"]["x"] == "y"
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "vllm:1"


async def test_apply_after_merge_takes_the_field_back(server: Server) -> None:
    await server.kube.apply(DEPLOYMENT, server.deployment(paused=True))
    patch = {"spec": {"paused": False}}
    await server.kube.merge(DEPLOYMENT, server.namespace, "kimi-1", patch)
    await server.kube.apply(DEPLOYMENT, server.deployment(paused=True))
    assert (await server.get(DEPLOYMENT, "kimi-1"))["spec"]["paused"] is True


async def test_merge_of_what_is_not_there_is_none(server: Server) -> None:
    assert await server.kube.merge(POD, server.namespace, "none", {"metadata": {}}) is None


async def test_delete_is_idempotent(server: Server) -> None:
    await server.kube.apply(CONFIG_MAP, server.object(CONFIG_MAP, "a", data={}))
    await server.kube.delete(CONFIG_MAP, server.namespace, "a")
    await server.kube.delete(CONFIG_MAP, server.namespace, "a")
    assert await server.kube.get(CONFIG_MAP, server.namespace, "a") is None


async def test_status_is_written_apart_from_the_spec(server: Server) -> None:
    spec = {
        "model": {"id": "target"},
        "draft": {"id": "draft"},
        "engine": {"image": "vllm/vllm-openai:v0.32.0", "tensorParallelSize": 1},
    }
    resource = server.object(SPECULATIVE_DEPLOYMENT, "kimi", spec=spec)
    await server.kube.apply(SPECULATIVE_DEPLOYMENT, resource)
    generation = (await server.get(SPECULATIVE_DEPLOYMENT, "kimi"))["metadata"]["generation"]
    status: dict[str, Any] = {"replicas": 2, "depth": {"schedule": [[1, 4, 5]], "summary": "5"}}
    bare = server.object(SPECULATIVE_DEPLOYMENT, "kimi", status=status)
    bare["metadata"].pop("labels")
    await server.kube.apply(SPECULATIVE_DEPLOYMENT, bare, subresource="status")
    found = await server.get(SPECULATIVE_DEPLOYMENT, "kimi")
    assert found["status"]["depth"]["schedule"] == [[1, 4, 5]]
    assert found["spec"]["model"]["id"] == "target"
    assert found["metadata"]["labels"] == LABELS
    assert found["metadata"]["generation"] == generation
    bare["status"] = {"replicas": 1}
    await server.kube.apply(SPECULATIVE_DEPLOYMENT, bare, subresource="status")
    found = await server.get(SPECULATIVE_DEPLOYMENT, "kimi")
    assert found["status"]["replicas"] == 1
    assert not found["status"].get("depth", {}).get("schedule")


async def test_the_status_of_what_is_not_there_is_refused(server: Server) -> None:
    bare = server.object(SPECULATIVE_DEPLOYMENT, "none", status={"replicas": 1})
    with pytest.raises(KubeError) as refused:
        await server.kube.apply(SPECULATIVE_DEPLOYMENT, bare, subresource="status")
    assert refused.value.status == 404
    assert not refused.value.transient


async def test_two_events_with_one_prefix_get_names_of_their_own(server: Server) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "kimi.", "namespace": server.namespace},
        "involvedObject": {"namespace": server.namespace, "name": "kimi"},
        "reason": "Rolling",
        "message": "m",
        "type": "Normal",
    }
    first: Any = await server.kube.create(EVENT, event)
    second: Any = await server.kube.create(EVENT, event)
    assert first["metadata"]["name"] != second["metadata"]["name"]


async def test_a_second_object_of_one_name_is_a_conflict(server: Server) -> None:
    config_map = server.object(CONFIG_MAP, "a", data={})
    await server.kube.create(CONFIG_MAP, config_map)
    with pytest.raises(KubeError) as refused:
        await server.kube.create(CONFIG_MAP, config_map)
    assert refused.value.status == 409


async def test_discovery_finds_what_is_served_and_nothing_else(namespace: TestNamespace) -> None:
    async with namespace.cluster.api_client() as client:
        served = await Kube(client).served()
    assert served.has(DEPLOYMENT)
    assert not served.has(POD_MONITOR)


async def test_a_server_that_does_not_answer_is_an_error_in_time(namespace: TestNamespace) -> None:
    async with namespace.cluster.api_client() as client:
        with pytest.raises(KubeError, match="no answer to GET") as failed:
            await Kube(client, timeout_s=0).get(CONFIG_MAP, namespace.name, "a")
    assert failed.value.transient
