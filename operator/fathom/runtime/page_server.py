"""The page that people look at: read-only, without a log-in, and so on loopback by default.

Whoever may forward a port to the operator's pod sees it then, and nobody else.
"""

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from fathom.adapters.ports import Clock
from fathom.cluster.kinds import ObjectKey
from fathom.page.rendering import (
    Looks,
    message_page,
    overview_looks,
    overview_page,
    resource_looks,
    resource_page,
)
from fathom.page.resource_view import resource_view
from fathom.page.subject import ShownResources, overview_of, pages_of
from fathom.times import is_over

KEPT_S: Final = 2.0
"""A page is made once in this time, however often it is asked for."""
MOST_KEPT: Final = 32
"""Pages that are remembered for so long; of more, each is made again."""
_STANDS_BY: Final = (
    "This operator stands by: another one has the lease, and its page has the resources."
)
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_ELSEWHERE: Final = (
    "This page is for whoever forwards a port to it: open it as http://localhost:PORT. "
    "With the chart's page.service it may be asked by other names.\n"
)
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_log: Final = structlog.get_logger(__name__)


class Pages:
    """Answers requests from what this operator knows, one at a time."""

    def __init__(self, shown: ShownResources, clock: Clock, leads: Callable[[], bool]) -> None:
        """Serve from these.

        Args:
            shown: what there is to show.
            clock: tells how old a page is.
            leads: whether this operator acts; one that stands by knows nothing.
        """
        self._shown = shown
        self._clock = clock
        self._leads = leads
        self._kept: dict[str, tuple[float, str]] = {}

    async def overview(self, request: web.Request) -> web.Response:
        """The list; a page that is no number is the first one, and one beyond the last the last."""
        asked = request.query.get("page", "1")
        number = int(asked) if re.fullmatch(r"[0-9]{1,6}", asked) else 1
        # Before it is looked for among those that are made: else each number would make one.
        number = max(1, min(number, pages_of(len(self._shown))))

        def make(now_s: float) -> str:
            overview = overview_of(self._shown.statuses(), now_s, number)
            return overview_page(overview, now_s, "" if self._leads() else _STANDS_BY)

        return _answer(self._once(f"/?page={number}", make), overview_looks())

    async def resource(self, request: web.Request) -> web.Response:
        """One resource; 404 where there is none of that name."""
        return self._of_resource(request, home=True)

    async def report(self, request: web.Request) -> web.Response:
        """The same to be saved: one file that has no list to go back to."""
        return self._of_resource(request, home=False)

    def _of_resource(self, request: web.Request, *, home: bool) -> web.Response:
        key = ObjectKey(request.match_info["namespace"], request.match_info["name"])
        if key not in self._shown:
            sentence = f"This operator manages no SpeculativeDeployment {key}."
            page = message_page("Not found", sentence)
            return _answer(page, overview_looks(), HTTPStatus.NOT_FOUND)

        def make(now_s: float) -> str:
            return resource_page(resource_view(self._shown.subject(key), now_s), home=home)

        return _answer(self._once(request.path, make), resource_looks())

    def _once(self, what: str, make: Callable[[float], str]) -> str:
        now_s = self._clock.now_s()
        self._kept = {
            each: (at_s, text)
            for each, (at_s, text) in self._kept.items()
            if not is_over(at_s, KEPT_S, now_s)
        }
        if what in self._kept:
            return self._kept[what][1]
        made = make(now_s)
        if len(self._kept) < MOST_KEPT:
            self._kept[what] = now_s, made
        return made


def _answer(text: str, looks: Looks, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    policy = f"{looks.policy}; frame-ancestors 'none'"
    response = web.Response(
        text=text,
        content_type="text/html",
        status=status,
        headers={**_HEADERS, "Content-Security-Policy": policy},
    )
    response.enable_compression()
    return response


@web.middleware
async def _asked_of_loopback(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse what was asked of another name: a site in a browser may point its own here."""
    if request.url.host not in _LOOPBACK:
        raise web.HTTPForbidden(text=_ELSEWHERE)
    return await handler(request)


async def serve_page(pages: Pages, host: str, port: int) -> web.AppRunner:
    """Serve the page. Where that cannot be, the log says so, and the operator does its work.

    Args:
        pages: what answers.
        host: the address to listen on; empty: every one.
        port: 0 serves nothing.

    Returns:
        What the caller has to `cleanup`.
    """
    application = web.Application(middlewares=[_asked_of_loopback] if host in _LOOPBACK else [])
    application.add_routes(
        [
            web.get("/", pages.overview),
            web.get("/resources/{namespace}/{name}", pages.resource),
            web.get("/reports/{namespace}/{name}", pages.report),
        ]
    )
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    if port:
        try:
            await web.TCPSite(runner, host=host or None, port=port).start()
        except OSError as error:
            _log.warning("page not served; --page-port chooses another port", reason=str(error))
    return runner
