"""A real Chromium that looks at pages, and axe-core in it."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.async_api import Browser, Page, async_playwright

from support.waiting import GUARD_S

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
GUARD_MS = 1000 * GUARD_S
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Debian's, without a window."""
    program = shutil.which("chromium")
    if program is None:
        pytest.fail("There is no chromium on PATH: run `make browser` as root.")
    async with async_playwright() as playwright:
        # Root, as which the cluster's tests run, gets no sandbox.
        browser = await playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"], timeout=GUARD_MS
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def opened(
    browser: Browser, url: str, width: int = 1280, *, before: str = "", complains: str = ""
) -> AsyncIterator[Page]:
    """A page; whatever its console complains of fails the test, a refused script say.

    Args:
        browser: where.
        url: its address.
        width: of the window, in pixels.
        before: a script that runs before those of the page.
        complains: part of each complaint that is to come; empty: none is.
    """
    context = await browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="light", reduced_motion="reduce"
    )
    context.set_default_timeout(GUARD_MS)
    page = await context.new_page()
    if before:
        await page.add_init_script(before)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    try:
        await page.goto(url)
        yield page
    finally:
        await context.close()
    rest = [each for each in complaints if not complains or complains not in each]
    assert rest == [], rest


async def barriers(page: Page) -> list[str]:
    """What axe-core finds, with where it is."""
    if not await page.evaluate("typeof axe === 'object'"):
        # Not as a script of the page, which its policy refuses.
        await page.evaluate(AXE)
    found: dict[str, Any] = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['help']}: {node['html'][:200]} {node.get('failureSummary', '')}"
        for each in found["violations"]
        for node in each["nodes"]
    ]
