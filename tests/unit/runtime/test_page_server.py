"""The page over HTTP: it only reads, is the leader's, and costs one rendering in two seconds."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from fathom.cluster.kinds import ObjectKey
from fathom.runtime.caches import PassReport, ShownResources
from fathom.runtime.page_server import (
    KEPT_S,
    MOST_KEPT,
    MOST_PASSED_ON_BYTES,
    Pages,
    Standby,
    asked_at,
    serve_page,
)
from fathom.runtime.tenure import Leader, ip_address_of
from manifest_samples import manifest
from support.loop_harness import ManualClock
from support.page_subjects import EAGER, lived
from support.tuner_harness import KEY as TUNER
from support.tuner_harness import TunerHarness
from unit.runtime.test_main import free_ports

SUBJECT, NOW_S = lived()
POLICY = {"Content-Security-Policy": "default-src 'none'"}
WITHIN_S = 0.5
PORTS = 8
"""Tried, until one is free."""


@dataclass
class Site:
    """A page that is served, and who asks it."""

    url: str
    session: aiohttp.ClientSession
    shown: ShownResources
    clock: ManualClock
    runner: web.AppRunner = field(init=False)
    leads: bool = True
    leader: Leader | None = None
    """The other one, while this one does not lead."""

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        async with self.session.get(f"{self.url}{path}", headers=headers) as answer:
            return answer.status, await answer.text()

    def saw(self, key: ObjectKey, uid: str = "1") -> None:
        status, document = SUBJECT.status, SUBJECT.document
        reported = PassReport(
            uid=uid, manifest=manifest(EAGER), status=status, document=document, state=SUBJECT.state
        )
        self.shown.saw(key, reported, self.clock.now_s())

    async def saw_tuner(self) -> None:
        """A SpeculationTuner with two pods."""
        scene = TunerHarness()
        await scene.tick()
        subject = scene.shown.subject(TUNER)
        resource = scene.resource
        reported = PassReport(
            uid="2",
            manifest={each: resource[each] for each in ("apiVersion", "kind", "metadata", "spec")},
            status=subject.status,
            document=subject.document,
            state=subject.state,
        )
        self.shown.saw(TUNER, reported, self.clock.now_s())


@asynccontextmanager
async def served(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Site]:
    shown, clock = ShownResources(), ManualClock()
    async with aiohttp.ClientSession() as session:
        # One that is free on loopback may be taken elsewhere, or a moment later.
        for each in (port,) if port else free_ports(PORTS):
            site = Site(f"http://{host or '127.0.0.1'}:{each}", session, shown, clock)
            site.runner = await serve_page(Pages(shown, clock), standby_of(site, each), host)
            if site.runner.addresses:
                break
            await site.runner.cleanup()
        try:
            yield site
        finally:
            await site.runner.cleanup()


def standby_of(site: Site, port: int) -> Standby:
    return Standby(
        session=site.session,
        leads=lambda: site.leads,
        leader=lambda: site.leader,
        namespace="fathom-system",
        port=port,
        within_s=WITHIN_S,
    )


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Site, Site]]:
    """One that leads, which has a resource, and one that stands by: the latter is asked."""
    (port,) = free_ports(1)
    async with served("127.0.0.1", port) as leader, served("127.0.0.2", port) as standby:
        leader.saw(SUBJECT.key)
        standby.leads = False
        standby.leader = Leader("operator-0", ip_address_of("127.0.0.1"))
        yield leader, standby


@asynccontextmanager
async def before_a_stranger(answers: Handler) -> AsyncIterator[Site]:
    """One that stands by, and at the address of its leader's page something else answers."""
    application = web.Application()
    application.add_routes([web.get("/{path:.*}", answers)])
    runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with served("127.0.0.2", runner.addresses[0][1]) as standby:
            standby.leads = False
            standby.leader = Leader("operator-0", ip_address_of("127.0.0.1"))
            yield standby
    finally:
        await runner.cleanup()


async def test_the_list_leads_to_each_resource() -> None:
    async with served() as site:
        site.saw(SUBJECT.key)
        code, overview = await site.get("/")
        assert code == 200
        assert 'href="/resources/llm/kimi"' in overview
        code, page = await site.get("/resources/llm/kimi")
        assert code == 200
        assert "Tokens per second by batch and depth" in page
        assert str(SUBJECT.status.measured.tokens_per_second) in page


async def test_a_report_is_the_same_page_that_leads_nowhere() -> None:
    async with served() as site:
        site.saw(SUBJECT.key)
        code, report = await site.get("/reports/llm/kimi")
        assert code == 200
        assert "Tokens per second by batch and depth" in report
        assert 'href="/' not in report


async def test_what_is_not_there_is_told() -> None:
    async with served() as site:
        code, page = await site.get("/resources/llm/%3Cscript%3E")
        assert code == 404
        assert "no SpeculativeDeployment llm/&lt;script&gt;" in page


async def test_it_only_reads_and_lets_nothing_else_run() -> None:
    async with served() as site:
        site.saw(SUBJECT.key)
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            async with site.session.request(method, f"{site.url}/") as answer:
                assert answer.status == 405
        for path in ("/", "/resources/llm/kimi", "/resources/llm/none"):
            async with site.session.get(f"{site.url}{path}") as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert policy.startswith("default-src 'none'")
                assert policy.endswith("frame-ancestors 'none'")
                assert "unsafe" not in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("host", "name", "code"),
    [
        ("127.0.0.1", "localhost:8081", 200),
        ("127.0.0.1", "[::1]:8081", 200),
        ("127.0.0.1", "elsewhere.example:8081", 403),
        ("", "fathom-page.fathom-system", 200),
    ],
)
async def test_on_loopback_no_other_name_is_answered(host: str, name: str, code: int) -> None:
    async with (
        served(host) as site,
        site.session.get(f"{site.url}/", headers={"Host": name}) as answer,
    ):
        assert answer.status == code
        assert ("localhost" in await answer.text()) is (code == 403)


async def test_a_page_is_made_once_in_a_while_however_often_it_is_asked_for() -> None:
    async with served() as site:
        site.saw(SUBJECT.key)
        _, first = await site.get("/")
        site.saw(ObjectKey("llm", "another"))
        assert await site.get("/") == (200, first)
        site.clock.at_s += KEPT_S
        _, later = await site.get("/")
        assert "another" in later


async def test_a_page_beyond_the_last_is_the_last_and_not_made_for_each_number() -> None:
    async with served() as site:
        site.saw(SUBJECT.key)
        _, first = await site.get("/")
        site.saw(ObjectKey("llm", "another"))
        for asked in ("2", "999999", "0", "none"):
            assert await site.get(f"/?page={asked}") == (200, first)


async def test_many_resources_are_all_served_and_few_remembered() -> None:
    async with served() as site:
        paths = [f"/resources/llm/kimi-{number}" for number in range(MOST_KEPT + 1)]
        for number in range(MOST_KEPT + 1):
            site.saw(ObjectKey("llm", f"kimi-{number}"))
        before = [await site.get(path) for path in paths]
        site.clock.at_s += KEPT_S / 2
        after = [await site.get(path) for path in paths]

        assert {code for code, _ in before} == {200}
        assert before[:-1] == after[:-1]
        # Beyond what is remembered it is made anew.
        assert before[-1] != after[-1]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/", 200),
        ("/?page=1", 200),
        ("/resources/llm/kimi", 200),
        ("/reports/llm/kimi", 200),
        ("/resources/llm/%3Cscript%3E%2F..", 404),
    ],
)
async def test_whoever_is_asked_the_page_is_the_leader_s(path: str, code: int) -> None:
    async with pair() as (leader, standby):
        page = await leader.get(path)
        assert page[0] == code
        assert await standby.get(path) == page
        assert ("kimi" in page[1]) is (code == 200)


async def test_a_page_that_is_passed_on_lets_nothing_else_run_either() -> None:
    async with pair() as (leader, standby):
        for path in ("/", "/resources/llm/kimi", "/resources/llm/none"):
            heads = []
            for site in (leader, standby):
                async with site.session.get(f"{site.url}{path}") as answer:
                    heads.append({k: v for k, v in answer.headers.items() if k != "Date"})
            assert heads[0] == heads[1]
            assert "Content-Security-Policy" in heads[1]
        async with standby.session.post(f"{standby.url}/") as answer:
            assert answer.status == 405
        assert (await standby.get("/healthz"))[0] == 404


async def test_the_leader_is_sent_nothing_of_who_asks() -> None:
    sent: list[web.Request] = []

    async def note(request: web.Request) -> web.Response:
        sent.append(request)
        return web.Response()

    async with before_a_stranger(note) as standby:
        of_mine = {"Cookie": "a=b", "Authorization": "Bearer x", "X-Forwarded-For": "192.0.2.1"}
        await standby.get("/?page=2", of_mine)
    (request,) = sent
    assert (request.method, request.raw_path) == ("GET", "/?page=2")
    assert not of_mine.keys() & request.headers.keys()


async def test_without_the_leader_s_page_it_says_where_that_is() -> None:
    async with pair() as (_, standby):
        standby.leader = Leader("operator-0")
        code, page = await standby.get("/resources/llm/kimi")
        assert code == 503
        assert "operator-0 has the lease" in page
        assert "kubectl --namespace fathom-system port-forward pod/operator-0 " in page


async def test_a_leader_that_is_gone_is_said_with_the_cause() -> None:
    async with served("127.0.0.2") as standby:
        standby.leads = False
        standby.leader = Leader("operator-<0>", ip_address_of("127.0.0.1"))
        code, page = await standby.get("/")
        assert code == 503
        assert "no connection comes about (Connection refused)" in page
        assert "port-forward &#39;pod/operator-&lt;0&gt;&#39; " in page
        standby.leader = None
        code, page = await standby.get("/")
        assert code == 503
        assert "No operator has the lease at the moment" in page
        standby.leads = True
        assert (await standby.get("/"))[0] == 200


async def test_two_that_stand_by_do_not_ask_each_other() -> None:
    """As where the lease names an operator that has just lost it."""
    async with pair() as (former, standby):
        former.leads = False
        former.leader = Leader("operator-1", ip_address_of("127.0.0.2"))
        code, page = await standby.get("/")
        assert code == 503
        assert "it answers with HTTP status 503" in page
        # The former one was asked, and asked no further.
        code, page = await former.get("/", {"Fathom-From-Standby": "true"})
        assert code == 503
        assert "operator-1 has the lease, and its page has the resources." in page


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        ({"text": "hello"}, "what answers is no page of an operator"),
        ({"status": 302, "headers": {"Location": "/x"}}, "redirects are not followed"),
        ({"status": 500, "headers": POLICY}, "it answers with HTTP status 500"),
        ({"body": bytes(MOST_PASSED_ON_BYTES + 1), "headers": POLICY}, "it is larger than"),
        ({"headers": POLICY | {"Content-Encoding": "gzip"}}, "its answer comes packed"),
    ],
)
async def test_what_is_no_page_of_a_leader_is_not_passed_on(
    answer: dict[str, Any], cause: str
) -> None:
    async def answers(_: web.Request) -> web.Response:
        return web.Response(**answer)

    async with before_a_stranger(answers) as standby:
        code, page = await standby.get("/")
        assert code == 503
        assert cause in page


async def test_a_leader_that_hangs_is_waited_for_for_seconds() -> None:
    async def hangs(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError("it hangs")

    async with before_a_stranger(hangs) as standby:
        code, page = await standby.get("/")
        assert code == 503
        assert f"no answer within {WITHIN_S:g} s" in page


@pytest.mark.parametrize(
    ("host", "pod_ip", "asked"),
    [
        ("", "10.0.0.7", "10.0.0.7"),
        ("", "fd00::7", "fd00::7"),
        ("", "", None),
        ("127.0.0.2", "10.0.0.7", "10.0.0.7"),
        ("127.0.0.1", "10.0.0.7", None),
        ("localhost", "10.0.0.7", None),
    ],
)
async def test_a_page_on_loopback_is_named_to_no_other(
    host: str, pod_ip: str, asked: str | None
) -> None:
    async with served(host) as site:
        assert asked_at(pod_ip, site.runner, host) == (ip_address_of(asked) if asked else None)


async def test_what_is_gone_is_not_shown_and_another_of_its_name_begins_anew() -> None:
    async with served() as site:
        site.saw(SUBJECT.key)
        began = site.shown.subject(SUBJECT.key).history
        site.saw(SUBJECT.key)
        assert site.shown.subject(SUBJECT.key).history is began
        site.saw(SUBJECT.key, uid="2")
        assert site.shown.subject(SUBJECT.key).history is not began
        site.shown.forget(SUBJECT.key)
        assert (await site.get("/resources/llm/kimi"))[0] == 404


async def test_a_port_that_is_taken_does_not_keep_the_operator_from_its_work() -> None:
    with socket.create_server(("127.0.0.2", 0)) as taken:
        async with served("127.0.0.2", taken.getsockname()[1]) as site:
            assert site.runner.addresses == []
            assert asked_at("10.0.0.7", site.runner, "127.0.0.2") is None


@pytest.mark.parametrize(("host", "everywhere"), [("127.0.0.1", False), ("", True)])
async def test_it_listens_where_it_was_told(host: str, *, everywhere: bool) -> None:
    async with served(host) as site:
        port = int(site.url.rpartition(":")[2])
        # Another address of loopback stands for another interface.
        try:
            _, writer = await asyncio.open_connection("127.0.0.2", port)
        except ConnectionRefusedError:
            assert not everywhere
        else:
            writer.close()
            assert everywhere


async def test_two_kinds_may_have_one_name_and_each_has_its_page() -> None:
    async with served() as site:
        await site.saw_tuner()
        tuner, report = [
            await site.get(f"/{each}/llm/{TUNER.name}") for each in ("tuners", "tuner-reports")
        ]
        missing = await site.get(f"/resources/llm/{TUNER.name}")
        site.saw(ObjectKey("llm", TUNER.name))
        deployment = await site.get(f"/resources/llm/{TUNER.name}")
        _, listed = await site.get("/")

    assert tuner[0] == report[0] == deployment[0] == 200
    assert "Pods readable" in tuner[1]
    assert "Replicas ready" in deployment[1]
    assert missing[0] == 404
    assert f"This operator manages no SpeculativeDeployment llm/{TUNER.name}." in missing[1]
    assert f'href="/tuners/llm/{TUNER.name}"' in listed


async def test_a_tuner_that_is_not_there_is_not_found() -> None:
    async with served() as site:
        status, page = await site.get("/tuners/llm/none")
    assert status == 404
    assert "This operator manages no SpeculationTuner llm/none." in page


async def test_one_that_stands_by_has_the_leaders_page_of_a_tuner() -> None:
    async with pair() as (leader, standby):
        await leader.saw_tuner()
        status, page = await standby.get(f"/tuners/llm/{TUNER.name}")
    assert status == 200
    assert "Pods readable" in page
