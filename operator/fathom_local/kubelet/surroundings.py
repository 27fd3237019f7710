from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from fathom_local.kube import Object
from fathom_local.kubelet.config import KubeletConfig
from fathom_local.kubelet.containers.processors import ProcessorPool
from fathom_local.kubelet.hosts import NamedPod
from fathom_local.kubelet.models import Pod, TokenSource
from fathom_local.kubelet.sandbox import AddressPool
from fathom_local.kubelet.sources import Sources


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
