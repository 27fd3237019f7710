"""Whether this operator lives: also while it stands by, when Kopf is not running yet."""

from aiohttp import web

from fathom.core.counted import counted
from fathom.runtime.loops import Loops


async def serve_health(loops: Loops, port: int) -> web.AppRunner:
    """Serve /healthz on every interface: 200, or 503 naming the loops that are stuck.

    Args:
        loops: what has to live.
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

    application = web.Application()
    application.add_routes([web.get("/healthz", healthz)])
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    if port:
        await web.TCPSite(runner, port=port).start()
    return runner
