"""Connections in memory: what listens at an address answers with bytes of its own making.

The operator's HTTP client is the real one; it believes that it speaks over a Unix socket.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

LATENCY_S: Final = 0.002


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked of one address."""

    method: str
    target: str
    """Path and query."""
    host: str
    body: bytes


Answer = Callable[["Connection", Request], Awaitable[None]]


class Network:
    """Routes each request by the host that it names."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._listeners: dict[str, Answer] = {}
        self._context = contextvars.copy_context()

    def listen(self, host: str, answer: Answer) -> None:
        """Answer at a host (with its port) from now on."""
        self._listeners[host] = answer

    def forget(self, host: str) -> None:
        """Nothing listens there any more."""
        self._listeners.pop(host, None)

    async def connect(
        self, protocol_factory: Callable[[], asyncio.Protocol]
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Open a connection. Whether somebody listens shows when something is sent."""
        protocol = protocol_factory()
        connection = Connection(self, protocol, self._loop, self._context)
        protocol.connection_made(connection)
        return connection, protocol

    def listener(self, host: str) -> Answer | None:
        return self._listeners.get(host)


class Connection(asyncio.Transport):
    """The client's end; what answers it speaks through it."""

    def __init__(
        self,
        network: Network,
        protocol: asyncio.BaseProtocol,
        loop: asyncio.AbstractEventLoop,
        world: contextvars.Context,
    ) -> None:
        super().__init__()
        self._network = network
        self._protocol: Any = protocol
        self._loop = loop
        self._world = world
        self._client = contextvars.copy_context()
        self._received = b""
        self._closed = False

    # -- what the client's protocol uses

    def write(self, data: Any) -> None:
        self._received += bytes(data)
        self._serve()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.call_soon(self._protocol.connection_lost, None, context=self._client)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol  # type: ignore[no-any-return]

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        del name
        return default

    def pause_reading(self) -> None:
        """What answers is never so fast."""

    def resume_reading(self) -> None:
        """As `pause_reading`."""

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del high, low

    # -- what answers uses

    def send(self, data: bytes) -> None:
        """Bytes for the client, on the network's own time."""
        self._loop.call_later(LATENCY_S, self._deliver, data, context=self._client)

    def respond(self, status: int, body: bytes, content_type: str = "text/plain") -> None:
        """A whole answer."""
        head = f"HTTP/1.1 {status} Simulated\r\nContent-Type: {content_type}\r\n"
        self.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def reset(self) -> None:
        """End it in the middle."""
        if not self._closed:
            self._closed = True
            error = ConnectionResetError("reset by the simulation")
            self._loop.call_soon(self._protocol.connection_lost, error, context=self._client)

    @property
    def closed(self) -> bool:
        return self._closed

    # -- inside

    def _deliver(self, data: bytes) -> None:
        if not self._closed:
            self._protocol.data_received(data)

    def _serve(self) -> None:
        head, found, rest = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        first, *lines = head.decode().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return
        self._received = rest[length:]
        method, target, _ = first.split(" ")
        request = Request(method, target, headers["host"], rest[:length])
        answer = self._network.listener(request.host)
        if answer is None:
            self.reset()
            return
        # The listener is nobody's process: neither killed nor paused with its client.
        self._loop.create_task(answer(self, request), context=self._world.copy())  # type: ignore[arg-type]
