// Puts what the operator knows now in place of what is shown. What a reader did stays: scrolling, focus, open details,
// sorting and filter. What other scripts draw (data-own) is theirs; they hear of the event "refreshed".
"use strict";
(() => {
  const EVERY_MS = 10_000;
  const pause = document.getElementById("pause");
  const trouble = document.getElementById("trouble");
  if (!pause || !location.protocol.startsWith("http")) return;
  let paused = false;

  const key = (node) => node.nodeType === Node.ELEMENT_NODE
    && (node.id || node.getAttribute("aria-labelledby") || node.querySelector(":scope > tr > th > a")?.href);

  const morph = (old, fresh) => {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    if ("own" in old.dataset) return;
    for (const { name } of [...old.attributes]) {
      if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    const known = new Map([...old.children].map((each) => [key(each), each]));
    let at = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      const alike = at && at.nodeName === next.nodeName && !key(at) ? at : null;
      const found = key(next) ? known.get(key(next)) : alike;
      if (!found) {
        old.insertBefore(document.importNode(next, true), at);
        continue;
      }
      if (found !== at) old.insertBefore(found, at);
      morph(found, next);
      at = found.nextSibling;
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  };

  const policy = (page) => page.querySelector("meta[http-equiv]")?.content;
  const words = (page) => [...page.querySelectorAll("main > *")].map((each) => each.textContent.trim()).join(". ");
  // A selection or an open mark is being read: it stays until it is left.
  const held = () => !getSelection().isCollapsed || document.querySelector(".mark:hover, .mark:focus");

  const refresh = async () => {
    if (paused || document.hidden || held()) return;
    try {
      const answer = await fetch(location.href, { signal: AbortSignal.timeout(EVERY_MS) });
      // Its style has no use here, and may be another than this page's policy has.
      const html = (await answer.text()).replace(/<style>.*?<\/style>/s, "");
      const fresh = new DOMParser().parseFromString(html, "text/html");
      if (!answer.ok) throw new Error(words(fresh) || `HTTP status ${answer.status}.`);
      // Another release of the operator, or a log-in before it: its page needs its own scripts.
      if (policy(fresh) !== policy(document)) {
        location.reload();
        return;
      }
      const focused = document.activeElement;
      for (const id of ["main", "as-of"]) morph(document.getElementById(id), fresh.getElementById(id));
      document.title = fresh.title;
      trouble.textContent = "";
      document.dispatchEvent(new Event("refreshed"));
      if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    } catch (error) {
      const silent = error instanceof TypeError || error.name === "TimeoutError";
      const silence = "The operator does not answer, or a log-in before it has ended: reload the page.";
      trouble.textContent = `Not refreshed: ${silent ? silence : error.message}`;
    }
  };

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", paused);
    refresh();
  });
  document.addEventListener("visibilitychange", refresh);
  setInterval(refresh, EVERY_MS);
})();
