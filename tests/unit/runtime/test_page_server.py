"""The page over HTTP: it only reads, says whose it is, and costs one rendering in two seconds."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest

from fathom.cluster.kinds import ObjectKey
from fathom.page.subject import PassReport, ShownResources
from fathom.runtime.page_server import KEPT_S, MOST_KEPT, Pages, serve_page
from manifest_samples import manifest
from support.loop_harness import ManualClock
from support.page_subjects import EAGER, lived
from unit.runtime.test_main import free_ports

SUBJECT, NOW_S = lived()


@dataclass
class Site:
    """A page that is served, and who asks it."""

    url: str
    session: aiohttp.ClientSession
    shown: ShownResources
    clock: ManualClock
    leads: bool = True

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(f"{self.url}{path}") as answer:
            return answer.status, await answer.text()

    def saw(self, key: ObjectKey, uid: str = "1") -> None:
        status, document = SUBJECT.status, SUBJECT.document
        reported = PassReport(
            uid=uid, manifest=manifest(EAGER), status=status, document=document, state=SUBJECT.state
        )
        self.shown.saw(key, reported, self.clock.now_s())


@asynccontextmanager
async def served(host: str = "127.0.0.1") -> AsyncIterator[Site]:
    (port,) = free_ports(1)
    shown, clock = ShownResources(), ManualClock()
    async with aiohttp.ClientSession() as session:
        site = Site(f"http://127.0.0.1:{port}", session, shown, clock)
        runner = await serve_page(Pages(shown, clock, lambda: site.leads), host, port)
        try:
            yield site
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


async def test_one_that_stands_by_says_so() -> None:
    async with served() as site:
        site.leads = False
        _, page = await site.get("/")
        assert "This operator stands by" in page


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
    pages = Pages(ShownResources(), ManualClock(), lambda: True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        runner = await serve_page(pages, "127.0.0.1", taken.getsockname()[1])
        assert runner.addresses == []
        await runner.cleanup()


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
