"""One operator at a time, by a Lease. Kopf's peering is not leader election.

The lease is renewed in a thread of its own, over a connection of its own: in the loop that works, a
renewal would wait behind whatever is due, and an operator with much to do would lose the lease.
See docs/design/0039-an-operator-that-is-full.md.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import aiohttp
import structlog
from kubernetes.aio.client import ApiClient, Configuration, V1Lease, V1ObjectMeta
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from fathom.api import names
from fathom.cluster.kinds import ObjectKey
from fathom.runtime.operator_process import LIFELESS_AFTER_S, Beside, Pulse, loop_beside
from fathom.runtime.tenure import RENEW_DEADLINE_S, IPAddress, Leader, Tenure, ip_address_of

# As in client-go, and so is RENEW_DEADLINE_S.
LEASE_S: Final = 15
RETRY_S: Final = 2
_CALL_TIMEOUT_S: Final = 5.0
GIVEN_UP_AFTER_S: Final = RETRY_S + _CALL_TIMEOUT_S
"""Without the lease: within so long a renewal brings it back, if one does. Until then nothing is
written, so that a clock that is set forward ends no operator."""
_log: Final = structlog.get_logger(__name__)

_Answer = tuple[bool, LeaderElectionRecord] | tuple[bool, Exception] | tuple[bool, None]


class LeadershipLostError(Exception):
    """The lease could not be renewed: another operator may hold it now."""


class _PatientLock(LeaseLock):
    """A lease whose calls time out, and whose connection errors count as "not renewed yet".

    The library's own lets both through, so that one dropped connection ends a leadership that
    has seconds left.
    """

    def __init__(
        self, key: ObjectKey, who: Leader, api: ApiClient, tenure: Tenure, pulse: Pulse
    ) -> None:
        super().__init__(key.name, key.namespace, who.name, api)
        self._who = who
        self._tenure = tenure
        self._pulse = pulse
        self._writing: asyncio.Future[bool] | None = None
        """The last write of the lease; None: there was none."""
        self._leader = ""

    async def get(self, name: str, namespace: str) -> _Answer:
        try:
            async with asyncio.timeout(_CALL_TIMEOUT_S):
                answer = await super().get(name, namespace)
        except (aiohttp.ClientError, OSError) as error:
            return False, ApiException(status=0, reason=str(error) or type(error).__name__)
        if answer[0]:
            leader = _leader_of(self.lease_reference)
            self._say_who_leads(leader)
            self._tenure.other = None if leader and leader.name == self.identity else leader
        return answer

    def _say_who_leads(self, leader: Leader | None) -> None:
        """A log without a word looks like that of an operator that hangs."""
        if leader and leader.name not in {self.identity, self._leader}:
            _log.info("stands by: another operator leads", leader=leader.name)
        self._leader = leader.name if leader else self._leader

    async def create(
        self, name: str, namespace: str, election_record: LeaderElectionRecord
    ) -> bool:
        # Not the library's own `create`: kubernetes 37.0 passes `pretty=True` in it, which its
        # own client refuses.
        lease = V1Lease(metadata=V1ObjectMeta(name=name), spec=self.update_lease(election_record))
        _give_page(lease, self._who.page_ip)
        return await self._noted(self._create(namespace, lease))

    async def _create(self, namespace: str, lease: V1Lease) -> bool:
        try:
            await self.api_instance.create_namespaced_lease(namespace, lease)
        except ApiException as error:
            _log.warning("lease not created", namespace=namespace, error=error.body or str(error))
            return False
        return True

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        # In the write that says who leads: the address is never that of a former leader.
        _give_page(self.lease_reference, self._who.page_ip)
        return await self._noted(super().update(name, namespace, updated_record))

    async def give_back(self) -> None:
        """Let the next operator begin at once, and not a lease later. Never raises."""
        if self._writing is None:
            return
        in_flight = not self._writing.done()
        # It may be what takes the lease. What is read before it is done is another lease.
        await asyncio.wait([self._writing])
        held = self._tenure.holds
        self._tenure.given_back()
        if not (held or in_flight):
            return
        name, namespace = self.name, self.namespace
        try:
            async with asyncio.timeout(_CALL_TIMEOUT_S):
                lease = await self.api_instance.read_namespaced_lease(name, namespace)
                if lease.spec is None or lease.spec.holder_identity != self.identity:
                    return
                # At the version that was read: whoever has taken it since keeps it.
                lease.spec.holder_identity = None
                _give_page(lease, None)
                await self.api_instance.replace_namespaced_lease(name, namespace, lease)
        except (ApiException, aiohttp.ClientError, OSError) as error:
            _log.warning("lease not given back", namespace=namespace, error=str(error))

    async def _noted(self, call: Coroutine[Any, Any, bool]) -> bool:
        if not self._pulse.alive:
            call.close()
            _log.error(
                "lease not renewed: this operator has hung for "
                f"{LIFELESS_AFTER_S:.0f} s, so that another may take over",
                lease=f"{self.namespace}/{self.name}",
            )
            return False
        self._writing = asyncio.ensure_future(self._written(call))
        # A write that is cut off may take effect anyway, and nobody would know.
        return await asyncio.shield(self._writing)

    async def _written(self, call: Coroutine[Any, Any, bool]) -> bool:
        asked_at = self._tenure.now()
        try:
            async with asyncio.timeout(_CALL_TIMEOUT_S):
                taken = await call
        except (aiohttp.ClientError, OSError):
            return False
        if taken:
            self._tenure.renewed(asked_at)
        return taken


def _leader_of(lease: V1Lease | None) -> Leader | None:
    if lease is None or lease.spec is None or not lease.spec.holder_identity:
        return None
    annotations = (lease.metadata and lease.metadata.annotations) or {}
    page_ip = ip_address_of(annotations.get(names.ANNOTATION_PAGE_IP, ""))
    return Leader(lease.spec.holder_identity, page_ip)


def _give_page(lease: V1Lease | None, page_ip: IPAddress | None) -> None:
    if lease is None or lease.metadata is None:
        return
    annotations = dict(lease.metadata.annotations or {})
    annotations.pop(names.ANNOTATION_PAGE_IP, None)
    if page_ip is not None:
        annotations[names.ANNOTATION_PAGE_IP] = str(page_ip)
    lease.metadata.annotations = annotations


async def _nothing() -> None:
    """What `lead` does when the lease is taken or lost, it does itself."""


async def lead_from_a_thread(
    configuration: Configuration,
    *,
    name: str,
    namespace: str,
    who: Leader,
    work: Callable[[], Awaitable[None]],
    tenure: Tenure,
    lease_s: int = LEASE_S,
) -> None:
    """As `lead`, with the lease in a thread of its own and over a connection of its own.

    Args:
        configuration: how to reach the API server.
        name: of the lease.
        namespace: of the lease.
        who: this operator, as the lease is to say of it.
        work: what to do, in this event loop; cancelled when the lease is lost.
        tenure: learns of each renewal.
        lease_s: as of `lead`.

    Raises:
        LeadershipLostError: the lease is lost; the work has been cancelled.
    """
    async with loop_beside("lease") as beside:
        api: ApiClient = await beside(_client(configuration))
        try:
            await lead(
                api,
                beside,
                name=name,
                namespace=namespace,
                who=who,
                work=work,
                tenure=tenure,
                pulse=Pulse(),
                lease_s=lease_s,
            )
        finally:
            await _soon(beside(api.close()))  # type: ignore[no-untyped-call]


async def _client(configuration: Configuration) -> ApiClient:
    """Made in the loop in which it is used."""
    return ApiClient(configuration)


async def lead(
    api: ApiClient,
    beside: Beside[Any],
    *,
    name: str,
    namespace: str,
    who: Leader,
    work: Callable[[], Awaitable[None]],
    tenure: Tenure,
    pulse: Pulse,
    lease_s: int = LEASE_S,
) -> None:
    """Wait for the lease, then work for as long as it is held.

    Returns when the work ends by itself. However it ends, what is held of the lease is given back.

    Args:
        api: of the API server; it belongs to where `beside` runs things.
        beside: runs what has to do with the lease.
        name: of the lease.
        namespace: of the lease.
        who: this operator, as the lease is to say of it.
        work: what to do; cancelled when the lease is lost.
        tenure: learns of each renewal.
        pulse: of the event loop that works: without it the lease is neither taken nor renewed.
        lease_s: seconds for which another's lease is left alone that is not renewed.

    Raises:
        LeadershipLostError: the lease is lost; the work has been cancelled.
    """
    lock = _PatientLock(ObjectKey(namespace, name), who, api, tenure, pulse)
    config = Config(
        lock,
        lease_duration=lease_s,
        renew_deadline=RENEW_DEADLINE_S,
        retry_period=RETRY_S,
        onstarted_leading=_nothing,
        onstopped_leading=_nothing,
    )
    election = LeaderElection(config)
    beating = asyncio.ensure_future(pulse.keep())
    try:
        await beside(election.acquire())
        await work_while_held(
            beside(election.renew_loop()),
            work,
            lease=f"{namespace}/{name}",
            holds=lambda: tenure.holds,
        )
    finally:
        beating.cancel()
        await _soon(beside(lock.give_back()))


async def _soon(ending: "asyncio.Future[None]") -> None:
    """Wait for what has nothing to say, but not for a thread that hangs."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_CALL_TIMEOUT_S):
            await ending


async def work_while_held(
    renewing: "asyncio.Future[None]",
    work: Callable[[], Awaitable[None]],
    *,
    lease: str,
    holds: Callable[[], bool],
    look_s: float = RETRY_S,
    given_up_after_s: float = GIVEN_UP_AFTER_S,
) -> None:
    """Work until the work ends or the lease is lost.

    Args:
        renewing: ends when the lease could not be renewed.
        work: what to do.
        lease: what it is about, in words.
        holds: whether the lease is held: what renews it may hang, and never end.
        look_s: seconds between two looks whether it is.
        given_up_after_s: seconds for which it may look lost.

    Raises:
        LeadershipLostError: the lease is lost; the work has been cancelled.
    """
    working = asyncio.ensure_future(work())
    tasks: list[asyncio.Future[Any]] = [
        renewing,
        working,
        asyncio.ensure_future(_while(holds, look_s, given_up_after_s)),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
            return
        if renewing.done():
            await renewing
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


async def _while(holds: Callable[[], bool], look_s: float, given_up_after_s: float) -> None:
    loop = asyncio.get_running_loop()
    held_s = loop.time()
    while loop.time() - held_s < given_up_after_s:
        if holds():
            held_s = loop.time()
        await asyncio.sleep(look_s)
