"""What the API server drops, or replaces by a default, because it is a zero, is not fought over.

By server-side apply, as the operator writes, and as a dry run: what comes back is what the server
would keep, and at rest that must be no reason to write.
"""

import asyncio
from typing import Any

import pytest
from kubernetes.aio.client.exceptions import ApiException

from fathom.cluster.diff import first_difference
from support.local_cluster import TestNamespace
from support.pod_zeros import zeros

pytestmark = pytest.mark.cluster

APPLY = "application/apply-patch+yaml"
DRY_RUN = {"dryRun": "All", "fieldManager": "fathom", "force": "true"}
AT_ONCE = 8
LABELS = {"app": "a"}
ENGINE = {"name": "vllm", "image": "a:1"}
REPLACED = {
    *("timeoutSeconds=0", "periodSeconds=0", "successThreshold=0", "failureThreshold=0"),
    *("terminationMessagePath=''", "imagePullPolicy=''", "dnsPolicy=''", "schedulerName=''"),
}
OFF = {"stopSignal", "schedulingGroup", "clusterTrustBundle", "podCertificate"}
"""Fields behind feature gates that are off by default in 1.36: whatever they hold is dropped."""
KEPT = {"terminationGracePeriodSeconds=0", "defaultMode=0", "enableServiceLinks=False"}


def deployment(template: dict[str, Any]) -> dict[str, Any]:
    template = {
        "metadata": {"labels": LABELS, **template.get("metadata", {})},
        "spec": template.get("spec", {"containers": [ENGINE]}),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "zero"},
        "spec": {"selector": {"matchLabels": LABELS}, "template": template},
    }


async def kept(namespace: TestNamespace, body: dict[str, Any]) -> dict[str, Any] | None:
    """What the server would store; None: it refuses it."""
    path = namespace.path("Deployment", "zero")
    try:
        found: dict[str, Any] = await namespace.api.request(
            "PATCH", path, body=body, query=DRY_RUN, content_type=APPLY
        )
    except ApiException:
        return None
    return found


async def test_no_zero_of_a_pod_is_written_again(namespace: TestNamespace) -> None:
    turn = asyncio.Semaphore(AT_ONCE)
    taken: set[str] = set()
    fought: dict[str, str] = {}

    async def ask(where: str, template: dict[str, Any]) -> None:
        body = deployment(template)
        async with turn:
            found = await kept(namespace, body)
        if found is not None:
            taken.add(where.rsplit(".", 1)[-1])
            is_off = not OFF.isdisjoint(where.partition("=")[0].split("."))
            if not is_off and (why := first_difference(body, found)) is not None:
                fought[where] = why

    async with asyncio.TaskGroup() as tasks:
        for where, template in zeros():
            tasks.create_task(ask(where, template))
    assert taken >= REPLACED | KEPT
    assert fought == {}


async def test_what_is_finer_than_a_thousandth_is_not_written_again(
    namespace: TestNamespace,
) -> None:
    limits = {"limits": {"cpu": "1500u"}}
    body = deployment({"spec": {"containers": [{**ENGINE, "resources": limits}]}})
    found = await kept(namespace, body)
    assert found is not None
    assert first_difference(body, found) is None
