"""What the end-to-end tests look at, each from where it cannot be argued with."""

import asyncio
import datetime as dt
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import psutil
from kubernetes.aio.client.exceptions import ApiException

from local_cluster.cluster import LocalCluster
from local_cluster.control_plane.audit import AuditEvent, read_events
from local_cluster.demo.fleet import DemoFleet
from local_cluster.demo.stage import OPERATOR_NAMESPACE

GUARD_SECONDS = 1500.0
"""For whatever is waited for: ten times what the longest, a rollout, takes on a quiet machine."""
POLL_SECONDS = 0.5
OPERATOR = f"system:serviceaccount:{OPERATOR_NAMESPACE}:fathom"


def by_operator(cluster: LocalCluster, since: dt.datetime | None = None) -> list[AuditEvent]:
    """The operator's requests, as the API server counted them."""
    return [
        event
        for event in read_events(cluster.audit_log)
        if event.user == OPERATOR and (since is None or event.at >= since)
    ]


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


async def until(holds: Callable[[], Awaitable[bool]]) -> float:
    """Wait for a condition.

    Returns:
        Seconds it took.

    Raises:
        TimeoutError: it did not hold before the outer guard.
    """
    started = time.monotonic()
    async with asyncio.timeout(GUARD_SECONDS):
        while not await holds():
            await asyncio.sleep(POLL_SECONDS)
    return time.monotonic() - started


def operator_process(cluster: LocalCluster) -> psutil.Process | None:
    """The operator's own process, inside its pod."""
    for process in psutil.Process(cluster.kubelet.pid).children(recursive=True):
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if "run" in command and any(part.endswith("/fathom") for part in command):
            return process
    return None


async def operator_leads(cluster: LocalCluster, since: dt.datetime) -> bool:
    """Whether an operator does more than wait for the lease."""
    return any(event.resource != "leases" for event in by_operator(cluster, since))


async def removed(fleet: DemoFleet) -> None:
    """Delete the resource of another module's tests, if it is there, and wait for its pods."""
    with suppress(ApiException):
        await fleet.api.request("DELETE", fleet.path)
    await until(lambda: no_pods(fleet))


async def no_pods(fleet: DemoFleet) -> bool:
    return not await fleet.pods()
