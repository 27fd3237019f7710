"""Asks a container how it is."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp

from local_cluster.kubelet.containers.container_process import ContainerProcess
from local_cluster.kubelet.models import Container, ContainerProbe, Handler

FIRST_FAILING_STATUS = HTTPStatus.BAD_REQUEST
Verdict = str | None
"""None when well, else what is wrong."""


@dataclass(frozen=True, slots=True)
class Prober:
    """Carries out handlers of one container: probes, and hooks that are written the same way."""

    session: aiohttp.ClientSession
    container: Container
    process: ContainerProcess
    pod_ip: str

    async def check(self, handler: Handler, limit_seconds: float) -> Verdict:
        """Tries once."""
        try:
            if handler.exec is not None:
                code, output = await self.process.execute(handler.exec.command, limit_seconds)
                return None if code == 0 else f"exit code {code}: {output[:500].strip()}"
            async with asyncio.timeout(limit_seconds):
                if handler.http_get is not None:
                    return await self._http_get(handler)
                if handler.tcp_socket is not None:
                    return await self._tcp_socket(handler)
        except TimeoutError:
            return f"no answer within {limit_seconds:g} s"
        except (aiohttp.ClientError, OSError) as error:
            return str(error) or type(error).__name__
        return "The local kubelet supports only exec, httpGet and tcpSocket."

    async def _http_get(self, handler: Handler) -> Verdict:
        action = handler.http_get
        port = None if action is None else self.container.port_number(action.port)
        if action is None or port is None:
            return f"container {self.container.name} has no such port"
        url = f"{action.scheme.lower()}://{action.host or self.pod_ip}:{port}/"
        headers = {header.name: header.value for header in action.http_headers}
        async with self.session.get(
            url.rstrip("/") + "/" + action.path.lstrip("/"),
            headers=headers,
            allow_redirects=False,
            ssl=False,
        ) as response:
            if response.status < FIRST_FAILING_STATUS:
                return None
            return f"HTTP probe failed with statuscode: {response.status}"

    async def _tcp_socket(self, handler: Handler) -> Verdict:
        action = handler.tcp_socket
        port = None if action is None else self.container.port_number(action.port)
        if action is None or port is None:
            return f"container {self.container.name} has no such port"
        _, writer = await asyncio.open_connection(action.host or self.pod_ip, port)
        writer.close()
        return None


@dataclass(slots=True)
class ThresholdCounter:
    """Turns single verdicts into a steady one."""

    probe: ContainerProbe
    _successes: int = 0
    _failures: int = 0

    def add(self, *, well: bool) -> bool | None:
        """The verdict once enough tries in a row agree, else None."""
        if well:
            self._successes, self._failures = self._successes + 1, 0
            return True if self._successes >= self.probe.success_threshold else None
        self._successes, self._failures = 0, self._failures + 1
        return False if self._failures >= self.probe.failure_threshold else None


async def watch_probe(
    prober: Prober, probe: ContainerProbe, decided: Callable[[bool, str], bool]
) -> None:
    """Probes periodically.

    Args:
        prober: carries it out.
        probe: what, and how often.
        decided: called with each verdict that reached its threshold, and what was wrong; returns
            whether to go on.
    """
    counter = ThresholdCounter(probe)
    await asyncio.sleep(probe.initial_delay_seconds)
    while True:
        problem = await prober.check(probe, probe.timeout_seconds)
        verdict = counter.add(well=problem is None)
        if verdict is not None and not decided(verdict, problem or ""):
            return
        await asyncio.sleep(probe.period_seconds)
