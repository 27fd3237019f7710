"""The API server, for as long as this operator leads."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

from pydantic import JsonValue

from fathom.adapters.ports import KubeError, KubePort, Page, WatchEvent
from fathom.cluster.kinds import Kind, ServedApis
from fathom.cluster.manifest import Manifest, Seen


class FencedKube:
    """`KubePort` that sends no write once the lease may be another's.

    What is on its way by then, the API server compares with the state that it was decided on.
    """

    def __init__(self, kube: KubePort, leads: Callable[[], bool]) -> None:
        """Start.

        Args:
            kube: what it stands before.
            leads: whether this operator surely leads now.
        """
        self._kube = kube
        self._leads = leads

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        return await self._kube.get(kind, namespace, name)

    async def named(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        return await self._kube.named(kind, namespace, name)

    async def select(self, kind: Kind, namespace: str, selector: str) -> tuple[Manifest, ...]:
        return await self._kube.select(kind, namespace, selector)

    def pages(self, kind: Kind, namespace: str, selector: str) -> AsyncIterator[Page]:
        return self._kube.pages(kind, namespace, selector)

    def watch(
        self, kind: Kind, namespace: str, selector: str, since: str, for_s: float
    ) -> AsyncGenerator[WatchEvent]:
        return self._kube.watch(kind, namespace, selector, since, for_s)

    async def events(self, namespace: str, name: str, reason: str) -> tuple[Manifest, ...]:
        return await self._kube.events(namespace, name, reason)

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        self._check()
        return await self._kube.create(kind, manifest)

    async def apply(
        self, kind: Kind, manifest: Manifest, seen: Seen, *, subresource: str = ""
    ) -> Manifest:
        self._check()
        return await self._kube.apply(kind, manifest, seen, subresource=subresource)

    async def merge(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Mapping[str, JsonValue],
        seen: Seen | None,
    ) -> Manifest | None:
        self._check()
        return await self._kube.merge(kind, namespace, name, patch, seen)

    async def delete(self, kind: Kind, namespace: str, name: str, seen: Seen) -> None:
        self._check()
        await self._kube.delete(kind, namespace, name, seen)

    async def served(self) -> ServedApis:
        return await self._kube.served()

    def _check(self) -> None:
        if not self._leads():
            raise KubeError(0, "nothing is written: the lease was not renewed in time")
