"""The picture of the page that the documentation shows: `python -m support.page_picture FILE`."""

import asyncio
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.async_api import Browser, FloatRect

from fathom.page.rendering import resource_page
from fathom.page.resource_view import resource_view
from support.browser import chromium, opened
from support.page_subjects import lived

WIDTH = 1000
COLOURS = 64


async def picture(browser: Browser, folder: Path) -> bytes:
    """A PNG of charts and heat map, with few colours: it is small."""
    subject, now_s = lived()
    file = folder / "kimi.html"
    file.write_text(resource_page(resource_view(subject, now_s), home=True), encoding="utf-8")
    async with opened(browser, file.as_uri(), WIDTH) as page:
        first = await page.locator("#time").bounding_box()
        last = await page.locator(".heat").bounding_box()
        assert first is not None
        assert last is not None
        height = last["y"] + last["height"] - first["y"] + 10
        clip: FloatRect = {"x": 0, "y": first["y"], "width": WIDTH, "height": height}
        shot = await page.screenshot(full_page=True, clip=clip)
    few = Image.open(io.BytesIO(shot)).convert("RGB").quantize(COLOURS)
    written = io.BytesIO()
    few.save(written, "PNG", optimize=True)
    return written.getvalue()


async def _picture() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        async with chromium() as browser:
            return await picture(browser, Path(folder))


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(asyncio.run(_picture()))
