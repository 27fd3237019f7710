"""The kubelet's writes to the API server."""

import asyncio
import datetime as dt
import uuid
from dataclasses import dataclass, field

import aiohttp
import structlog
from kubernetes.aio.client.exceptions import ApiException

from local_cluster.kube import MERGE_PATCH, KubeApi, Object, retry_until_done
from local_cluster.kubelet.models import Pod, TokenSource
from local_cluster.kubelet.status import timestamp

log = structlog.get_logger()


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"


@dataclass(slots=True)
class KubePodApi:
    """`PodApi` on a real API server."""

    api: KubeApi
    _events: set[asyncio.Task[None]] = field(default_factory=set)

    async def write_status(self, pod: Pod, status: Object) -> None:
        """See `PodApi`."""
        # The uid guards against a new pod of the same name: the API server answers 409.
        body: Object = {"metadata": {"uid": pod.metadata.uid}, "status": status}

        async def attempt() -> None:
            await self.api.request(
                "PATCH", f"{_path(pod)}/status", body=body, content_type=MERGE_PATCH
            )

        await retry_until_done(attempt)

    async def delete(self, pod: Pod) -> None:
        """See `PodApi`."""
        body: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod.metadata.uid},
        }

        async def attempt() -> None:
            await self.api.request("DELETE", _path(pod), body=body)

        await retry_until_done(attempt)

    async def create_token(self, pod: Pod, source: TokenSource) -> str:
        """See `PodApi`."""
        namespace, account = pod.metadata.namespace, pod.spec.service_account_name
        body: Object = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [source.audience] if source.audience else [],
                "expirationSeconds": source.expiration_seconds,
                "boundObjectRef": {
                    "kind": "Pod",
                    "apiVersion": "v1",
                    "name": pod.metadata.name,
                    "uid": pod.metadata.uid,
                },
            },
        }
        answer = await self.api.request(
            "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", body=body
        )
        token: str = answer["status"]["token"]
        return token

    def record_event(self, pod: Pod, reason: str, message: str) -> None:
        """See `PodApi`."""
        task = asyncio.create_task(self._post_event(pod, reason, message))
        # The event loop holds tasks weakly.
        self._events.add(task)
        task.add_done_callback(self._events.discard)

    async def _post_event(self, pod: Pod, reason: str, message: str) -> None:
        namespace = pod.metadata.namespace
        now = timestamp(dt.datetime.now(dt.UTC))
        body: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{pod.metadata.name}.{uuid.uuid4().hex[:16]}"},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": namespace,
                "name": pod.metadata.name,
                "uid": pod.metadata.uid,
            },
            "type": "Warning",
            "reason": reason,
            "message": message[:1000],
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": "kubelet", "host": pod.spec.node_name},
        }
        try:
            await self.api.request("POST", f"/api/v1/namespaces/{namespace}/events", body=body)
        except (ApiException, aiohttp.ClientError, TimeoutError) as error:
            log.info("event not recorded", reason=reason, error=str(error))
