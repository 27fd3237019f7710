"""What of a page's layout is wrong: asked of a real browser, which alone knows it."""

from typing import Final

from playwright.async_api import Page

RECORDER: Final = r"""
(() => {
  // What charts write, and on which colour: a canvas does not tell afterwards.
  const written = new Map();
  const begin = (canvas) => written.set(canvas, { texts: [], blocks: [] }).get(canvas);
  window.writtenOn = (canvas) => written.get(canvas) ?? begin(canvas);
  const before = (name, note) => {
    const draw = CanvasRenderingContext2D.prototype[name];
    CanvasRenderingContext2D.prototype[name] = function (...given) {
      note(this, ...given);
      return draw.apply(this, given);
    };
  };
  before("clearRect", ({ canvas }) => begin(canvas));
  before("fillRect", (context, x, y, width, height) => {
    writtenOn(context.canvas).blocks.push({ x, y, width, height, colour: context.fillStyle });
  });
  before("fillText", (context, text, x, y) => {
    const size = context.measureText(text);
    const at = context.getTransform().transformPoint(new DOMPoint(x, y));
    writtenOn(context.canvas).texts.push({
      text, colour: context.fillStyle,
      left: at.x - size.actualBoundingBoxLeft, right: at.x + size.actualBoundingBoxRight,
      top: at.y - size.actualBoundingBoxAscent, bottom: at.y + size.actualBoundingBoxDescent,
    });
  });
})();
"""
"""Before the page's own scripts: `writtenOn(canvas)` is what was written since it was cleared."""

_FAULTS: Final = r"""
() => {
  const faults = [];
  const short = (text) => text.trim().replace(/\s+/g, " ").slice(0, 40);
  const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1
    || a.bottom <= b.top + 1 || b.bottom <= a.top + 1;
  const cross = (boxes, where) => {
    boxes.sort((a, b) => a.top - b.top);
    boxes.forEach((a, i) => {
      for (let j = i + 1; j < boxes.length && boxes[j].top < a.bottom; j += 1) {
        const b = boxes[j];
        if (a.of === b.of || apart(a, b)) continue;
        faults.push(`${where}: "${a.text}" overlaps "${b.text}"`);
      }
    });
  };

  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) faults.push(`the page is ${wide} wide`);

  const boxes = [];
  const unseen = ".wide, .heard, .skip, script, .u-over";
  for (const element of document.body.querySelectorAll("*")) {
    if (element.closest(unseen) || !element.checkVisibility()) continue;
    if (element.clientWidth && element.scrollWidth > element.clientWidth + 1) {
      faults.push(`${element.tagName} is cut: "${short(element.textContent)}"`);
    }
    for (const node of element.childNodes) {
      if (node.nodeType !== Node.TEXT_NODE || !node.data.trim()) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      const text = short(node.data);
      for (const { left, right, top, bottom } of range.getClientRects()) {
        // A line's box is taller than its letters.
        boxes.push({ left, right, top: top + 3, bottom: bottom - 3, text, of: element });
        if (left < 0 || right > innerWidth + 1) faults.push(`"${text}" leaves the screen`);
      }
    }
  }
  cross(boxes, "text");
  cross([...document.querySelectorAll(".mark")].map((of) => {
    const { left, right, top, bottom } = of.getBoundingClientRect();
    return { left, right, top, bottom, of, text: of.textContent };
  }), "marks");

  for (const facts of document.querySelectorAll(".facts")) {
    const heights = new Set([...facts.children].map((each) => Math.round(each.offsetHeight)));
    if (heights.size > 1) faults.push(`facts are ${[...heights]} high`);
  }

  const back = getComputedStyle(document.body).backgroundColor;
  const parts = (colour) => (colour.startsWith("#")
    ? [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16))
    : colour.match(/[\d.]+/g).slice(0, 3).map(Number));
  const bright = (colour) => parts(colour).map((each) => each / 255)
    .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
    .reduce((sum, each, i) => sum + each * [0.2126, 0.7152, 0.0722][i], 0.05);
  const places = new Set(), times = new Set();
  for (const canvas of document.querySelectorAll("canvas")) {
    const where = canvas.closest("figure").id;
    const { texts, blocks } = writtenOn(canvas);
    if (!texts.length) faults.push(`${where} says nothing`);
    cross(texts.map((each) => ({ ...each, of: each })), where);
    for (const { text, colour, left, right, top, bottom } of texts) {
      const said = `${where}: "${text}"`;
      if (left < 0 || right > canvas.width || bottom > canvas.height) faults.push(`${said} is cut`);
      const x = (left + right) / 2, y = (top + bottom) / 2;
      const holds = (b) => b.x <= x && x <= b.x + b.width && b.y <= y && y <= b.y + b.height;
      const under = blocks.findLast(holds)?.colour ?? back;
      const [low, high] = [bright(colour), bright(under)].sort((a, b) => a - b);
      if (high / low < 4.5) faults.push(`${said} has contrast ${(high / low).toFixed(2)}`);
    }
    const over = canvas.closest(".uplot").querySelector(".u-over").getBoundingClientRect();
    places.add(`${over.left} to ${over.right}`);
    const floor = Math.max(...texts.map((each) => each.bottom));
    times.add(texts.filter((each) => each.bottom > floor - 4)
      .map((each) => `${each.text} at ${Math.round((each.left + each.right) / 2)}`).join(", "));
  }
  if (places.size > 1) faults.push(`axes are not aligned: ${[...places].join("; ")}`);
  if (times.size > 1) faults.push(`times differ: ${[...times].join(" | ")}`);
  return faults;
}
"""


_DRAWN: Final = """
() => {
  const dim = getComputedStyle(document.documentElement).getPropertyValue("--dim").trim();
  const canvases = [...document.querySelectorAll("canvas")];
  return canvases.every((each) => each.closest(".plot").clientWidth === each.width
    && writtenOn(each).texts.some(({ colour }) => colour === dim));
}
"""
"""Whether charts have the width of the page and the colours of its scheme."""


async def faults(page: Page) -> list[str]:
    """What overlaps, is cut, leaves the screen, is not aligned or cannot be read; with where.

    The page was opened with `RECORDER`.
    """
    await page.wait_for_function(_DRAWN)
    found: list[str] = await page.evaluate(_FAULTS)
    return found
