"""Who may do what, what the API server wrote down, and what it cleans up."""

import json

import pytest

from local_cluster.control_plane.audit import AuditEvent, read_events
from local_cluster.control_plane.credentials import ADMIN
from support.local_cluster import TestNamespace, shell_container, shell_pod
from support.waiting import until

pytestmark = pytest.mark.cluster

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ASK = (
    f'curl -sS --cacert {ACCOUNT}/ca.crt -H "Authorization: Bearer $(cat {ACCOUNT}/token)" '
    "https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT"
    f"/api/v1/namespaces/$(cat {ACCOUNT}/namespace)"
)


async def test_pod_has_the_rights_of_its_service_account(namespace: TestNamespace) -> None:
    await namespace.create(
        {"kind": "ServiceAccount", "metadata": {"name": "reader"}},
        {
            "kind": "Role",
            "metadata": {"name": "reader"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
        },
        {
            "kind": "RoleBinding",
            "metadata": {"name": "reader"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "reader",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "reader"}],
        },
    )
    allowed = await namespace.run(f"{ASK}/configmaps", serviceAccountName="reader")
    assert json.loads(allowed)["kind"] == "ConfigMapList"
    refused = json.loads(await namespace.run(f"{ASK}/secrets", serviceAccountName="reader"))
    assert refused["code"] == 403
    user = f"system:serviceaccount:{namespace.name}:reader"
    assert user in refused["message"]
    events = [event for event in read_events(namespace.cluster.audit_log) if event.user == user]
    assert [(event.verb, event.resource, event.code) for event in events] == [
        ("list", "configmaps", 200),
        ("list", "secrets", 403),
    ]


async def test_audit_log_tells_writes_from_reads(namespace: TestNamespace) -> None:
    await namespace.create({"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {}})
    await namespace.get("ConfigMap", "c")
    await namespace.patch("ConfigMap", "c", {"data": {"a": "1"}})

    async def written() -> list[AuditEvent]:
        events = [
            event
            for event in read_events(namespace.cluster.audit_log)
            if event.namespace == namespace.name and event.name == "c" and event.user == ADMIN
        ]
        return events if len(events) >= 3 else []

    events = await until(written, "three requests in the audit log")
    assert [(event.verb, event.is_write) for event in events] == [
        ("create", True),
        ("get", False),
        ("patch", True),
    ]


async def test_owned_objects_are_collected_with_their_owner(namespace: TestNamespace) -> None:
    await namespace.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "containers": [shell_container("sleep 600")],
                    },
                },
            },
        }
    )
    (pod,) = await namespace.wait_available("web", 1)
    await namespace.delete("Deployment", "web")
    await namespace.wait_gone("Pod", pod["metadata"]["name"])
    assert await namespace.all_of("ReplicaSet") == []


async def test_killed_kubelet_takes_its_pods_along_and_the_next_one_restarts_them(
    namespace: TestNamespace,
) -> None:
    def starts() -> int:
        return len(namespace.output("stays").split())

    await namespace.create(shell_pod("stays", "echo started; sleep 600"))
    await namespace.wait_ready("stays")
    # Ready says that its process runs, not that the process has printed yet.
    await until(lambda: starts() == 1, "the pod's first start")
    namespace.cluster.restart_kubelet()
    await until(lambda: starts() == 2, "the pod's second start")
    await namespace.wait_ready("stays")
