"""What the operator expects of a Kubernetes API: the fake and a real API server, side by side."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from fathom.adapters.kube import Kube
from fathom.adapters.ports import EventType, KubeError, KubePort, WatchEvent
from fathom.cluster.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    EVENT,
    POD,
    POD_MONITOR,
    SERVICE,
    SERVICE_ACCOUNT,
    SPECULATIVE_DEPLOYMENT,
    Kind,
)
from fathom.cluster.manifest import Seen
from manifest_samples import manifest
from support.fake_kube import FakeKube
from support.local_cluster import TestNamespace, local_cluster, namespace
from support.operator_process import install_crd
from support.waiting import GUARD_S

__all__ = ["local_cluster", "namespace"]

pytestmark = pytest.mark.cluster

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

    async def seen(self, kind: Kind, name: str) -> Seen:
        return Seen.of(await self.get(kind, name))

    async def make(self, kind: Kind, name: str, **fields: Any) -> Seen:
        return Seen.of(await self.kube.create(kind, self.object(kind, name, **fields)))

    async def change(self, kind: Kind, name: str, patch: dict[str, Any]) -> None:
        """As somebody else would, at any time."""
        assert await self.kube.merge(kind, self.namespace, name, patch, None)


@contextmanager
def refused(status: int) -> Iterator[None]:
    with pytest.raises(KubeError) as found:
        yield
    assert found.value.status == status, found.value.message
    assert found.value.outdated == (status == 409)


@pytest.fixture
async def real(namespace: TestNamespace) -> AsyncIterator[Server]:
    await install_crd(namespace)
    async with namespace.cluster.api_client() as client:
        yield Server(Kube(client, timeout_s=GUARD_S), namespace.name)


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
    await server.make(CONFIG_MAP, "anywhere", data={})

    found: Any = await server.kube.select(CONFIG_MAP, "", "")

    named = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in found]
    assert (server.namespace, "anywhere") in named


async def test_one_object_is_found_by_its_name(server: Server) -> None:
    await server.make(CONFIG_MAP, "a", data={"x": "1"})
    await server.make(CONFIG_MAP, "b", data={})

    found: Any = await server.kube.named(CONFIG_MAP, server.namespace, "a")

    assert (found["kind"], found["data"]) == ("ConfigMap", {"x": "1"})
    assert await server.kube.named(CONFIG_MAP, server.namespace, "c") is None


async def listed(server: Server) -> str:
    """The version at which all was listed."""
    version = ""
    async for page in server.kube.pages(CONFIG_MAP, server.namespace, "fathom.dev/name"):
        version = page.resource_version
    return version


def watched(server: Server, since: str, for_s: float) -> AsyncGenerator[WatchEvent]:
    return server.kube.watch(CONFIG_MAP, server.namespace, "fathom.dev/name", since, for_s)


async def told(server: Server, since: str) -> list[tuple[str, str]]:
    """What a watch tells of all that has happened, bookmarks apart; events come in their order."""
    await server.make(CONFIG_MAP, "last", data={})
    events: list[tuple[str, str]] = []
    async with aclosing(watched(server, since, GUARD_S)) as stream:
        async for event in stream:
            found: Any = event.object
            if event.type is EventType.BOOKMARK:
                continue
            if found["metadata"]["name"] == "last":
                return events
            events.append((event.type.value, found["metadata"]["name"]))
    raise AssertionError(f"the watch ended after {events}")


async def test_a_watch_tells_what_has_happened_since_a_list(server: Server) -> None:
    await server.make(CONFIG_MAP, "a", data={})
    since = await listed(server)
    await server.change(CONFIG_MAP, "a", {"data": {"x": "1"}})
    await server.make(CONFIG_MAP, "b", data={})
    await server.kube.delete(CONFIG_MAP, server.namespace, "a", await server.seen(CONFIG_MAP, "a"))
    await server.change(CONFIG_MAP, "b", {"metadata": {"labels": {"fathom.dev/name": None}}})

    assert await told(server, since) == [
        ("MODIFIED", "a"),
        ("ADDED", "b"),
        ("DELETED", "a"),
        ("DELETED", "b"),
    ]


async def test_what_is_gone_is_told_at_the_version_at_which_it_went(server: Server) -> None:
    made = await server.make(CONFIG_MAP, "a", data={})
    since = await listed(server)
    await server.kube.delete(CONFIG_MAP, server.namespace, "a", made)

    async with aclosing(watched(server, since, GUARD_S)) as stream:
        event = await anext(event async for event in stream if event.type is EventType.DELETED)

    assert int(event.version) > int(made.resource_version)


async def test_a_watch_begins_with_where_it_begins(server: Server) -> None:
    since = await listed(server)
    async with aclosing(watched(server, since, GUARD_S)) as stream:
        event = await anext(stream)
    assert (event.type, event.version) == (EventType.BOOKMARK, since)


async def test_a_watch_tells_nothing_twice_and_ends_in_its_time(server: Server) -> None:
    await server.make(CONFIG_MAP, "a", data={})
    events = [event async for event in watched(server, await listed(server), 1)]
    assert {event.type for event in events} == {EventType.BOOKMARK}


async def test_create_then_apply_changes_then_changes_nothing(server: Server) -> None:
    first = server.object(CONFIG_MAP, "a", data={"x": "1"})
    created: Any = await server.kube.create(CONFIG_MAP, first)
    assert created["metadata"]["uid"]
    again: Any = await server.kube.apply(CONFIG_MAP, first, Seen.of(created))
    assert Seen.of(again) == Seen.of(created)
    second = server.object(CONFIG_MAP, "a", data={"x": "2"})
    changed: Any = await server.kube.apply(CONFIG_MAP, second, Seen.of(again))
    assert (await server.get(CONFIG_MAP, "a"))["data"] == {"x": "2"}
    assert changed["metadata"]["uid"] == created["metadata"]["uid"]
    assert changed["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]


async def test_a_field_that_is_no_longer_applied_goes(server: Server) -> None:
    seen = await server.make(CONFIG_MAP, "a", data={"x": "1", "y": "2"})
    less = server.object(CONFIG_MAP, "a", data={"x": "1"})
    await server.kube.apply(CONFIG_MAP, less, seen)
    assert (await server.get(CONFIG_MAP, "a"))["data"] == {"x": "1"}


async def test_a_field_that_somebody_else_has_changed_stays_when_it_is_no_longer_applied(
    server: Server,
) -> None:
    """It is theirs since then."""
    await server.make(CONFIG_MAP, "a", data={"x": "1", "y": "2"})
    await server.change(CONFIG_MAP, "a", {"data": {"y": "3"}})
    less = server.object(CONFIG_MAP, "a", data={"x": "1"})
    await server.kube.apply(CONFIG_MAP, less, await server.seen(CONFIG_MAP, "a"))
    assert (await server.get(CONFIG_MAP, "a"))["data"] == {"x": "1", "y": "3"}


async def test_a_field_that_was_taken_back_by_force_goes_when_it_is_no_longer_applied(
    server: Server,
) -> None:
    await server.make(CONFIG_MAP, "a", data={"x": "1", "y": "2"})
    await server.change(CONFIG_MAP, "a", {"data": {"y": "3"}})
    for data in ({"x": "1", "y": "2"}, {"x": "1"}):
        again = server.object(CONFIG_MAP, "a", data=data)
        await server.kube.apply(CONFIG_MAP, again, await server.seen(CONFIG_MAP, "a"))
    assert (await server.get(CONFIG_MAP, "a"))["data"] == {"x": "1"}


async def test_a_port_that_somebody_else_has_changed_stays_when_it_is_no_longer_applied(
    server: Server,
) -> None:
    def service(*ports: int) -> dict[str, Any]:
        listed = [{"name": f"p{port}", "port": port, "protocol": "TCP"} for port in ports]
        return server.object(SERVICE, "kimi", spec={"ports": listed})

    await server.kube.create(SERVICE, service(8000, 9000))
    ports = [{"name": f"p{port}", "port": port, "targetPort": 7} for port in (8000, 9000)]
    await server.change(SERVICE, "kimi", {"spec": {"ports": ports}})
    await server.kube.apply(SERVICE, service(8000), await server.seen(SERVICE, "kimi"))
    found = (await server.get(SERVICE, "kimi"))["spec"]["ports"]
    assert [port["port"] for port in found] == [8000, 9000]


async def test_a_list_item_that_is_no_longer_applied_goes(server: Server) -> None:
    def account(*secrets: str) -> dict[str, Any]:
        listed = [{"name": secret} for secret in secrets]
        return server.object(SERVICE_ACCOUNT, "kimi", imagePullSecrets=listed)

    seen = Seen.of(await server.kube.create(SERVICE_ACCOUNT, account("a", "b")))
    await server.kube.apply(SERVICE_ACCOUNT, account("a"), seen)
    found = await server.get(SERVICE_ACCOUNT, "kimi")
    assert found["imagePullSecrets"] == [{"name": "a"}]


async def test_a_port_that_is_no_longer_applied_goes(server: Server) -> None:
    def service(*ports: int) -> dict[str, Any]:
        listed = [{"name": f"p{port}", "port": port, "protocol": "TCP"} for port in ports]
        return server.object(SERVICE, "kimi", spec={"ports": listed})

    await server.kube.create(SERVICE, service(8000))
    await server.kube.apply(SERVICE, service(8000, 9000), await server.seen(SERVICE, "kimi"))
    await server.kube.apply(SERVICE, service(8000), await server.seen(SERVICE, "kimi"))
    ports = (await server.get(SERVICE, "kimi"))["spec"]["ports"]
    assert [port["port"] for port in ports] == [8000]


async def test_an_empty_string_is_a_value(server: Server) -> None:
    await server.make(CONFIG_MAP, "a", data={"x": ""})
    assert (await server.get(CONFIG_MAP, "a"))["data"] == {"x": ""}


async def test_select_finds_by_label_and_names_the_kind(server: Server) -> None:
    await server.make(CONFIG_MAP, "a", data={})
    other = {"labels": {"fathom.dev/name": "other"}}
    await server.make(CONFIG_MAP, "b", metadata=other, data={})
    found = await server.kube.select(CONFIG_MAP, server.namespace, "fathom.dev/name=kimi")
    assert [(each["apiVersion"], each["kind"]) for each in found] == [("v1", "ConfigMap")]


async def test_merge_changes_only_what_it_names(server: Server) -> None:
    await server.kube.create(DEPLOYMENT, server.deployment())
    patch = {"spec": {"paused": True}, "metadata": {"annotations": {"x": "y"}}}
    await server.kube.merge(DEPLOYMENT, server.namespace, "kimi-1", patch, None)
    found = await server.get(DEPLOYMENT, "kimi-1")
    assert found["spec"]["paused"] is True
    assert found["metadata"]["annotations"]["x"] == "y"
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "vllm:1"


async def test_apply_after_merge_takes_the_field_back(server: Server) -> None:
    seen = await server.make(CONFIG_MAP, "a", data={"x": "1"})
    await server.kube.merge(CONFIG_MAP, server.namespace, "a", {"data": {"x": "2"}}, seen)
    seen = await server.seen(CONFIG_MAP, "a")
    await server.kube.apply(CONFIG_MAP, server.object(CONFIG_MAP, "a", data={"x": "1"}), seen)
    assert (await server.get(CONFIG_MAP, "a"))["data"] == {"x": "1"}


async def test_merge_of_what_is_not_there_is_none(server: Server) -> None:
    assert await server.kube.merge(POD, server.namespace, "none", {"metadata": {}}, None) is None
    seen = Seen("11111111-7f0e-11e8-94a1-c8d3ffb15800", "1")
    assert await server.kube.merge(POD, server.namespace, "none", {"metadata": {}}, seen) is None


async def test_delete_is_idempotent(server: Server) -> None:
    seen = await server.make(CONFIG_MAP, "a", data={})
    await server.kube.delete(CONFIG_MAP, server.namespace, "a", seen)
    await server.kube.delete(CONFIG_MAP, server.namespace, "a", seen)
    assert await server.kube.get(CONFIG_MAP, server.namespace, "a") is None


async def test_what_was_changed_meanwhile_is_not_written(server: Server) -> None:
    seen = await server.make(CONFIG_MAP, "a", data={"x": "1"})
    await server.change(CONFIG_MAP, "a", {"data": {"x": "2"}})

    with refused(409):
        stale = server.object(CONFIG_MAP, "a", data={"x": "3"})
        await server.kube.apply(CONFIG_MAP, stale, seen)
    with refused(409):
        patch = {"data": {"x": "3"}}
        await server.kube.merge(CONFIG_MAP, server.namespace, "a", patch, seen)
    with refused(409):
        await server.kube.delete(CONFIG_MAP, server.namespace, "a", seen)

    assert (await server.get(CONFIG_MAP, "a"))["data"] == {"x": "2"}


async def test_what_was_made_anew_meanwhile_is_not_written(server: Server) -> None:
    seen = await server.make(CONFIG_MAP, "a", data={"x": "1"})
    await server.kube.delete(CONFIG_MAP, server.namespace, "a", seen)
    await server.make(CONFIG_MAP, "a", data={"x": "2"})

    with refused(409):
        await server.kube.apply(CONFIG_MAP, server.object(CONFIG_MAP, "a", data={}), seen)
    with refused(409):
        await server.kube.merge(CONFIG_MAP, server.namespace, "a", {"data": None}, seen)
    with refused(409):
        await server.kube.delete(CONFIG_MAP, server.namespace, "a", seen)

    assert (await server.get(CONFIG_MAP, "a"))["data"] == {"x": "2"}


async def test_apply_never_makes_anew_what_is_gone(server: Server) -> None:
    seen = await server.make(CONFIG_MAP, "a", data={})
    await server.kube.delete(CONFIG_MAP, server.namespace, "a", seen)
    with refused(409):
        await server.kube.apply(CONFIG_MAP, server.object(CONFIG_MAP, "a", data={}), seen)
    assert await server.kube.get(CONFIG_MAP, server.namespace, "a") is None


@pytest.mark.parametrize("kind", [CONFIG_MAP, SERVICE, SERVICE_ACCOUNT, DEPLOYMENT])
async def test_create_leaves_alone_what_is_there(server: Server, kind: Kind) -> None:
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    specs: dict[Kind, Any] = {
        SERVICE: {"ports": ports},
        DEPLOYMENT: server.deployment()["spec"],
    }
    spec = {"spec": specs[kind]} if kind in specs else {}
    seen = await server.make(kind, "kimi", metadata={"annotations": {"whose": "mine"}}, **spec)

    with refused(409):
        theirs = {"annotations": {"whose": "theirs"}}
        await server.make(kind, "kimi", metadata=theirs, **spec)

    found = await server.get(kind, "kimi")
    assert found["metadata"]["annotations"]["whose"] == "mine"
    assert found["metadata"]["uid"] == seen.uid


async def test_create_leaves_alone_what_would_be_invalid_together_with_it(server: Server) -> None:
    """One port needs no name; beside a second one it does."""
    theirs = server.object(SERVICE, "kimi", spec={"ports": [{"port": 80, "protocol": "TCP"}]})
    seen = Seen.of(await server.kube.create(SERVICE, theirs))

    with refused(409):
        ports = [{"name": "http", "port": 8000, "protocol": "TCP"}]
        await server.make(SERVICE, "kimi", spec={"ports": ports})

    assert await server.seen(SERVICE, "kimi") == seen


async def test_status_is_written_apart_from_the_spec(server: Server) -> None:
    spec = {
        "model": {"id": "target"},
        "draft": {"id": "draft"},
        "engine": {"image": "vllm/vllm-openai:v0.32.0", "tensorParallelSize": 1},
    }
    seen = await server.make(SPECULATIVE_DEPLOYMENT, "kimi", spec=spec)
    generation = (await server.get(SPECULATIVE_DEPLOYMENT, "kimi"))["metadata"]["generation"]
    status: dict[str, Any] = {"replicas": 2, "depth": {"schedule": [[1, 4, 5]], "summary": "5"}}
    bare = server.object(SPECULATIVE_DEPLOYMENT, "kimi", status=status)
    bare["metadata"].pop("labels")
    await server.kube.apply(SPECULATIVE_DEPLOYMENT, bare, seen, subresource="status")
    found = await server.get(SPECULATIVE_DEPLOYMENT, "kimi")
    assert found["status"]["depth"]["schedule"] == [[1, 4, 5]]
    assert found["spec"]["model"]["id"] == "target"
    assert found["metadata"]["labels"] == LABELS
    assert found["metadata"]["generation"] == generation
    bare["status"] = {"replicas": 1}
    await server.kube.apply(SPECULATIVE_DEPLOYMENT, bare, Seen.of(found), subresource="status")
    found = await server.get(SPECULATIVE_DEPLOYMENT, "kimi")
    assert found["status"]["replicas"] == 1
    assert not found["status"].get("depth", {}).get("schedule")
    bare["status"] = {"replicas": 3}
    with refused(409):
        await server.kube.apply(SPECULATIVE_DEPLOYMENT, bare, seen, subresource="status")
    assert (await server.get(SPECULATIVE_DEPLOYMENT, "kimi"))["status"]["replicas"] == 1


async def test_a_field_of_a_list_s_entry_goes_when_it_is_no_longer_applied(server: Server) -> None:
    """As a condition's message does, when there is nothing more to say."""
    seen = await server.make(SPECULATIVE_DEPLOYMENT, "kimi", spec=manifest()["spec"])
    said = {
        "type": "Ready",
        "status": "True",
        "reason": "AllReplicasReady",
        "message": "2 of 2 replicas are ready.",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    silent = {key: value for key, value in said.items() if key != "message"}
    for condition in (said, silent):
        bare = server.object(SPECULATIVE_DEPLOYMENT, "kimi", status={"conditions": [condition]})
        bare["metadata"].pop("labels")
        found = await server.kube.apply(SPECULATIVE_DEPLOYMENT, bare, seen, subresource="status")
        seen = Seen.of(found)
    assert not found["status"]["conditions"][0].get("message")


async def test_a_field_of_the_status_that_the_crd_does_not_declare_is_left_out(
    real: Server,
) -> None:
    """The fake has no schema. How servers refuse it: tests/unit/adapters/test_kube_status.py."""
    seen = await real.make(SPECULATIVE_DEPLOYMENT, "kimi", spec=manifest()["spec"])
    status = {"ready": "1/2", "pace": 3, "depth": {"summary": "5", "pace": 3}}
    bare = real.object(SPECULATIVE_DEPLOYMENT, "kimi", status=status)
    bare["metadata"].pop("labels")
    await real.kube.apply(SPECULATIVE_DEPLOYMENT, bare, seen, subresource="status")
    found = (await real.get(SPECULATIVE_DEPLOYMENT, "kimi"))["status"]
    assert (found["ready"], found["depth"]["summary"]) == ("1/2", "5")
    assert "pace" not in found
    assert "pace" not in found["depth"]


async def test_the_status_of_what_is_not_there_is_refused(server: Server) -> None:
    bare = server.object(SPECULATIVE_DEPLOYMENT, "none", status={"replicas": 1})
    seen = Seen("11111111-7f0e-11e8-94a1-c8d3ffb15800", "1")
    with pytest.raises(KubeError) as found:
        await server.kube.apply(SPECULATIVE_DEPLOYMENT, bare, seen, subresource="status")
    assert found.value.status == 404
    assert not found.value.transient


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


async def test_events_are_found_by_what_they_are_about_and_by_their_reason(server: Server) -> None:
    for kind, name, reason in (
        ("StatefulSet", "kimi-1", "FailedCreate"),
        ("LeaderWorkerSet", "kimi-1", "FailedCreate"),
        ("StatefulSet", "kimi-1", "SuccessfulCreate"),
        ("StatefulSet", "kimi-10", "FailedCreate"),
    ):
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{name}.", "namespace": server.namespace},
            "involvedObject": {"kind": kind, "namespace": server.namespace, "name": name},
            "reason": reason,
            "message": f"{kind} {name}",
            "type": "Warning",
        }
        await server.kube.create(EVENT, event)

    found: Any = await server.kube.events(server.namespace, "kimi-1", "FailedCreate")

    assert sorted(each["message"] for each in found) == [
        "LeaderWorkerSet kimi-1",
        "StatefulSet kimi-1",
    ]
    assert await server.kube.events(server.namespace, "none", "FailedCreate") == ()
    of_any_reason = await server.kube.events(server.namespace, "kimi-1", "")
    assert len(of_any_reason) == 3


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
