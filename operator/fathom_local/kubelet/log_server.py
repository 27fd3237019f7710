"""Where the API server fetches what containers have written: `kubectl logs`, but for `-f`."""

import asyncio
import ssl
from collections import deque
from http import HTTPStatus
from pathlib import Path
from typing import Final

from aiohttp import web

from fathom_local.kubelet.config import KubeletConfig

PORT: Final = 10250
"""A kubelet's own, on an address of the cluster."""


def log_app(logs_directory: Path) -> web.Application:
    """Answers as a kubelet does, from one file per container: the output of all its restarts."""

    async def logs(request: web.Request) -> web.Response:
        place = request.match_info
        path = logs_directory / f"{place['namespace']}_{place['pod']}" / f"{place['container']}.log"
        if request.query.get("follow") == "true":
            return _refused("following is not supported here: use `fathom local logs -f`.")
        if not await asyncio.to_thread(path.is_file):
            return _refused(f"container {place['container']} is waiting to start")
        lines, limit = request.query.get("tailLines"), request.query.get("limitBytes")
        text = await asyncio.to_thread(_read, path, lines and int(lines), limit and int(limit))
        return web.Response(body=text, content_type="text/plain")

    app = web.Application()
    # Names of Kubernetes, which no path hides in.
    name = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
    places = "/".join(f"{{{key}:{name}}}" for key in ("namespace", "pod", "container"))
    app.router.add_get(f"/containerLogs/{places}", logs)
    return app


async def serve_logs(config: KubeletConfig) -> None:
    """Serve until cancelled. Nobody but the API server gets in: it shows its certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(config.ca_certificate))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(config.certificate, config.key)
    runner = web.AppRunner(log_app(config.logs_directory), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, str(config.network.gateway), PORT, ssl_context=context).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _read(path: Path, lines: int | str | None, limit: int | str | None) -> bytes:
    with path.open("rb") as file:
        text = b"".join(deque(file, maxlen=int(lines))) if lines else file.read()
    return text[: int(limit)] if limit else text


def _refused(sentence: str) -> web.Response:
    return web.Response(status=HTTPStatus.BAD_REQUEST, text=sentence)
