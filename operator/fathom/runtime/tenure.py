"""For how long this operator leads, who else does, and the API server for as long as it does."""

import os
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from socket import gethostname
from typing import Final

from pydantic import JsonValue

from fathom.adapters.ports import KubeError, KubePort, Page, WatchEvent
from fathom.cluster.kinds import Kind, ServedApis
from fathom.cluster.manifest import Manifest, Seen

RENEW_DEADLINE_S: Final = 10
"""As in client-go: long enough for a restart of the API server, short enough to be waited for."""
IPAddress = IPv4Address | IPv6Address


def ip_address_of(text: str) -> IPAddress | None:
    """The address; None: it is none, or has a zone, which could be any text of a URL."""
    try:
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Leader:
    """An operator as the lease says of the one that holds it."""

    name: str
    page_ip: IPAddress | None = None
    """Where others may ask its page; None: nowhere."""


def this_operator() -> str:
    """Its name: its pod, which runs one container at a time, or else this process."""
    return os.environ.get("POD_NAME") or f"{gethostname()}-{uuid.uuid4().hex[:8]}"


def _since_boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Tenure:
    """For how long the lease is surely held: until the renewal's deadline, by every clock.

    A machine that slept has a clock that stood still, one whose time was set has one that jumped.
    One thread renews and reads the lease, and another asks: what each leaves is one write, so that
    they need no lock.
    """

    def __init__(self, clocks: Sequence[Callable[[], float]] = (time.time, _since_boot_s)) -> None:
        """Start without the lease.

        Args:
            clocks: seconds; of each only differences matter.
        """
        self._clocks = clocks
        self._renewed: tuple[float, ...] | None = None
        self.other: Leader | None = None
        """Who held the lease when it was last read; None: no other operator."""

    @property
    def holds(self) -> bool:
        """Whether no other operator can have taken the lease."""
        if self._renewed is None:
            return False
        pairs = zip(self.now(), self._renewed, strict=True)
        return all(now_s - renewed_s < RENEW_DEADLINE_S for now_s, renewed_s in pairs)

    def now(self) -> tuple[float, ...]:
        """This moment, to be handed to `renewed`."""
        return tuple(clock() for clock in self._clocks)

    def given_back(self) -> None:
        """Anybody may take the lease from now on."""
        self._renewed = None

    def renewed(self, asked_at: tuple[float, ...]) -> None:
        """The lease was taken or renewed, by a request that was sent at that moment."""
        self._renewed = asked_at


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
