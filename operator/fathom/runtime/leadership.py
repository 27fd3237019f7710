"""One operator at a time, by a Lease. Kopf's peering is not leader election."""

import asyncio
import os
import socket
import uuid
from collections.abc import Awaitable, Callable
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


def identity() -> str:
    """Who this operator is: its pod, which runs one container at a time, or else this process."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"


class _PatientLock(LeaseLock):
    """A lease whose calls time out, and whose connection errors count as "not renewed yet".

    The library's own lets both through, so that one dropped connection ends a leadership that
    has seconds left.
    """

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
        return await _or_false(self._create(namespace, lease))

    async def _create(self, namespace: str, lease: V1Lease) -> bool:
        try:
            await self.api_instance.create_namespaced_lease(namespace, lease)
        except ApiException as error:
            _log.warning("lease not created", namespace=namespace, error=error.body or str(error))
            return False
        return True

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        return await _or_false(super().update(name, namespace, updated_record))


async def _or_false(call: Awaitable[bool]) -> bool:
    try:
        async with asyncio.timeout(_CALL_TIMEOUT_S):
            return await call
    except (aiohttp.ClientError, OSError):
        return False


async def _nothing() -> None:
    """What `lead` does when the lease is lost, it does itself."""


async def lead(
    api: ApiClient, *, name: str, namespace: str, who: str, work: Callable[[], Awaitable[None]]
) -> None:
    """Wait for the lease, then work for as long as it is held.

    Returns when the work ends by itself.

    Raises:
        LeadershipLostError: the lease is lost; the work has been cancelled.
    """
    elected = asyncio.Event()

    async def stay_elected() -> None:
        elected.set()
        await asyncio.Event().wait()

    election = LeaderElection(
        Config(
            _PatientLock(name, namespace, who, api),
            lease_duration=LEASE_S,
            renew_deadline=RENEW_DEADLINE_S,
            retry_period=RETRY_S,
            onstarted_leading=stay_elected,
            onstopped_leading=_nothing,
        )
    )
    renewing = asyncio.ensure_future(election.run())
    waiting = asyncio.ensure_future(elected.wait())
    tasks: list[asyncio.Future[Any]] = [renewing, waiting]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if renewing.done():
            await renewing
            raise LeadershipLostError(f"lease {namespace}/{name} was lost as soon as it was taken.")
        working = asyncio.ensure_future(work())
        tasks.append(working)
        await asyncio.wait([renewing, working], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
            return
        raise LeadershipLostError(
            f"lease {namespace}/{name} could not be renewed for {RENEW_DEADLINE_S} s: this "
            "operator stops, so that two never act at once."
        )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
