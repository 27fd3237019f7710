"""Fake nodes: their objects, and the leases that say they live."""

import asyncio
import datetime as dt
from http import HTTPStatus

from kubernetes.aio.client.exceptions import ApiException

from local_cluster.kube import (
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    KubeApi,
    Object,
    is_status,
    retry_until_done,
)
from local_cluster.kubelet.config import NodeConfig
from local_cluster.kubelet.status import timestamp

# The controller-manager gives a node up after 60 s without a renewal.
LEASE_SECONDS = 20.0
LEASE_DURATION_SECONDS = 60
STATUS_SECONDS = 300.0
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


async def keep_node(api: KubeApi, node: NodeConfig, host_ip: str, port: int, version: str) -> None:
    """Registers a node and keeps it Ready; returns never.

    Args:
        api: where.
        node: what it is.
        host_ip: its address.
        port: of the kubelet at that address.
        version: the kubelet's, such as 1.36.2.
    """
    await retry_until_done(lambda: _register(api, node))
    since_status = STATUS_SECONDS
    while True:
        if since_status >= STATUS_SECONDS:
            await retry_until_done(lambda: _write_status(api, node, host_ip, port, version))
            since_status = 0.0
        await retry_until_done(lambda: _renew_lease(api, node))
        await asyncio.sleep(LEASE_SECONDS)
        since_status += LEASE_SECONDS


async def _register(api: KubeApi, node: NodeConfig) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": node.labels},
        "spec": {"taints": list(node.taints)},
    }
    try:
        await api.request("POST", "/api/v1/nodes", body=body)
    except ApiException as error:
        if not is_status(error, HTTPStatus.CONFLICT):
            raise


async def _write_status(
    api: KubeApi, node: NodeConfig, host_ip: str, port: int, version: str
) -> None:
    now = timestamp(dt.datetime.now(dt.UTC))
    status: Object = {
        "capacity": node.capacity,
        "allocatable": node.capacity,
        "addresses": [
            {"type": "InternalIP", "address": host_ip},
            {"type": "Hostname", "address": node.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": {
            "architecture": node.architecture,
            "operatingSystem": "linux",
            "kubeletVersion": f"v{version}",
            "kubeProxyVersion": f"v{version}",
            "containerRuntimeVersion": "fathom://0",
            "osImage": "fathom local",
            "kernelVersion": "",
            "machineID": node.name,
            "systemUUID": node.name,
            "bootID": node.name,
        },
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "pods run as local processes",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
        ],
    }
    await api.request(
        "PATCH",
        f"/api/v1/nodes/{node.name}/status",
        body={"status": status},
        content_type=STRATEGIC_MERGE_PATCH,
    )


async def _renew_lease(api: KubeApi, node: NodeConfig) -> None:
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec: Object = {
        "holderIdentity": node.name,
        "leaseDurationSeconds": LEASE_DURATION_SECONDS,
        "renewTime": now,
    }
    try:
        await api.request(
            "PATCH", f"{LEASES}/{node.name}", body={"spec": spec}, content_type=MERGE_PATCH
        )
    except ApiException as error:
        if not is_status(error, HTTPStatus.NOT_FOUND):
            raise
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": node.name},
            "spec": spec,
        }
        await api.request("POST", LEASES, body=body)
