"""Pictures of the page.

`python -m support.page_picture FILE` draws the one in the documentation, `... FOLDER/` every state
at three widths, in light and dark.
"""

import asyncio
import io
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from PIL import Image
from playwright.async_api import Browser, FloatRect

from fathom.page.rendering import resource_page
from fathom.page.resource_view import resource_view
from support.browser import SCHEMES, chromium, opened
from support.page_states import page_states
from support.page_subjects import lived

WIDTH = 1000
WIDTHS = (390, 820, 1440)
COLOURS = 64


async def picture(browser: Browser, folder: Path) -> bytes:
    """A PNG of charts and heat map, with few colours: it is small."""
    subject, now_s = lived()
    page_of = resource_page(resource_view(subject, now_s), home=True)
    async with opened(browser, written(folder, {"kimi": page_of})["kimi"], WIDTH) as page:
        first = await page.locator("#time").bounding_box()
        last = await page.locator(".heat").bounding_box()
        assert first is not None
        assert last is not None
        height = last["y"] + last["height"] - first["y"] + 10
        clip: FloatRect = {"x": 0, "y": first["y"], "width": WIDTH, "height": height}
        shot = await page.screenshot(full_page=True, clip=clip)
    few = Image.open(io.BytesIO(shot)).convert("RGB").quantize(COLOURS)
    packed = io.BytesIO()
    few.save(packed, "PNG", optimize=True)
    return packed.getvalue()


def written(folder: Path, states: Mapping[str, str]) -> dict[str, str]:
    """Pages as files: their addresses, by state."""
    for name, html in states.items():
        (folder / f"{name}.html").write_text(html, encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in states}


async def pictures(browser: Browser, folder: Path) -> None:
    """One of each state, width and scheme, beside the pages themselves."""
    for name, url in written(folder, page_states(folder)).items():
        async with opened(browser, url) as page:
            for width in WIDTHS:
                await page.set_viewport_size({"width": width, "height": 900})
                for scheme in SCHEMES:
                    await page.emulate_media(color_scheme=scheme)
                    shot = folder / f"{name}-{width}-{scheme}.png"
                    await page.screenshot(full_page=True, path=shot)


async def _drawn(folder: Path, *, states: bool) -> bytes:
    async with chromium() as browser:
        if states:
            await pictures(browser, folder)
        return await picture(browser, folder)


def _main(target: str) -> None:
    if target.endswith("/"):
        Path(target).mkdir(parents=True, exist_ok=True)
        asyncio.run(_drawn(Path(target), states=True))
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(target).write_bytes(asyncio.run(_drawn(Path(folder), states=False)))


if __name__ == "__main__":
    _main(sys.argv[1])
