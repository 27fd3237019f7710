"""What pods answer over HTTP: read to the end, or until there is too much of it."""

import aiohttp


async def first_bytes(response: aiohttp.ClientResponse, most: int) -> bytes:
    """An answer, but no more than so many bytes of it: what runs in a pod must not fill our memory.

    Raises:
        aiohttp.ClientError: the connection broke.
        TimeoutError: it took longer than the request may.
    """
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) >= most:
            break
    return bytes(body[:most])
