"""Servers on loopback that answer as nobody should: for ever, a byte at a time, somewhere else."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

Answer = Callable[["BadServer", asyncio.StreamWriter], Awaitable[None]]

SECRET: Final = "s3cr3t-of-somebody-else"
_OK: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_PIECE: Final = b"x" * (1 << 16)
_BOMB: Final = gzip.compress(bytes(1 << 24))


@dataclass
class BadServer:
    """One server, and what was asked of it."""

    answer: Answer
    asked: list[str] = field(default_factory=list)
    """Path and query of each request."""
    heads: list[str] = field(default_factory=list)
    """All of each request but its first line, in small letters."""
    sent_bytes: int = 0
    open: int = 0
    """Connections that stand now."""
    url: str = ""
    port: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        await writer.drain()
        self.sent_bytes += len(data)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.asked.append(head.split(b" ", 2)[1].decode())
            self.heads.append(head.partition(b"\r\n")[2].decode().lower())
            await self.answer(self, writer)
        self.open -= 1
        writer.close()


@asynccontextmanager
async def answering(
    answer: Answer, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[BadServer]:
    """A server on a free port, until the end of the block."""
    bad = BadServer(answer)
    server = await asyncio.start_server(bad.serve, "127.0.0.1", 0, ssl=tls)
    bad.port = server.sockets[0].getsockname()[1]
    bad.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{bad.port}"
    yield bad
    bad.over.set()
    server.close()
    await server.wait_closed()


async def endless(server: BadServer, writer: asyncio.StreamWriter) -> None:
    await server.send(writer, _OK + b"\r\n")
    while True:
        await server.send(writer, _PIECE)


async def endless_headers(server: BadServer, writer: asyncio.StreamWriter) -> None:
    await server.send(writer, _OK)
    while True:
        await server.send(writer, b"X-More: " + b"y" * 4000 + b"\r\n")


async def endless_line(server: BadServer, writer: asyncio.StreamWriter) -> None:
    while True:
        await server.send(writer, b"HTTP" + _PIECE)


async def _drip(server: BadServer, writer: asyncio.StreamWriter) -> None:
    while not server.over.is_set():
        await server.send(writer, b" ")
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await server.over.wait()


async def dripping(server: BadServer, writer: asyncio.StreamWriter) -> None:
    """A byte in each 50 ms: no read of it takes long."""
    await server.send(writer, _OK + b"\r\n")
    await _drip(server, writer)


async def dripping_headers(server: BadServer, writer: asyncio.StreamWriter) -> None:
    await server.send(writer, _OK + b"X-Slow:")
    await _drip(server, writer)


async def silent(server: BadServer, writer: asyncio.StreamWriter) -> None:
    del writer
    await server.over.wait()


async def looping(server: BadServer, writer: asyncio.StreamWriter) -> None:
    away = f"HTTP/1.1 302 {SECRET}\r\nLocation: {server.url}/{SECRET}\r\nContent-Length: 0\r\n\r\n"
    await server.send(writer, away.encode())


async def bomb(server: BadServer, writer: asyncio.StreamWriter) -> None:
    """16 MiB of zeros, packed into some kilobytes."""
    head = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(_BOMB)
    await server.send(writer, _OK + head + _BOMB)


async def failing(server: BadServer, writer: asyncio.StreamWriter) -> None:
    """An error with a secret wherever there is place for words."""
    body = f'{{"status":"error","error":"{SECRET}"}}'
    head = f"HTTP/1.1 503 {SECRET}\r\nX-Said: {SECRET}\r\nContent-Length: {len(body)}\r\n\r\n"
    await server.send(writer, (head + body).encode())


async def failing_for_ever(server: BadServer, writer: asyncio.StreamWriter) -> None:
    """An error whose body has no end."""
    warning = f"X-HF-Warning: {SECRET}; {SECRET}\r\n".encode()
    await server.send(writer, b"HTTP/1.1 500 No\r\n" + warning + b"\r\n")
    while True:
        await server.send(writer, _PIECE)


def refusing(status: int) -> Answer:
    """An answer of that status that leads elsewhere, and says a secret for 64 MiB."""

    async def answer(server: BadServer, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status} {SECRET}\r\nRetry-After: 0\r\nLocation: /{SECRET}\r\n\r\n"
        await server.send(writer, head.encode())
        for _ in range(1024):
            await server.send(writer, SECRET.encode().ljust(1 << 16))

    return answer


async def babbling(server: BadServer, writer: asyncio.StreamWriter) -> None:
    """Neither HTTP nor anything else."""
    await server.send(writer, f"{SECRET} {SECRET}\r\n\r\n".encode())


async def breaking_off(server: BadServer, writer: asyncio.StreamWriter) -> None:
    await server.send(writer, _OK + f"Content-Length: 5000\r\n\r\n{SECRET}".encode())


def saying(body: bytes) -> Answer:
    """An answer that is whole, and 200."""

    async def answer(server: BadServer, writer: asyncio.StreamWriter) -> None:
        await server.send(writer, _OK + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    return answer


def leading_to(other: BadServer) -> Answer:
    async def answer(server: BadServer, writer: asyncio.StreamWriter) -> None:
        away = f"HTTP/1.1 307 Elsewhere\r\nLocation: {other.url}/\r\nContent-Length: 0\r\n\r\n"
        await server.send(writer, away.encode())

    return answer
