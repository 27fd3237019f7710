"""One operator at a time, by a Lease. Kopf's peering is not leader election."""

import asyncio
import os
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

import aiohttp
import structlog
from kubernetes.aio.client import ApiClient, V1Lease, V1ObjectMeta
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

# As in client-go: long enough for a restart of the API server, short enough to be waited for.
LEASE_S: Final = 15
RENEW_DEADLINE_S: Final = 10
RETRY_S: Final = 2
_CALL_TIMEOUT_S: Final = 5.0
_log: Final = structlog.get_logger(__name__)

_Answer = tuple[bool, LeaderElectionRecord] | tuple[bool, Exception] | tuple[bool, None]


class LeadershipLostError(Exception):
    """The lease could not be renewed: another operator may hold it now."""


def _since_boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Tenure:
    """For how long the lease is surely held: until the renewal's deadline, by every clock.

    A machine that slept has a clock that stood still, one whose time was set has one that jumped.
    """

    def __init__(self, clocks: Sequence[Callable[[], float]] = (time.time, _since_boot_s)) -> None:
        """Start without the lease.

        Args:
            clocks: seconds; of each only differences matter.
        """
        self._clocks = clocks
        self._renewed: tuple[float, ...] | None = None

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


def identity() -> str:
    """Who this operator is: its pod, which runs one container at a time, or else this process."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"


class _PatientLock(LeaseLock):
    """A lease whose calls time out, and whose connection errors count as "not renewed yet".

    The library's own lets both through, so that one dropped connection ends a leadership that
    has seconds left.
    """

    def __init__(self, name: str, namespace: str, who: str, api: ApiClient, tenure: Tenure) -> None:
        super().__init__(name, namespace, who, api)
        self._tenure = tenure

    async def get(self, name: str, namespace: str) -> _Answer:
        try:
            async with asyncio.timeout(_CALL_TIMEOUT_S):
                return await super().get(name, namespace)
        except (aiohttp.ClientError, OSError) as error:
            return False, ApiException(status=0, reason=str(error) or type(error).__name__)

    async def create(
        self, name: str, namespace: str, election_record: LeaderElectionRecord
    ) -> bool:
        # Not the library's own `create`: kubernetes 37.0 passes `pretty=True` in it, which its
        # own client refuses.
        lease = V1Lease(metadata=V1ObjectMeta(name=name), spec=self.update_lease(election_record))
        return await self._noted(self._create(namespace, lease))

    async def _create(self, namespace: str, lease: V1Lease) -> bool:
        try:
            await self.api_instance.create_namespaced_lease(namespace, lease)
        except ApiException as error:
            _log.warning("lease not created", namespace=namespace, error=error.body or str(error))
            return False
        return True

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        return await self._noted(super().update(name, namespace, updated_record))

    async def give_back(self) -> None:
        """Let the next operator begin at once, and not a lease later. Never raises."""
        held = self._tenure.holds
        self._tenure.given_back()
        if not held:
            return
        name, namespace = self.name, self.namespace
        try:
            async with asyncio.timeout(_CALL_TIMEOUT_S):
                lease = await self.api_instance.read_namespaced_lease(name, namespace)
                if lease.spec is None or lease.spec.holder_identity != self.identity:
                    return
                # At the version that was read: whoever has taken it since keeps it.
                lease.spec.holder_identity = None
                await self.api_instance.replace_namespaced_lease(name, namespace, lease)
        except (ApiException, aiohttp.ClientError, OSError) as error:
            _log.warning("lease not given back", namespace=namespace, error=str(error))

    async def _noted(self, call: Awaitable[bool]) -> bool:
        asked_at = self._tenure.now()
        try:
            async with asyncio.timeout(_CALL_TIMEOUT_S):
                taken = await call
        except (aiohttp.ClientError, OSError):
            return False
        if taken:
            self._tenure.renewed(asked_at)
        return taken


async def _nothing() -> None:
    """What `lead` does when the lease is lost, it does itself."""


async def lead(
    api: ApiClient,
    *,
    name: str,
    namespace: str,
    who: str,
    work: Callable[[], Awaitable[None]],
    tenure: Tenure,
) -> None:
    """Wait for the lease, then work for as long as it is held.

    Returns when the work ends by itself; the lease is then given back.

    Args:
        api: of the API server.
        name: of the lease.
        namespace: of the lease.
        who: this operator.
        work: what to do; cancelled when the lease is lost.
        tenure: learns of each renewal.

    Raises:
        LeadershipLostError: the lease is lost; the work has been cancelled.
    """
    lock = _PatientLock(name, namespace, who, api, tenure)

    async def elect(stay_elected: Callable[[], Coroutine[Any, Any, None]]) -> None:
        config = Config(
            lock,
            lease_duration=LEASE_S,
            renew_deadline=RENEW_DEADLINE_S,
            retry_period=RETRY_S,
            onstarted_leading=stay_elected,
            onstopped_leading=_nothing,
        )
        await LeaderElection(config).run()

    await work_while_elected(elect, work, lease=f"{namespace}/{name}")
    await lock.give_back()


async def work_while_elected(
    elect: Callable[[Callable[[], Coroutine[Any, Any, None]]], Awaitable[None]],
    work: Callable[[], Awaitable[None]],
    *,
    lease: str,
) -> None:
    """Work from the moment of election until the work or the election ends.

    Args:
        elect: calls what it is given when elected, and returns when the election is lost.
        work: what to do.
        lease: what it is about, in words.

    Raises:
        LeadershipLostError: the election ended first; the work has been cancelled.
    """
    elected = asyncio.Event()

    async def stay_elected() -> None:
        elected.set()
        await asyncio.Event().wait()

    renewing = asyncio.ensure_future(elect(stay_elected))
    waiting = asyncio.ensure_future(elected.wait())
    tasks: list[asyncio.Future[Any]] = [renewing, waiting]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if renewing.done():
            await renewing
            raise LeadershipLostError(f"lease {lease} was lost as soon as it was taken.")
        working = asyncio.ensure_future(work())
        tasks.append(working)
        await asyncio.wait([renewing, working], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
            return
        raise LeadershipLostError(
            f"lease {lease} could not be renewed for {RENEW_DEADLINE_S} s: this operator stops, "
            "so that two never act at once."
        )
    finally:
        for task in tasks:
            task.cancel()
        # Work that does not end must not hide that the lease is lost.
        with suppress(TimeoutError):
            async with asyncio.timeout(_CALL_TIMEOUT_S):
                await asyncio.gather(*tasks, return_exceptions=True)
