"""Where the API server fetches what containers have written: `kubectl logs`, but for `-f`."""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

from aiohttp import web

from local_cluster.kubelet.config import KubeletConfig


def log_app(logs_directory: Path) -> web.Application:
    """Answers as a kubelet does, from one file per container: the output of all its restarts."""

    async def logs(request: web.Request) -> web.Response:
        place = request.match_info
        path = logs_directory / f"{place['namespace']}_{place['pod']}" / f"{place['container']}.log"
        if request.query.get("follow") == "true":
            return _refused("following is not supported here: use `fathom local logs -f`.")
        if not await asyncio.to_thread(path.is_file):
            return _refused(f"container {place['container']} is waiting to start")
        lines, limit = (_number(request, name) for name in ("tailLines", "limitBytes"))
        text = await asyncio.to_thread(_read, path, lines, limit)
        return web.Response(body=text, content_type="text/plain")

    app = web.Application()
    # Names of Kubernetes, which no path hides in.
    name = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
    places = "/".join(f"{{{key}:{name}}}" for key in ("namespace", "pod", "container"))
    app.router.add_get(f"/containerLogs/{places}", logs)
    return app


@asynccontextmanager
async def log_server(config: KubeletConfig) -> AsyncIterator[int]:
    """Serve; nobody but the API server gets in: it shows its certificate.

    Yields:
        The port, on the nodes' address. Any that is free: a kubelet's own may be a real one's.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(config.ca_certificate))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(config.certificate, config.key)
    runner = web.AppRunner(log_app(config.logs_directory), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, str(config.network.gateway), 0, ssl_context=context).start()
        port: int = runner.addresses[0][1]
        yield port
    finally:
        await runner.cleanup()


def _number(request: web.Request, name: str) -> int | None:
    """The API server has seen that it is one; None: not asked for."""
    text = request.query.get(name)
    return int(text) if text else None


def _read(path: Path, lines: int | None, limit: int | None) -> bytes:
    with path.open("rb") as file:
        text = file.read() if lines is None else b"".join(deque(file, maxlen=lines))
    return text if limit is None else text[:limit]


def _refused(sentence: str) -> web.Response:
    return web.Response(status=HTTPStatus.BAD_REQUEST, text=sentence)
