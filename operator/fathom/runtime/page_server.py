"""The page that people look at: read-only, without a log-in, and so on loopback by default.

Whoever may forward a port to the operator's pod sees it then, and nobody else. An operator that
stands by answers with the page of the one that leads: see docs/design/0060-one-page-of-two.md.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from shlex import quote
from typing import Final

import aiohttp
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler
from yarl import URL

from fathom.adapters.http import BadAnswerError, cause_of, first_bytes, refusal
from fathom.adapters.ports import Clock
from fathom.cluster.kinds import SPECULATION_TUNER, SPECULATIVE_DEPLOYMENT, Kind, ObjectKey
from fathom.page.overview import overview_of, pages_of
from fathom.page.rendering import (
    Looks,
    message_looks,
    message_page,
    overview_looks,
    overview_page,
    resource_looks,
    resource_page,
)
from fathom.page.resource_view import resource_view
from fathom.runtime.caches import ShownResources
from fathom.runtime.tenure import IPAddress, Leader, ip_address_of
from fathom.text import shortened
from fathom.times import is_over

KEPT_S: Final = 2.0
"""A page is made once in this time, however often it is asked for."""
MOST_KEPT: Final = 32
"""Pages that are remembered for so long; of more, each is made again."""
PASSED_ON_AT_ONCE: Final = 4
"""Pages of the leader that are asked for at the same time."""
MOST_PASSED_ON_BYTES: Final = 4 << 20
"""A page of the leader may have as many: a list of 1,000 resources is a fifteenth of it."""
_FROM_STANDBY: Final = "Fathom-From-Standby"
"""A request with it is passed on no more, so that two that stand by do not ask each other."""
_POLICY: Final = "Content-Security-Policy"
_OURS: Final = "default-src 'none'"
"""How the policy of each page of an operator begins."""
_NO_LEADER: Final = (
    "No operator has the lease at the moment, so none knows the resources: "
    "open this page again in some seconds."
)
_LONGEST_NAME: Final = 253
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

    def __init__(self, shown: ShownResources, clock: Clock) -> None:
        """Serve from these.

        Args:
            shown: what there is to show.
            clock: tells how old a page is.
        """
        self._shown = shown
        self._clock = clock
        self._kept: dict[str, tuple[float, str]] = {}

    async def overview(self, request: web.Request) -> web.Response:
        """The list; a page that is no number is the first one, and one beyond the last the last."""
        asked = request.query.get("page", "1")
        number = int(asked) if re.fullmatch(r"[0-9]{1,6}", asked) else 1
        # Before it is looked for among those that are made: else each number would make one.
        number = max(1, min(number, pages_of(len(self._shown))))

        def make(now_s: float) -> str:
            return overview_page(overview_of(self._shown.statuses(), now_s, number), now_s)

        return _answer(self._once(f"/?page={number}", make), overview_looks())

    async def resource(self, request: web.Request) -> web.Response:
        """One resource; 404 where there is none of that name."""
        return self._of_resource(request, SPECULATIVE_DEPLOYMENT, home=True)

    async def report(self, request: web.Request) -> web.Response:
        """The same to be saved: one file that has no list to go back to."""
        return self._of_resource(request, SPECULATIVE_DEPLOYMENT, home=False)

    async def tuner(self, request: web.Request) -> web.Response:
        """One SpeculationTuner: a SpeculativeDeployment may have the same name."""
        return self._of_resource(request, SPECULATION_TUNER, home=True)

    async def tuner_report(self, request: web.Request) -> web.Response:
        """The same to be saved."""
        return self._of_resource(request, SPECULATION_TUNER, home=False)

    def _of_resource(self, request: web.Request, kind: Kind, *, home: bool) -> web.Response:
        key = ObjectKey(request.match_info["namespace"], request.match_info["name"], kind)
        if key not in self._shown:
            sentence = f"This operator manages no {kind.kind} {key.namespace}/{key.name}."
            page = message_page("Not found", sentence)
            return _answer(page, message_looks(), HTTPStatus.NOT_FOUND)

        def make(now_s: float) -> str:
            return resource_page(resource_view(self._shown.subject(key), now_s), home=home)

        return _answer(self._once(request.path, make), resource_looks(live=home))

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


@dataclass(frozen=True, slots=True)
class _Page:
    """A page as it is served: status, policy and the HTML."""

    status: HTTPStatus
    policy: str
    html: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Standby:
    """Answers while this operator stands by: then it knows nothing, and the leader is asked."""

    session: aiohttp.ClientSession
    """Its connections bound how many pages are asked for at the same time."""
    leads: Callable[[], bool]
    """Whether this operator acts."""
    leader: Callable[[], Leader | None]
    """The other one that does; None: none, as far as is known."""
    namespace: str
    """The namespace of the lease, and so of the leader's pod."""
    port: int
    """Where the page is served, by this operator and by the leader; 0: nowhere."""
    within_s: float = 5.0
    """Seconds for the whole answer of the leader."""

    def unless_leading(self, own: Handler) -> Handler:
        """What answers by `own` while this operator leads."""

        async def answer(request: web.Request) -> web.StreamResponse:
            return await (own(request) if self.leads() else self._by_leader(request))

        return answer

    async def _by_leader(self, request: web.Request) -> web.Response:
        leader = self.leader()
        if leader is None:
            return _stands_by(_NO_LEADER)
        name = shortened(leader.name, _LONGEST_NAME)
        here = (
            "Forward a port to that one: `kubectl --namespace "
            f"{self.namespace} port-forward {quote(f'pod/{name}')} {self.port}`"
        )
        if leader.page_ip is None or _FROM_STANDBY in request.headers:
            return _stands_by(f"{name} has the lease, and its page has the resources. {here}")
        # Of the request only path and query are sent: no cookie, no log-in, no host.
        url = URL.build(scheme="http", host=str(leader.page_ip), port=self.port)
        url = url.with_path(request.rel_url.raw_path, encoded=True)
        try:
            return _served(await self._asked(url.with_query(request.rel_url.query)))
        except BadAnswerError as error:
            return _stands_by(
                f"The page of {name}, which has the lease, cannot be had from "
                f"{url.host}, port {url.port}: {error}. {here}"
            )

    async def _asked(self, url: URL) -> _Page:
        """The page of the leader. Idempotent.

        Raises:
            BadAnswerError: there is none.
        """
        try:
            async with self.session.get(
                url,
                headers={_FROM_STANDBY: "true", "Accept-Encoding": "identity"},
                timeout=aiohttp.ClientTimeout(total=self.within_s),
                allow_redirects=False,
            ) as response:
                if response.status not in {HTTPStatus.OK, HTTPStatus.NOT_FOUND}:
                    raise BadAnswerError(refusal(response.status))
                policy = response.headers.get(_POLICY, "")
                if not policy.startswith(_OURS):
                    raise BadAnswerError("what answers is no page of an operator")
                html = await first_bytes(response, MOST_PASSED_ON_BYTES + 1)
        except TimeoutError as error:
            raise BadAnswerError(f"no answer within {self.within_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise BadAnswerError(cause_of(error)) from error
        if len(html) > MOST_PASSED_ON_BYTES:
            raise BadAnswerError(f"it is larger than {MOST_PASSED_ON_BYTES} bytes")
        return _Page(HTTPStatus(response.status), policy, html)


def _stands_by(sentence: str) -> web.Response:
    page = message_page("This operator stands by", sentence)
    return _answer(page, message_looks(), HTTPStatus.SERVICE_UNAVAILABLE)


def _answer(text: str, looks: Looks, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    return _served(_Page(status, f"{looks.policy}; frame-ancestors 'none'", text.encode()))


def _served(page: _Page) -> web.Response:
    response = web.Response(
        body=page.html,
        content_type="text/html",
        charset="utf-8",
        status=page.status,
        headers={**_HEADERS, _POLICY: page.policy},
    )
    response.enable_compression()
    return response


@web.middleware
async def _asked_of_loopback(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse what was asked of another name: a site in a browser may point its own here."""
    if request.url.host not in _LOOPBACK:
        raise web.HTTPForbidden(text=_ELSEWHERE)
    return await handler(request)


async def serve_page(pages: Pages, standby: Standby, host: str) -> web.AppRunner:
    """Serve the page. Where that cannot be, the log says so, and the operator does its work.

    Args:
        pages: what answers while this operator leads.
        standby: what answers while it does not, and the port; 0 serves nothing.
        host: the address to listen on; empty: every one.

    Returns:
        What the caller has to `cleanup`.
    """
    application = web.Application(middlewares=[_asked_of_loopback] if host in _LOOPBACK else [])
    application.add_routes(
        [
            web.get("/", standby.unless_leading(pages.overview)),
            web.get("/resources/{namespace}/{name}", standby.unless_leading(pages.resource)),
            web.get("/reports/{namespace}/{name}", standby.unless_leading(pages.report)),
            web.get("/tuners/{namespace}/{name}", standby.unless_leading(pages.tuner)),
            web.get(
                "/tuner-reports/{namespace}/{name}", standby.unless_leading(pages.tuner_report)
            ),
        ]
    )
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    if standby.port:
        try:
            await web.TCPSite(runner, host=host or None, port=standby.port).start()
        except OSError as error:
            _log.warning("page not served; --page-port chooses another port", reason=str(error))
    return runner


def asked_at(pod_ip: str, serving: web.AppRunner, host: str) -> IPAddress | None:
    """Where another operator may ask this one's page; None: it is not served, or on loopback.

    Args:
        pod_ip: of the pod, as Kubernetes gives it; empty: unknown.
        serving: what `serve_page` returned.
        host: the address that it was to listen on.
    """
    return ip_address_of(pod_ip) if serving.addresses and host not in _LOOPBACK else None
