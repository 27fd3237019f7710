"""What servers of others answer over HTTP: bounded in time, size and number, and never quoted.

Whoever runs a pod, or may name a URL, decides what comes back. It must not fill our memory, hold up
others, lead us elsewhere, or stand in a status that more people read than may ask the server.
"""

import asyncio
import os
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

_PLAIN: Final = "identity"
AUTHORIZATION: Final = "Authorization"
"""The header that a login is."""
HEADER_TEXT: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,8190}[\x21-\x7e])?")
"""What a header's value may be."""
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class BadAnswerError(Exception):
    """There is no usable answer; the message says why, in our words, as half a sentence."""


class NoAnswerError(BadAnswerError):
    """Nothing came, or not all of it in time: whoever waits for it waits long."""


class RefusedError(BadAnswerError):
    """It answers with a status that is not 200.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, status: int) -> None:
        super().__init__(refusal(status))
        self.status = status


class TooLargeError(BadAnswerError):
    """An answer is larger than one may be."""


class Room:
    """Bytes that unfinished answers may hold together; when they are too many, the largest goes.

    No answer waits for room, so that those who send much, or slowly, hold up nobody but themselves.
    """

    def __init__(self, most_bytes: int) -> None:
        self._left_bytes = most_bytes
        self._bodies: dict[int, bytearray] = {}

    def open(self) -> bytearray:
        """A body to be filled by `fill`, and handed back to `close`."""
        body = bytearray()
        self._bodies[id(body)] = body
        return body

    def fill(self, body: bytearray, chunk: bytes) -> None:
        """Add to a body.

        Raises:
            BadAnswerError: it was, or is now, dropped for its size.
        """
        if id(body) in self._bodies:
            body += chunk
            self._left_bytes -= len(chunk)
            while self._left_bytes < 0:
                self._drop(max(self._bodies.values(), key=len))
        if id(body) not in self._bodies:
            raise BadAnswerError("too much was on its way from all sources, and this was the most")

    def close(self, body: bytearray) -> None:
        if id(body) in self._bodies:
            self._drop(body)

    def _drop(self, body: bytearray) -> None:
        del self._bodies[id(body)]
        self._left_bytes += len(body)
        body.clear()


def http_session(connections: int, *, keeps_them: bool = True) -> aiohttp.ClientSession:
    """A session that keeps no cookies and unpacks nothing. Call it where a loop runs; close it.

    Args:
        connections: in use at the same time, at most.
        keeps_them: for some seconds, for the next request. Nothing bounds how many it keeps, one
            for each server: not for thousands of pods, each of which is read again only after its
            server has closed the connection.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=connections, force_close=not keeps_them, resolver=_Names(connections)
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )


class _Names(AbstractResolver):
    """Looks names up in threads of its own, as many as there are connections.

    A look-up cannot be stopped. Where nobody answers it keeps its thread for many seconds, and the
    loop's few threads are for what reads files, too.
    """

    def __init__(self, at_once: int) -> None:
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        look_up = partial(
            socket.getaddrinfo,
            host,
            port,
            family,
            socket.SOCK_STREAM,
            flags=socket.AI_ADDRCONFIG,
        )
        found = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        self._threads.shutdown(wait=False)


async def whole_answer(
    session: aiohttp.ClientSession,
    url: str,
    *,
    most_bytes: int,
    timeout_s: float,
    connect_s: float | None = None,
    room: Room | None = None,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
    tls: ssl.SSLContext | None = None,
) -> bytes:
    """GET, and the body of an answer that says 200. Redirects are not followed. Idempotent.

    Args:
        session: best one from `http_session`.
        url: whom to ask.
        most_bytes: of the body; one that is larger is none.
        timeout_s: seconds for all of it, the last byte included.
        connect_s: seconds of them until there is a connection; None: as many as for all of it.
        room: shared with other answers that are read at the same time; None: as much as it takes.
        params: of the query.
        headers: to send besides.
        tls: whom to trust; None: whom this machine trusts.

    Raises:
        NoAnswerError: it took too long.
        RefusedError: its status is another one.
        BadAnswerError: there is no such answer.
    """
    room = room or Room(2 * most_bytes)
    body = room.open()
    try:
        async with session.get(
            url,
            params=params,
            headers={**headers, "Accept-Encoding": _PLAIN},
            ssl=tls or True,
            timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=connect_s),
            allow_redirects=False,
        ) as response:
            if response.status != HTTPStatus.OK:
                raise RefusedError(response.status)
            _refuse_packed(response)
            async for chunk in response.content.iter_any():
                room.fill(body, chunk)
                if len(body) > most_bytes:
                    raise TooLargeError(f"its answer is larger than {most_bytes} bytes")
            return bytes(body)
    except aiohttp.ConnectionTimeoutError as error:
        raise NoAnswerError(f"no connection comes about within {connect_s:g} s") from error
    except TimeoutError as error:
        raise NoAnswerError(f"no answer within {timeout_s:g} s") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise BadAnswerError(cause_of(error)) from error
    finally:
        room.close(body)


def bearer(token: str) -> dict[str, str]:
    return {AUTHORIZATION: f"Bearer {token}"}


def basic(user: str, password: str) -> dict[str, str]:
    return {AUTHORIZATION: f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}


async def first_bytes(response: aiohttp.ClientResponse, most: int) -> bytes:
    """An answer, but no more than so many bytes of it: what runs in a pod must not fill our memory.

    Raises:
        BadAnswerError: it comes packed, and a few bytes may unpack to very many.
        aiohttp.ClientError: the connection broke.
        TimeoutError: it took longer than the request may.
    """
    _refuse_packed(response)
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) >= most:
            break
    return bytes(body[:most])


def refusal(status: int) -> str:
    """Why an answer of this HTTP status is none, as a sentence's second half."""
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return f"it answers with HTTP status {status}, and redirects are not followed"
    return f"it answers with HTTP status {status}"


def cause_of(error: Exception) -> str:
    """What went wrong on the way, as a sentence's second half; nothing that a server said."""
    match error:
        case BadAnswerError():
            why = str(error)
        case aiohttp.ClientConnectorDNSError() | UnicodeError():
            why = "its name cannot be resolved"
        case aiohttp.ClientConnectorCertificateError():
            why = "its certificate is not trusted, or is for another name"
        case aiohttp.ClientSSLError() | ssl.SSLError():
            why = "no TLS connection comes about"
        case aiohttp.ClientConnectorError(errno=int(number)) if number > 0:
            # Not the error's own text, which names the address: many pods have one cause.
            why = f"no connection comes about ({os.strerror(number)})"
        case aiohttp.ClientConnectorError():
            why = "no connection comes about"
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            why = "this is not a URL that can be asked"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError():
            why = "it closed the connection"
        case aiohttp.ClientPayloadError():
            why = "it broke off in the middle of its answer"
        case _:
            why = f"what it answers is not HTTP ({type(error).__name__})"
    return why


def _refuse_packed(response: aiohttp.ClientResponse) -> None:
    packing = response.headers.get("Content-Encoding", _PLAIN)
    if packing != _PLAIN:
        raise BadAnswerError("its answer comes packed, though it was asked not to pack it")


class NoTurnError(Exception):
    """There was none in time."""


@asynccontextmanager
async def turn(turns: asyncio.Semaphore, within_s: float) -> AsyncIterator[None]:
    """Have a turn for the length of the block, in which no time runs any more.

    Args:
        turns: as many as may run at the same time.
        within_s: seconds to wait for one.

    Raises:
        NoTurnError: there was none.
    """
    try:
        async with asyncio.timeout(within_s):
            await turns.acquire()
    except TimeoutError as error:
        raise NoTurnError from error
    try:
        yield
    finally:
        turns.release()
