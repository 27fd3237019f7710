"""Watches the operator from outside for a while: processor time, memory, connections, metrics."""

import asyncio
import time
from typing import Final

import psutil

from benchmarks.scale.figures import Reading
from benchmarks.scale.measurement import MeasuredWindow
from benchmarks.scale.operator_process import OperatorProcess
from benchmarks.scale.played.page_server import PageServer
from benchmarks.scale.received_bytes import Received
from local_cluster.control_plane.components import ControlPlane
from local_cluster.errors import LocalClusterError

_LOOK_SECONDS: Final = 2.0
"""Between two looks at memory and connections."""


async def watched(
    operator: OperatorProcess, plane: ControlPlane, pages: PageServer, seconds: float
) -> MeasuredWindow:
    """Watch for so many seconds.

    Raises:
        LocalClusterError: a process of the control plane has ended.
    """
    before = await _read(operator, plane, pages, first=True)
    received, rss_bytes, api_server_bytes, known = Received(), 0, 0, True
    until_s = time.monotonic() + seconds
    while True:
        by_connection = await operator.received(plane.port)
        if by_connection is None:
            known = False
        else:
            received.look(by_connection)
        rss_bytes = max(rss_bytes, operator.rss_bytes())
        api_server_bytes = max(api_server_bytes, _part(plane, "kube-apiserver").memory_info().rss)
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            break
        await asyncio.sleep(min(_LOOK_SECONDS, left_s))
    after = await _read(operator, plane, pages, first=False)
    return MeasuredWindow(
        before, after, rss_bytes, api_server_bytes, received.total if known else None
    )


async def _read(
    operator: OperatorProcess, plane: ControlPlane, pages: PageServer, *, first: bool
) -> Reading:
    """Everything that grows. What asking takes of the operator falls outside of the window."""
    if first:
        told = await operator.told_by_all()
    machine = psutil.cpu_times()
    parts = {name: _part(plane, name).cpu_times() for name in ("kube-apiserver", "etcd")}
    own = psutil.Process().cpu_times()
    at_s, operator_s, shown = time.time(), operator.cpu_s(), pages.shown
    if not first:
        told = await operator.told_by_all()
    return Reading(
        at_s=at_s,
        operator_s=operator_s,
        waited_s=operator.waited_s(),
        api_server_s=sum(parts["kube-apiserver"][:2]),
        etcd_s=sum(parts["etcd"][:2]),
        bench_s=own.user + own.system,
        machine_s=machine.user + machine.nice + machine.system + machine.irq + machine.softirq,
        passes=told.passes,
        failures=told.failures,
        decisions=told.decisions,
        pages=shown,
        restarts=operator.restarts,
    )


def _part(plane: ControlPlane, name: str) -> psutil.Process:
    """A process of the control plane."""
    (record,) = [each for each in plane.processes if each.name == name]
    if (process := record.find()) is None:
        raise LocalClusterError(f"{name} has ended; see why in its log.")
    return process
