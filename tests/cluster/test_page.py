"""The operator's page in a real browser: what it shows, whom it keeps out, how large it is."""

from collections.abc import AsyncIterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import Browser, Page

from fathom.cluster.kinds import ObjectKey
from fathom.page.history import charts_of
from fathom.page.rendering import message_page, overview_page, resource_page
from fathom.page.resource_view import resource_view
from fathom.page.subject import MOST_ROWS, overview_of
from fathom.replay.command import recorded_page
from support.browser import SCHEMES, barriers, chromium, opened
from support.local_cluster import TestNamespace
from support.operated import SPEC, Resource, resource
from support.operator_process import Operator, lease_in, operator_in
from support.page_picture import picture
from support.page_subjects import HOSTILE, hostile, lived, troubled
from support.waiting import until
from unit.replay.recorded import record, write
from unit.runtime.test_main import free_ports
from unit.tuning.plant import EASY, Fleet

__all__ = ["resource"]

pytestmark = pytest.mark.cluster

NARROW, WIDE = 320, 1600
LARGEST_PICTURE_BYTES = 150 * 1024


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Pages as files, by what is on them: their addresses."""
    folder = tmp_path_factory.mktemp("pages")
    subject, now_s = lived()
    bad = troubled(subject)
    view = resource_view(bad, now_s)
    # A table of hundreds of rows is no better kept than one of ten, but takes axe-core longer.
    few = replace(view, charts=charts_of(bad.history.points[-10:] if bad.history else (), ()))
    strange = hostile()
    recording = write(folder / "day.jsonl.gz", record(Fleet(acceptance=EASY), 300))
    several = [(subject.key, subject.status), (ObjectKey("llm", "other"), bad.status)]
    made = {
        "resource": resource_page(few, home=True),
        "overview": overview_page(overview_of(several, now_s), now_s),
        "recording": recorded_page(subject.key, [recording], None),
        "hostile": resource_page(resource_view(strange, now_s), home=True),
        "message": message_page("Not found", HOSTILE),
    }
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in made}


async def cells(page: Page, row: str) -> list[str]:
    return [text.strip() for text in await page.locator(f"{row} > *").all_inner_texts()]


async def test_what_is_shown_is_what_the_status_says(
    browser: Browser, namespace: TestNamespace, resource: Resource, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    async with operator_in(namespace, tmp_path, page_port=port):
        await resource.apply({**SPEC, "replicas": 1})
        await resource.wait("Ready", "True")
        async with opened(browser, f"http://127.0.0.1:{port}/") as page:
            status = (await resource.get())["status"]
            assert (await cells(page, "tbody tr"))[:5] == [
                resource.name,
                namespace.name,
                status["ready"],
                status["reason"],
                status["depth"]["summary"],
            ]
            # By keyboard alone: past the link to the content, into the table, to the name.
            for _ in range(3):
                await page.keyboard.press("Tab")
            await page.keyboard.press("Enter")
            await page.wait_for_url(f"**/resources/{namespace.name}/{resource.name}")
            facts = dict(
                zip(
                    await page.locator(".facts dt").all_inner_texts(),
                    await page.locator(".facts dd").all_inner_texts(),
                    strict=True,
                )
            )
            assert facts["Ready"] == status["ready"] == "1/1"
            assert facts["Depth in force"] == status["depth"]["summary"]
            assert facts["Tokens per second"] == "not measured"
            assert facts["Depth is live"] == status["engine"]["actuation"]
            assert await page.locator("canvas").count() == 3


async def shown(operator: Operator) -> tuple[int, str]:
    """What an operator's page answers, whatever that is; 0: nothing yet."""
    url = f"http://{operator.page_host}:{operator.page_port}/"
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()
    except aiohttp.ClientConnectorError:
        return 0, ""


async def test_of_two_operators_either_shows_what_the_leader_knows(
    namespace: TestNamespace, resource: Resource, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    first = operator_in(
        namespace, tmp_path, leader_elect=True, page_port=port, page_host="127.0.0.2"
    )
    async with first as leader:
        standby = replace(
            leader, log=tmp_path / "standby.log", pod="operator-1", page_host="127.0.0.3"
        )

        async def lists_it(operator: Operator) -> bool:
            code, page = await shown(operator)
            return code == HTTPStatus.OK and f">{resource.name}</a>" in page

        await resource.apply({**SPEC, "replicas": 0})
        await until(lambda: lists_it(leader), "the leader lists the resource")
        standby.start()
        try:
            await until(lambda: lists_it(standby), "the standby answers with the leader's page")
            leader.kill()
            code, page = await shown(standby)
            assert code == HTTPStatus.SERVICE_UNAVAILABLE
            assert "port-forward pod/operator-0 " in page
            await until(lambda: lists_it(standby), "the standby leads and lists the resource")
            assert (await lease_in(namespace))["holderIdentity"] == "operator-1"
        finally:
            standby.kill()


@pytest.mark.parametrize("width", [NARROW, WIDE])
async def test_nobody_is_kept_out(browser: Browser, pages: dict[str, str], width: int) -> None:
    for name, url in pages.items():
        async with opened(browser, url, width) as page:
            for details in await page.locator("summary").all():
                await details.click()
            for scheme in SCHEMES:
                await page.emulate_media(color_scheme=scheme)
                assert await barriers(page) == [], f"{name}, {scheme}"
            across = await page.evaluate("document.documentElement.scrollWidth")
            assert across <= width, f"{name} is {across} wide"


async def test_charts_say_what_they_draw_and_are_drawn_anew_for_the_dark(
    browser: Browser, pages: dict[str, str]
) -> None:
    subject, now_s = lived()
    charts = resource_view(troubled(subject), now_s).charts
    async with opened(browser, pages["resource"]) as page:
        over = page.locator("#traffic .u-over")
        await over.hover()
        told = await page.locator("#traffic .u-legend .u-value").all_inner_texts()
        speeds = {f"{each:,.0f}" for each in charts.tokens_per_second if each is not None}
        assert told[1] in speeds
        light = await page.evaluate("document.querySelector('canvas').toDataURL()")
        await page.emulate_media(color_scheme="dark")
        await page.wait_for_function(
            "before => document.querySelector('canvas').toDataURL() !== before", arg=light
        )
        assert await page.locator("canvas").count() == 3
        await page.set_viewport_size({"width": NARROW, "height": 900})
        await page.wait_for_function(
            f"() => document.querySelector('.uplot').offsetWidth <= {NARROW}"
        )


async def test_a_recording_is_drawn_and_says_that_it_is_one(
    browser: Browser, pages: dict[str, str]
) -> None:
    async with opened(browser, pages["recording"]) as page:
        assert await page.locator("canvas").count() == 3
        text = await page.locator("main").inner_text()
    for said in (
        "Made from a recording",
        "60 scrapes of 2 pods",
        "what would have been gained",
        "What it would have decided, and why",
    ):
        assert said in text
    assert "Rollouts" not in text


async def test_names_and_messages_stay_text(browser: Browser, pages: dict[str, str]) -> None:
    async with opened(browser, pages["hostile"]) as page:
        assert HOSTILE in await page.locator("h1").inner_text()
        assert await page.locator("img").count() == 0


async def test_a_thousand_resources_are_little_work_for_a_browser(
    browser: Browser, tmp_path: Path
) -> None:
    subject, now_s = lived()
    found = [
        (ObjectKey(f"namespace-{number % 20}", f"some-model-{number:04}"), subject.status)
        for number in range(MOST_ROWS)
    ]
    file = tmp_path / "overview.html"
    file.write_text(overview_page(overview_of(found, now_s), now_s), encoding="utf-8")
    async with opened(browser, "about:blank") as page:
        session = await page.context.new_cdp_session(page)
        await session.send("Performance.enable")
        await page.goto(file.as_uri())
        assert await page.locator("tbody tr").count() == MOST_ROWS
        told = (await session.send("Performance.getMetrics"))["metrics"]
    work = {each["name"]: each["value"] for each in told}
    # Some 20 for a row; what it takes to make the page: tests/unit/page/test_overview.py.
    assert MOST_ROWS < work["Nodes"] < 40 * MOST_ROWS
    assert MOST_ROWS < work["LayoutObjects"] < 40 * MOST_ROWS


async def test_the_picture_in_the_documentation_is_small(browser: Browser, tmp_path: Path) -> None:
    shot = await picture(browser, tmp_path)
    assert shot.startswith(b"\x89PNG")
    assert len(shot) < LARGEST_PICTURE_BYTES
