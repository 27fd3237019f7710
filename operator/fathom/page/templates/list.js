// Sorting and the filter of the list. Both are in the address, so that they survive a visit to a resource.
"use strict";
(() => {
  const HEALTH = ["NOT_WELL", "UNKNOWN", "ALARMED", "UNDER_WAY", "PAUSED", "WELL"];
  const NUMBERS = new Set([3, 4, 5, 6]);
  const wanted = { find: "", health: new Set(), column: -1, descending: false };
  let rows = [];

  const read = () => {
    const asked = new URLSearchParams(location.hash.slice(1));
    wanted.find = asked.get("find") ?? "";
    wanted.health = new Set((asked.get("health") ?? "").split(" ").filter((each) => HEALTH.includes(each)));
    const sort = parseInt(asked.get("sort") ?? "", 10) || 0;
    wanted.column = Math.abs(sort) - 1;
    wanted.descending = sort < 0;
  };

  const write = () => {
    const asked = new URLSearchParams();
    if (wanted.find) asked.set("find", wanted.find);
    if (wanted.health.size) asked.set("health", [...wanted.health].join(" "));
    if (wanted.column >= 0) asked.set("sort", (wanted.descending ? -1 : 1) * (wanted.column + 1));
    history.replaceState(null, "", `#${asked}`);
  };

  // What is not known comes last, whichever way the list is sorted.
  const value = (row, column) => {
    if (column === 0) return HEALTH.indexOf(row.className);
    const text = row.rows[0].cells[column].textContent;
    if (!NUMBERS.has(column)) return text === "–" ? null : text;
    const number = parseFloat(text.replaceAll(",", ""));
    return Number.isNaN(number) ? (text === "off" ? 0 : null) : number;
  };

  const compare = (a, b) => {
    if (a === null || b === null) return (a === null) - (b === null);
    const order = typeof a === "number" ? a - b : a.localeCompare(b);
    return wanted.descending ? -order : order;
  };

  const apply = () => {
    const table = document.querySelector(".list");
    if (!table) return;
    const find = wanted.find.trim().toLowerCase();
    const { column } = wanted;
    const sorted = column < 0 ? rows : [...rows].sort((a, b) => compare(value(a, column), value(b, column)));
    if (sorted.some((row, i) => row !== table.tBodies[i])) table.append(...sorted);
    let shown = 0;
    for (const row of rows) {
      const fits = !wanted.health.size || wanted.health.has(row.className);
      row.hidden = !(fits && row.textContent.toLowerCase().includes(find));
      shown += !row.hidden;
    }
    [...table.tHead.rows[0].cells].forEach((cell, i) => {
      if (i === column) cell.setAttribute("aria-sort", wanted.descending ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    for (const chip of document.querySelectorAll("[data-health]")) {
      chip.setAttribute("aria-pressed", wanted.health.has(chip.dataset.health));
    }
    const all = shown === rows.length;
    document.getElementById("shown").textContent = all ? "" : `${shown} of ${rows.length} shown.`;
    document.getElementById("none").hidden = shown > 0;
  };

  const begin = () => {
    rows = [...(document.querySelector(".list")?.tBodies ?? [])];
    apply();
  };

  const changed = () => {
    write();
    apply();
  };

  document.addEventListener("input", ({ target }) => {
    if (target.id !== "find") return;
    wanted.find = target.value;
    changed();
  });
  document.addEventListener("click", ({ target }) => {
    const { health } = target.dataset;
    const cell = target.closest(".list thead th");
    if (health) {
      if (!wanted.health.delete(health)) wanted.health.add(health);
    } else if (cell) {
      const again = wanted.column === cell.cellIndex;
      if (again && wanted.descending) Object.assign(wanted, { column: -1, descending: false });
      else Object.assign(wanted, { column: cell.cellIndex, descending: again });
    } else return;
    changed();
  });
  document.addEventListener("refreshed", begin);

  read();
  const field = document.getElementById("find");
  if (field) field.value = wanted.find;
  begin();
})();
