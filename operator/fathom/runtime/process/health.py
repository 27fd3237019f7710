"""Whether this operator lives, also while it stands by, and whether it could take over at once."""

from collections.abc import Callable

from aiohttp import web

from fathom.core.counted import counted
from fathom.runtime.loops import Loops


async def serve_health(loops: Loops, is_ready: Callable[[], bool], port: int) -> web.AppRunner:
    """Serve /healthz and /readyz on every interface: 200, or 503 and what is the matter.

    Args:
        loops: what has to live.
        is_ready: whether all children were listed, as far as they can be.
        port: 0 serves nothing.

    Returns:
        What the caller has to `cleanup`.

    Raises:
        OSError: the port is taken.
    """

    async def healthz(_: web.Request) -> web.Response:
        overdue = loops.overdue()
        if overdue:
            stuck = ", ".join(str(key) for key in overdue)
            return web.Response(status=503, text=f"stuck: {stuck}\n")
        return web.Response(text=f"ok, {counted(len(loops), 'resource')}\n")

    async def readyz(_: web.Request) -> web.Response:
        if not is_ready():
            return web.Response(status=503, text="not all children are listed\n")
        return web.Response(text="ok\n")

    application = web.Application()
    application.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    if port:
        await web.TCPSite(runner, port=port).start()
    return runner
