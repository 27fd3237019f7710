"""Makes ClusterIP Services work: `python -m local_cluster.service_proxy CONFIG`.

Each service address is put on the cluster's bridge, so that the host and the pods reach it, and a
TCP proxy there spreads connections over the ready endpoints, the one with fewest first. An
endpoint that goes away gets no new connections and keeps those it has. A service without ready
endpoints refuses connections, as in a real cluster.
"""

import asyncio
import contextlib
import ipaddress
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import structlog
from pydantic import BaseModel, ConfigDict

from local_cluster.daemon import run_until_signal
from local_cluster.errors import LocalClusterError
from local_cluster.kube import Key, KubeApi, Mirror, Object, connect
from local_cluster.network import ClusterNetwork, run_ip

CONNECT_SECONDS = 3.0
CHUNK_BYTES = 65536
LISTEN_BACKLOG = 1024

log = structlog.get_logger()


class Target(NamedTuple):
    """Where a connection ends, or where one begins."""

    address: str
    port: int


Targets = dict[Target, tuple[Target, ...]]
"""Ready endpoints by service address."""


class ServiceProxyConfig(BaseModel):
    """Everything a proxy process is told; it reads this from a file."""

    model_config = ConfigDict(frozen=True)

    kubeconfig: Path
    network: ClusterNetwork


def service_targets(service: Object, endpoints: Object | None) -> Targets:
    """What one service's addresses lead to."""
    address = service["spec"].get("clusterIP")
    if address in (None, "", "None"):
        return {}
    targets: Targets = {}
    for port in service["spec"].get("ports") or ():
        if port.get("protocol", "TCP") != "TCP":
            continue
        ready = _ready(endpoints or {}, port.get("name", ""))
        targets[Target(address, port["port"])] = tuple(sorted(ready))
    return targets


def _ready(endpoints: Object, port_name: str) -> Iterator[Target]:
    for subset in endpoints.get("subsets") or ():
        for port in subset.get("ports") or ():
            if port.get("name", "") == port_name:
                for address in subset.get("addresses") or ():
                    yield Target(address["ip"], port["port"])


@dataclass(slots=True)
class Listener:
    """One service port."""

    at: Target
    targets: tuple[Target, ...] = ()
    _server: asyncio.Server | None = None
    _open: Counter[Target] = field(default_factory=Counter)
    _turn: int = 0
    _connections: set[asyncio.Task[None]] = field(default_factory=set)

    async def set_targets(self, targets: tuple[Target, ...]) -> None:
        """Takes over the ready endpoints; with none of them, nobody listens."""
        self.targets = targets
        if targets and self._server is None:
            self._server = await asyncio.start_server(
                self._accept, self.at.address, self.at.port, backlog=LISTEN_BACKLOG
            )
        elif not targets:
            self.close()

    def close(self) -> None:
        """Stops listening; connections that exist go on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _by_load(self) -> list[Target]:
        """Fewest connections first, and those with equally many in turn."""
        self._turn += 1
        count = max(len(self.targets), 1)
        turn = self._turn % count
        rotated = self.targets[turn:] + self.targets[:turn]
        return sorted(rotated, key=lambda target: self._open[target])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for target in self._by_load():
            # Counted before the first await, or a burst would all go to one endpoint.
            self._open[target] += 1
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    onward = await asyncio.open_connection(target.address, target.port)
            except (OSError, TimeoutError):
                self._open[target] -= 1
                continue
            try:
                await _join((reader, writer), onward)
            finally:
                self._open[target] -= 1
            return
        writer.transport.abort()


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _join(client: Stream, endpoint: Stream) -> None:
    """Carries bytes both ways until both sides have ended."""
    await asyncio.gather(_copy(client[0], endpoint[1]), _copy(endpoint[0], client[1]))
    for _, writer in (client, endpoint):
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        # The other direction may still have much to say.
        writer.write_eof()
    except OSError:
        # One side broke off; the other has to learn of it, and not as an orderly end.
        writer.transport.abort()


@dataclass(slots=True)
class ServiceProxy:
    """Keeps listeners in line with what the API server says."""

    api: KubeApi
    network: ClusterNetwork
    _listeners: dict[Target, Listener] = field(default_factory=dict)
    _addresses: set[str] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _services: Mirror = field(init=False)
    _endpoints: Mirror = field(init=False)

    def __post_init__(self) -> None:
        self._services = Mirror(self.api, "/api/v1/services", self._notice)
        self._endpoints = Mirror(self.api, "/api/v1/endpoints", self._notice)

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._services.run())
            group.create_task(self._endpoints.run())
            await self._services.synced.wait()
            await self._endpoints.synced.wait()
            while True:
                self._changed.clear()
                await self._apply()
                await self._changed.wait()

    def _notice(self, key: Key, item: Object | None) -> None:
        del key, item
        self._changed.set()

    async def _apply(self) -> None:
        wanted: Targets = {}
        for key, service in self._services.items.items():
            wanted |= service_targets(service, self._endpoints.items.get(key))
        for at in self._listeners.keys() - wanted.keys():
            self._listeners.pop(at).close()
        await self._apply_addresses({at.address for at in wanted})
        for at, targets in wanted.items():
            listener = self._listeners.setdefault(at, Listener(at))
            try:
                await listener.set_targets(targets)
            except OSError as error:
                log.warning("cannot listen", address=at.address, port=at.port, error=str(error))

    async def _apply_addresses(self, wanted: set[str]) -> None:
        for verb, addresses in (
            ("replace", wanted - self._addresses),
            ("del", self._addresses - wanted),
        ):
            for address in addresses:
                host = ipaddress.IPv4Interface(f"{address}/32")
                with contextlib.suppress(LocalClusterError):
                    await asyncio.to_thread(
                        run_ip, "addr", verb, str(host), "dev", self.network.bridge
                    )
        self._addresses = wanted


async def run_service_proxy(config: ServiceProxyConfig) -> None:
    """Runs a proxy until cancelled."""
    async with connect(config.kubeconfig) as client:
        await ServiceProxy(KubeApi(client), config.network).run()


if __name__ == "__main__":
    run_until_signal(
        run_service_proxy(ServiceProxyConfig.model_validate_json(Path(sys.argv[1]).read_text()))
    )
