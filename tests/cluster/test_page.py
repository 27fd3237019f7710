"""The operator's page in a real browser: what it shows, whom it keeps out, how large it is."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import Browser, Page, Route

from fathom.cluster.kinds import ObjectKey
from fathom.page.charts import charts_of
from fathom.page.overview import MOST_ROWS, overview_of
from fathom.page.rendering import message_page, overview_page, resource_page
from fathom.page.resource_view import resource_view
from support.browser import SCHEMES, barriers, chromium, opened
from support.local_cluster import TestNamespace
from support.operated import SPEC, Resource, resource
from support.operator_process import Operator, lease_in, operator_in
from support.page_layout import RECORDER, faults
from support.page_lives import CRASH, IMAGE, seen
from support.page_picture import WIDTHS, picture, written
from support.page_states import page_states, thirty
from support.page_subjects import HOSTILE, hostile, lived, troubled
from support.pages import DOCS
from support.waiting import until
from unit.runtime.test_main import free_ports

__all__ = ["resource"]

pytestmark = pytest.mark.cluster

NARROW, WIDE = 320, 1600
TIGHT = 802
"""The narrowest at which the list is a table."""
KEPT_OPEN = (
    *("list", "crashing", "tuned", "report", "recording", "hostile", "standby"),
    "training-failed",
)
"""States that together have every part of the page."""
LARGEST_PICTURE_BYTES = 150 * 1024


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every state of the page as a file: their addresses."""
    folder = tmp_path_factory.mktemp("pages")
    strange = resource_page(resource_view(hostile(), lived()[1]), home=True)
    return written(folder, {**page_states(folder), "hostile": strange})


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
                "Well",
                resource.name,
                namespace.name,
                status["ready"],
                status["depth"]["summary"],
            ]
            # By keyboard alone: the filter, and from its end past the headings to the name.
            await page.locator("#find").focus()
            await page.keyboard.type(resource.name)
            for _ in range(9):
                await page.keyboard.press("Tab")
            await page.keyboard.press("Enter")
            await page.wait_for_url(f"**/resources/{namespace.name}/{resource.name}")
            facts = dict(
                zip(
                    await page.locator(".facts dt").all_inner_texts(),
                    await page.locator(".facts dd:not(.note)").all_inner_texts(),
                    strict=True,
                )
            )
            assert facts["Replicas ready"] == status["ready"] == "1/1"
            assert facts["Depth"] == status["depth"]["summary"]
            assert facts["Depth changes"] == "while engines run"
            # Of what needs requests it says that it needs them.
            assert await page.locator("figure").get_attribute("id") == "depth"
            missing = await page.locator(".charts ~ .empty").inner_text()
            assert "They begin with the first window that has requests" in missing


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


async def test_nothing_overlaps_is_cut_or_leaves_the_screen(
    browser: Browser, pages: dict[str, str]
) -> None:
    async with opened(browser, "about:blank", before=RECORDER) as page:
        for name, url in pages.items():
            await page.goto(url)
            for width in (*WIDTHS, TIGHT):
                await page.set_viewport_size({"width": width, "height": 900})
                for scheme in SCHEMES if width != TIGHT else SCHEMES[:1]:
                    await page.emulate_media(color_scheme=scheme)
                    assert await faults(page) == [], f"{name}, {width}, {scheme}"


async def test_the_picture_of_a_draft_s_life_has_room_for_its_words(browser: Browser) -> None:
    async with opened(browser, (DOCS / "draft-life.svg").as_uri()) as page:
        outside = await page.evaluate(
            """() => [...document.querySelectorAll("g")].flatMap((step) => {
              const box = step.querySelector("rect").getBoundingClientRect();
              return [...step.querySelectorAll("text")].filter((each) => {
                const { left, right, top, bottom } = each.getBoundingClientRect();
                return left < box.left || right > box.right || top < box.top || bottom > box.bottom;
              }).map((each) => each.textContent);
            })"""
        )
        assert outside == []


async def test_nobody_is_kept_out(browser: Browser, pages: dict[str, str]) -> None:
    async with opened(browser, "about:blank") as page:
        for name in KEPT_OPEN:
            await page.goto(pages[name])
            if name == "tuned":
                await page.locator("summary").click()
            for width, scheme in zip((WIDE, NARROW), SCHEMES, strict=True):
                await page.set_viewport_size({"width": width, "height": 900})
                await page.emulate_media(color_scheme=scheme)
                assert await barriers(page) == [], f"{name}, {width}, {scheme}"
            across = await page.evaluate("document.documentElement.scrollWidth")
            assert across <= NARROW, f"{name} is {across} wide"


async def test_charts_and_marks_say_what_they_draw(browser: Browser, pages: dict[str, str]) -> None:
    day = seen("day")
    view = resource_view(day.subject, day.now_s)
    async with opened(browser, pages["day"], NARROW, before=RECORDER) as page:

        async def labels() -> list[str]:
            found = await page.locator(".mark").all()
            return [await each.get_attribute("aria-label") or "" for each in found]

        await page.locator("#tokens_per_second .u-over").hover()
        speed = await page.locator("#tokens_per_second .value").inner_text()
        assert speed in {f"{each:,.0f}" for each in view.charts.tokens_per_second if each}
        await page.locator("#depth .u-over").hover()
        assert re.match(r"Depth (off|\d) at 1(-\d+)?, ", await page.locator("#tip").inner_text())
        # Without a mouse: each mark says what happened and why, within the screen.
        titles = {each.title for each in view.moments}
        for mark in await page.locator(".mark").all():
            await mark.focus()
            reason = await page.locator("#tip").inner_text()
            assert any(each in reason for each in titles)
            box = await page.locator("#tip").bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= NARROW
        await page.keyboard.press("Escape")
        assert await page.locator("#tip").is_hidden()
        # Another width lays the marks again while one is read: times stay those of all charts.
        await page.set_viewport_size({"width": WIDE, "height": 900})
        assert await faults(page) == []
        # Who zooms in on one chart zooms in on all, and on the marks: here of an alarm.
        marks = await labels()
        await page.locator("#gain_percent").scroll_into_view_if_needed()
        box = await page.locator("#gain_percent .u-over").bounding_box()
        assert box is not None
        for act, share in ((page.mouse.down, 0.25), (page.mouse.up, 0.35)):
            await page.mouse.move(box["x"] + share * box["width"], box["y"] + 9)
            await act()
        assert await faults(page) == []
        zoomed = await labels()
        assert zoomed
        assert zoomed != marks
        await page.mouse.dblclick(box["x"] + 9, box["y"] + 9)
        assert await labels() == marks
        await page.locator(".mark").first.focus()
        await page.keyboard.press("Enter")
        assert await page.locator(".moments li:target").count() == 1
        # All that is drawn is in the table.
        await page.locator("summary").click()
        rows = page.locator("#numbers tbody tr")
        await rows.first.wait_for()
        assert await rows.count() == len(view.charts.at_s)
        heads = await page.locator("#numbers thead th").all_inner_texts()
        assert heads[1] == f"Depth at {view.charts.depths[0].batches}"


async def test_thirty_resources_are_sorted_and_filtered(
    browser: Browser, pages: dict[str, str]
) -> None:
    async with opened(browser, pages["list"]) as page:
        names = page.locator("tbody:not([hidden]) tr:first-child th")
        speeds = page.locator("tbody tr:first-child td:nth-child(6)")

        async def sorted_speeds() -> list[str]:
            await page.get_by_role("button", name="Tokens/s").click()
            return await speeds.all_inner_texts()

        at_first = await names.all_inner_texts()
        up, down = await sorted_speeds(), await sorted_speeds()
        # What is not known is last, whichever way.
        assert up[-1] == down[-1] == "–"
        known = up[: up.index("–")]
        assert {*up[len(known) :]} == {"–"}
        numbers = [int(each.replace(",", "")) for each in known]
        assert numbers == sorted(numbers)
        assert down[: len(known)] == known[::-1]
        assert await page.locator("th[aria-sort=descending]").inner_text() == "Tokens/s"
        await page.get_by_label("Filter").fill("QWEN3")
        assert {each[:5] for each in await names.all_inner_texts()} == {"qwen3"}
        assert await page.locator("#shown").inner_text() == "3 of 30 shown."
        await page.get_by_role("button", name="1 alarm").click()
        assert await names.all_inner_texts() == ["qwen3-235b-a22b-instruct-2507-1"]
        # It survives a visit to a resource.
        await page.reload()
        assert await names.all_inner_texts() == ["qwen3-235b-a22b-instruct-2507-1"]
        # Each health has a sign of its own, and causes are whole on a phone.
        signs = await page.evaluate(
            """() => [...document.querySelectorAll(".chip")].map(
                (each) => getComputedStyle(each, "::before").content)"""
        )
        assert len(set(signs)) == len(signs) == 6
        await page.set_viewport_size({"width": NARROW, "height": 900})
        text = await page.locator(".list").inner_text()
        assert IMAGE not in text
        await page.get_by_role("button", name="1 alarm").click()
        await page.get_by_label("Filter").fill("")
        text = await page.locator(".list").inner_text()
        assert IMAGE in text
        assert CRASH in text
        await page.get_by_role("button", name="1 alarm").click()
        await page.get_by_label("Filter").fill("no such")
        assert await page.locator("#none").is_visible()
        await page.get_by_label("Filter").fill("")
        await page.get_by_role("button", name="1 alarm").click()
        await page.get_by_role("button", name="Tokens/s").click()
        assert await names.all_inner_texts() == at_first


@dataclass
class Served:
    """What a page's own address answers, and how often it was asked."""

    html: str
    status: int = HTTPStatus.OK
    asked: int = 0

    async def answer(self, route: Route) -> None:
        self.asked += 1
        await route.fulfill(status=self.status, body=self.html, content_type="text/html")


async def test_it_refreshes_by_itself_and_keeps_the_reader_s_place(browser: Browser) -> None:
    subject, now_s = lived()
    later = resource_page(resource_view(troubled(subject), now_s + 60), home=True)
    view = resource_view(subject, now_s)
    assert subject.history is not None
    points = subject.history.points
    earlier = replace(view, charts=charts_of(points[:-100]), moments=view.moments[4:])
    served = Served(resource_page(earlier, home=True))
    # Of the one answer of 503.
    async with opened(browser, "about:blank", complains="the server responded with") as page:
        await page.route("http://fathom.test/**", served.answer)
        await page.clock.install()
        await page.goto("http://fathom.test/resources/llm/kimi")
        await page.locator("summary").click()
        await page.locator("#pause").focus()
        await page.locator("#moments").scroll_into_view_if_needed()
        place = await page.locator("#moments").bounding_box()
        assert place is not None
        marks = await page.locator(".mark").count()
        served.html = later
        await page.clock.run_for(10_000)
        await page.locator("text=kimi is not well.").wait_for(state="attached")
        assert await page.locator("details[open] tbody tr").count() == len(points)
        assert await page.locator("canvas").count() == 5
        assert await page.locator(".mark").count() > marks
        assert await page.evaluate("document.activeElement.id") == "pause"
        # Above it is more than before, and what is read stays where it is.
        now = await page.locator("#moments").bounding_box()
        assert now is not None
        assert now["y"] == pytest.approx(place["y"], abs=1)
        assert "ImageUnavailable" in await page.locator(".notice").first.inner_text()
        assert (await page.title()).startswith("Not well: llm/kimi")

        await page.get_by_role("button", name="Pause").click()
        asked = served.asked
        await page.clock.run_for(60_000)
        assert served.asked == asked
        served.status, served.html = HTTPStatus.SERVICE_UNAVAILABLE, message_page("Gone", "Why.")
        await page.get_by_role("button", name="Pause").click()
        await page.locator("text=Not refreshed: Gone. Why.").wait_for()
        assert await page.locator("text=kimi is not well.").count() == 1
        # What has other scripts, as of another release, is opened again.
        served.status = HTTPStatus.OK
        await page.clock.run_for(10_000)
        await page.locator("h1", has_text="Gone").wait_for()


async def test_a_list_that_refreshes_stays_sorted_filtered_and_in_focus(browser: Browser) -> None:
    listed, now_s = thirty()
    found = dict(listed)
    served = Served(overview_page(overview_of(found.items(), now_s), now_s))
    key = next(each for each in found if each.name == "minimax-m2-1")
    found[key] = troubled(lived()[0]).status
    async with opened(browser, "about:blank") as page:
        await page.route("http://fathom.test/**", served.answer)
        await page.clock.install()
        await page.goto("http://fathom.test/")
        names = page.locator("tbody:not([hidden]) tr:first-child th")
        await page.get_by_role("button", name="Name", exact=True).click()
        await page.get_by_label("Filter").fill("minimax")
        await page.get_by_role("link", name=key.name, exact=True).focus()
        before = await names.all_inner_texts()
        served.html = overview_page(overview_of(found.items(), now_s + 10), now_s + 10)
        await page.clock.run_for(10_000)
        # In the order of the operator it is the first now.
        await page.get_by_role("button", name="3 not well").wait_for()
        assert await names.all_inner_texts() == before == ["minimax-m2", key.name, "minimax-m2-2"]
        assert await page.evaluate("document.activeElement.textContent") == key.name
        row = page.locator("tbody", has=page.get_by_role("link", name=key.name, exact=True))
        assert "DraftMismatch/AcceptanceCliff" in await row.inner_text()


async def test_a_single_point_is_drawn_with_the_minutes_around_it(
    browser: Browser, pages: dict[str, str]
) -> None:
    async with opened(browser, pages["starting"], before=RECORDER) as page:
        assert await faults(page) == []
        texts = await page.evaluate(
            "writtenOn(document.querySelector('canvas')).texts.map(({ text }) => text)"
        )
    *times, batches, depth = texts
    assert {"07:55", "08:00"} <= {*times}
    assert (batches, depth) == ("all", "3")


async def test_a_recording_is_drawn_and_says_that_it_is_one(
    browser: Browser, pages: dict[str, str]
) -> None:
    async with opened(browser, pages["recording"]) as page:
        assert await page.locator("canvas").count() == 4
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
