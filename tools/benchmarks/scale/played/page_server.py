"""Every engine's /metrics, each at the address of its pod, from one process."""

import asyncio
import resource
import time
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address
from typing import Final

from benchmarks.scale.played.engine import PlayedEngine
from fathom.engine.flags import HTTP_PORT
from local_cluster.errors import LocalClusterError

_FIRST: Final = IPv4Address("127.64.0.1")
"""All of 127.0.0.0/8 is this machine's, and nobody else can reach it."""
_SPARE_FILES: Final = 4096
"""Connections beside the listening sockets."""
_BACKLOG: Final = 8


def address(number: int) -> str:
    """Address of the pod with this number, counted from 0."""
    return str(_FIRST + number)


class PageServer:
    """Answers at the addresses that it was told to listen at."""

    def __init__(self, engines: Mapping[str, PlayedEngine]) -> None:
        """Listen nowhere.

        Args:
            engines: by address; looked up at each request.
        """
        self.shown = 0
        """Pages."""
        self._engines = engines
        self._servers: list[asyncio.Server] = []

    async def listen(self, addresses: int) -> None:
        """At so many addresses.

        Raises:
            LocalClusterError: not all of them can be had.
        """
        _allow_files(addresses + _SPARE_FILES)
        loop = asyncio.get_running_loop()
        try:
            for number in range(addresses):
                self._servers.append(
                    await loop.create_server(
                        lambda: _Answering(self._page),
                        address(number),
                        HTTP_PORT,
                        backlog=_BACKLOG,
                    )
                )
        except OSError as error:
            await self.close()
            raise LocalClusterError(
                f"The engines' pages cannot be served at {address(number)}:{HTTP_PORT}: "
                f"{error.strerror}. The benchmark takes port {HTTP_PORT} of {addresses} addresses "
                f"from {_FIRST} on; end what listens at that port on every address."
            ) from error

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()

    def _page(self, at: str) -> str | None:
        if (engine := self._engines.get(at)) is None:
            return None
        self.shown += 1
        return engine.page(time.time())


class _Answering(asyncio.Protocol):
    """One connection: any GET is answered with the page of the address that it came to.

    By hand, as an HTTP server would take more of the machine than the operator does.
    """

    def __init__(self, page: Callable[[str], str | None]) -> None:
        self._page = page
        self._asked = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what create_server gives
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._asked += data
        while b"\r\n\r\n" in self._asked and self._transport is not None:
            _, _, self._asked = self._asked.partition(b"\r\n\r\n")
            page = self._page(self._transport.get_extra_info("sockname")[0])
            status = "200 OK" if page is not None else "503 Service Unavailable"
            body = (page or "").encode()
            head = (
                f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            self._transport.write(head.encode() + body)


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise LocalClusterError(
            f"This benchmark needs {wanted} open files, and `ulimit -Hn` says {hard}: raise that, "
            "or take fewer resources with --sizes."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
