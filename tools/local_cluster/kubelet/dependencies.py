from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from local_cluster.kube import Object
from local_cluster.kubelet.config import KubeletConfig
from local_cluster.kubelet.containers.processors import ProcessorPool
from local_cluster.kubelet.hosts import NamedPod
from local_cluster.kubelet.models import Pod, TokenSource
from local_cluster.kubelet.sandbox import AddressPool
from local_cluster.kubelet.sources import Sources


class PodApi(Protocol):
    """What a pod's worker asks of the API server; every method is idempotent and persistent."""

    async def write_status(self, pod: Pod, status: Object) -> None:
        """Stores a status, however often it takes; a pod that is gone is fine."""

    async def delete(self, pod: Pod) -> None:
        """Removes the object of a pod that has ended."""

    async def create_token(self, pod: Pod, source: TokenSource) -> str:
        """A service account token bound to the pod."""

    def record_event(self, pod: Pod, reason: str, message: str) -> None:
        """A warning for `kubectl describe`; best effort."""


@dataclass(slots=True)
class Surroundings:
    """What all pods of a kubelet share."""

    config: KubeletConfig
    api: PodApi
    sources: Sources
    services: Callable[[], list[Object]]
    named_pods: Callable[[], list[NamedPod]]
    addresses: AddressPool
    processors: ProcessorPool
    session: aiohttp.ClientSession
