// Draws the history that the page holds as JSON: charts that share one time, marks for what happened, and a table.
"use strict";
(() => {
  const GUTTER = 64, MARGIN = 16, DIGIT = 8, TIMES = 24, HEIGHT = 96, APART = 28, MOST_REASONS = 3;
  const SHORTEST_S = 60, SHORT_S = 600, DAY_S = 86_400;
  const byId = (id) => document.getElementById(id);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let data = {}, charts = [], marks = [], drawn = "";

  const utc = (at, from, to) => new Date(at * 1e3).toISOString().slice(from, to);
  const day = (at) => `${Number(utc(at, 8, 10))} ${new Date(at * 1e3).toLocaleString("en", { month: "short", timeZone: "UTC" })}`;
  // 22:15, 22:15:30 where ticks are that close, or the day where it is another one than to the left.
  const clocks = (u, times, _, __, apart) => times.map((at, i) => {
    const { min, max } = u.scales.x, another = day(at) !== day(i ? times[i - 1] : min);
    const text = another || apart >= DAY_S ? day(at) : utc(at, 11, apart < 60 ? 19 : 16);
    // None that the edge would cut.
    const rest = (u.bbox.width / devicePixelRatio) * ((max - at) / (max - min));
    return text.length * DIGIT / 2 > MARGIN + rest ? null : text;
  });
  const shown = (value) => {
    if (value == null) return "–";
    return value.toLocaleString("en", Math.abs(value) < 1e5 ? {} : { notation: "compact", maximumSignificantDigits: 3 });
  };
  const signed = (value) => `${value > 0 ? "+" : ""}${shown(value)}`;
  const depthOf = (depth) => (depth === 0 ? "off" : String(depth));

  // Text on a colour: of the page's two the one that is read better.
  const bright = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0.05);
  const contrast = (a, b) => Math.max(bright(a), bright(b)) / Math.min(bright(a), bright(b));
  const ink = (back) => [colour("--front"), colour("--back")].sort((a, b) => contrast(b, back) - contrast(a, back))[0];
  const deepest = () => Math.max(7, ...data.depths.flatMap((row) => row.depths));
  const shade = (depth) => colour(`--d${Math.round((depth / deepest()) * 7)}`);

  // Depth: a row for each range of batches, a block for as long as one depth was in force.
  const blocks = (u) => {
    const edge = u.bbox.left + u.bbox.width;
    const x = (at) => Math.min(Math.max(u.valToPos(at, "x", true), u.bbox.left), edge);
    return data.depths.flatMap((row, i) => {
      const top = u.valToPos(data.depths.length - i, "y", true) + 1;
      const height = u.valToPos(data.depths.length - i - 1, "y", true) - 1 - top;
      const found = [];
      for (let from = 0, to = 0; from < data.at_s.length; from = to) {
        const depth = row.depths[from];
        while (to < data.at_s.length && row.depths[to] === depth) to += 1;
        const left = x(data.at_s[from]), width = x(data.at_s[to] ?? data.now_s) - left;
        if (depth != null && width > 0) found.push({ left, top, width, height, depth });
      }
      return found;
    });
  };
  const colours = (u) => {
    u.ctx.save();
    for (const { left, top, width, height, depth } of blocks(u)) {
      u.ctx.fillStyle = shade(depth);
      u.ctx.fillRect(left, top, width, height);
    }
    u.ctx.restore();
  };
  // Above the marks' lines, which would cross them out.
  const depths = (u) => {
    const { ctx } = u, ratio = devicePixelRatio;
    ctx.save();
    ctx.font = `600 ${11 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    for (const { left, top, width, height, depth } of blocks(u)) {
      const text = depthOf(depth), wide = ctx.measureText(text).width + 6 * ratio;
      if (width < wide) continue;
      const back = shade(depth), middle = left + width / 2;
      ctx.fillStyle = back;
      ctx.fillRect(middle - wide / 2, top, wide, height);
      ctx.fillStyle = ink(back);
      ctx.fillText(text, middle, top + height / 2 + ratio);
    }
    ctx.restore();
  };

  const lines = (u) => {
    const { ctx } = u;
    ctx.save();
    ctx.strokeStyle = colour("--mark");
    for (const { at, lit } of marks) {
      const x = u.valToPos(at, "x", true);
      if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) continue;
      ctx.globalAlpha = lit ? 1 : 0.45;
      ctx.lineWidth = (lit ? 2 : 1) * devicePixelRatio;
      ctx.setLineDash(lit ? [] : [3 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(x, u.bbox.top);
      ctx.lineTo(x, u.bbox.top + u.bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  };

  const axis = (more) => ({
    stroke: colour("--dim"), font: "12px system-ui, sans-serif", grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false }, gap: 6, ...more,
  });
  // A point between two that are unknown is no line, and would not be seen.
  const alone = (u, series) => {
    const of = u.data[series];
    return [...of.keys()].filter((i) => of[i] != null && of[i - 1] == null && of[i + 1] == null);
  };
  const line = (more = {}) => ({
    stroke: colour("--curve"), width: 2, points: { show: true, filter: alone, size: 5, fill: colour("--curve") }, ...more,
  });
  const hidden = () => ({ stroke: "transparent", width: 0, points: { show: false } });
  const from = (least) => (_, low, high) => [Math.min(least, low ?? least), Math.max(least + 1, (high ?? least) * 1.08)];

  const panels = {
    depth: () => ({
      series: data.depths.map(() => ({ paths: () => null, points: { show: false } })),
      data: data.depths.map((row) => row.depths),
      height: data.depths.length * (data.depths.length > 12 ? 16 : 22),
      axis: {
        grid: { show: false }, splits: () => data.depths.map((_, i) => data.depths.length - i - 0.5),
        values: () => data.depths.map((row) => row.batches),
      },
      range: () => [0, data.depths.length],
      draw: [colours, lines, depths],
    }),
    tokens_per_second: () => ({ series: [line({ fill: colour("--band") })], data: [data.tokens_per_second], range: from(0) }),
    mean_batch: () => ({ series: [line({ fill: colour("--band") })], data: [data.mean_batch], range: from(0) }),
    acceptance_length: () => ({ series: [line()], data: [data.acceptance_length], range: from(1) }),
    gain_percent: () => {
      const band = (sign) => data.gained_percent.map((each, i) => (each == null ? null : each + sign * (data.gained_error_percent[i] ?? 0)));
      return {
        series: [line(), { ...hidden(), stroke: colour("--mark"), width: 1.5, dash: [6, 3] }, hidden(), hidden()],
        data: [data.gain_percent, data.gained_percent, band(1), band(-1)],
        bands: [{ series: [3, 4], fill: colour("--band") }],
        axis: { values: (_, ticks) => ticks.map((tick) => `${signed(tick)} %`) },
        range: (_, low, high) => [Math.min(-2, (low ?? 0) * 1.08), Math.max(2, (high ?? 0) * 1.08)],
      };
    },
  };

  // At the right of a title: the value below the pointer, else the newest.
  const readouts = {
    depth: (i, free) => (free ? "" : `${utc(data.at_s[i], 11, 19)} UTC`),
    gain_percent: (i) => {
      const all = data.gained_percent[i];
      const sum = all == null ? "" : ` · in all ${signed(all)} ± ${shown(data.gained_error_percent[i])} %`;
      return `${data.gain_percent[i] == null ? "–" : `${signed(data.gain_percent[i])} %`}${sum}`;
    },
  };
  const readOut = (u) => {
    const { id } = u.root.closest("figure");
    const free = u.cursor.idx == null || u.cursor.left < 0;
    const i = free ? data.at_s.length - 1 : u.cursor.idx;
    byId(id).querySelector(".value").textContent = readouts[id] ? readouts[id](i, free) : shown(data[id][i]);
    // A mark that is read stays, wherever the pointer lies.
    if (id === "depth" && !marks.some(({ lit }) => lit)) showTip(free || !u.over.matches(":hover") ? [] : [depthsAt(i)], u.cursor.left);
  };
  const depthsAt = (i) => {
    const found = document.createElement("p");
    const all = data.depths.filter((row) => row.depths[i] != null).map((row) => `${depthOf(row.depths[i])} at ${row.batches}`);
    found.textContent = `Depth ${all.join(", ")}`;
    return found;
  };

  // A note below the marks, within the charts whatever the width.
  const showTip = (parts, x) => {
    const tip = byId("tip");
    tip.hidden = !parts.length;
    tip.replaceChildren(...parts);
    if (!parts.length) return;
    tip.style.left = "0";
    tip.style.left = `${Math.max(0, Math.min(GUTTER + x - 20, tip.parentElement.clientWidth - tip.offsetWidth))}px`;
  };

  const light = (chosen, x) => {
    for (const each of marks) each.lit = chosen.includes(each);
    const parts = chosen.slice(0, MOST_REASONS).map(({ item }, i) => {
      const part = document.createElement("div");
      part.className = i ? "next" : "";
      part.append(...[...item.children].map((each) => each.cloneNode(true)));
      return part;
    });
    if (chosen.length > MOST_REASONS) {
      const more = document.createElement("p");
      more.className = "next";
      more.textContent = `${chosen.length - MOST_REASONS} more: see the list below.`;
      parts.push(more);
    }
    showTip(parts, x);
    for (const chart of charts) chart.redraw(false, true);
  };

  // Marks that would lie over each other are one, with their number.
  const SIGNS = { Decision: "◆", Rollout: "⟳", Comparison: "⇄", Alarm: "!", Condition: "●", Quality: "≡" };
  const layMarks = (u) => {
    if (u !== charts[0]) return;
    const groups = [];
    for (const each of marks) {
      const x = u.valToPos(each.at, "x");
      if (x < 0 || x > u.over.clientWidth) continue;
      const last = groups.at(-1);
      if (last && x - last.x < APART) last.all.push(each);
      else groups.push({ x, all: [each] });
    }
    const made = groups.map(({ x, all }) => {
      const mark = document.createElement("a");
      const bad = all.some(({ item }) => item.classList.contains("bad"));
      const first = all.at(-1).item;
      mark.className = bad ? "mark bad" : "mark";
      mark.href = `#${first.id}`;
      mark.textContent = all.length > 1 ? all.length : SIGNS[first.classList[0]];
      const reasons = all.map(({ item }) => item.innerText.replace(/\s+/g, " ").trim()).join("; ");
      mark.setAttribute("aria-label", all.length > 1 ? `${all.length} events: ${reasons}` : reasons);
      mark.style.left = `${x}px`;
      const newest = [...all].reverse();
      for (const event of ["mouseenter", "focus"]) mark.addEventListener(event, () => light(newest, x));
      for (const event of ["mouseleave", "blur"]) mark.addEventListener(event, () => light([], x));
      mark.addEventListener("keydown", ({ key }) => key === "Escape" && light([], x));
      return mark;
    });
    const lane = document.querySelector(".lane");
    lane.replaceChildren(lane.firstElementChild, ...made);
  };

  // To the moment of the page, unless a part was chosen. Of a single point uPlot would show years.
  const span = (_, low, high) => {
    const end = high >= data.at_s.at(-1) ? data.now_s : high;
    return [end - low < SHORTEST_S ? end - SHORT_S : low, end];
  };

  const options = (panel, width) => ({
    width, height: panel.height + TIMES + 8, legend: { show: false }, padding: [8, MARGIN, 0, 0],
    tzDate: (at) => uPlot.tzDate(new Date(at * 1e3), "Etc/UTC"),
    cursor: { y: false, sync: { key: "time" }, drag: { x: true, y: false }, points: { show: panel.height === HEIGHT } },
    series: [{}, ...panel.series],
    bands: panel.bands,
    scales: {
      x: { range: span },
      y: { range: panel.range },
    },
    axes: [axis({ size: TIMES, space: 84, values: clocks }),
      axis({ size: GUTTER, space: 28, values: (_, ticks) => ticks.map(shown), ...panel.axis })],
    hooks: {
      draw: panel.draw ?? [lines], setCursor: [readOut], ready: [readOut, layMarks], setSize: [layMarks],
      setScale: [layMarks],
    },
  });

  const width = () => document.querySelector(".charts").clientWidth;
  const figures = () => [...document.querySelectorAll("figure")];
  const draw = () => {
    charts.forEach((chart) => chart.destroy());
    charts = figures().map((figure) => {
      const panel = { height: HEIGHT, ...panels[figure.id]() };
      return new uPlot(options(panel, width()), [data.at_s, ...panel.data], figure.querySelector(".plot"));
    });
  };

  const COLUMNS = [
    ["tokens_per_second", "Tokens/s"], ["mean_batch", "Requests per step"], ["acceptance_length", "Acceptance length"],
    ["gain_percent", "Gain, %"], ["gained_percent", "Gained in all, %"], ["gained_error_percent", "± %"],
  ];
  const numbers = () => {
    const details = byId("numbers");
    if (!details?.open) return;
    const columns = [
      ...data.depths.map((row) => [`Depth at ${row.batches}`, row.depths.map((each) => (each == null ? "–" : depthOf(each)))]),
      ...COLUMNS.map(([name, title]) => [title, data[name].map(shown)]),
    ];
    const row = (tag, first, rest) => {
      const made = document.createElement("tr");
      for (const [i, text] of [first, ...rest].entries()) {
        const cell = made.appendChild(document.createElement(i ? tag : "th"));
        cell.textContent = text;
        if (cell.tagName === "TH") cell.scope = i || tag === "th" ? "col" : "row";
      }
      return made;
    };
    const table = document.createElement("table");
    table.className = "numbers";
    table.createTHead().append(row("th", "Time (UTC)", columns.map(([title]) => title)));
    table.createTBody().append(...data.at_s.map((at, i) =>
      row("td", `${utc(at, 0, 10)} ${utc(at, 11, 19)}`, columns.map(([, values]) => values[i]))));
    details.querySelector(".wide").replaceChildren(table);
  };

  const begin = () => {
    const text = byId("history")?.textContent;
    if (!text) return;
    const x = charts[0]?.scales.x;
    const zoomed = x && (x.min > data.at_s[0] || x.max < data.at_s.at(-1));
    data = JSON.parse(text);
    marks = [...document.querySelectorAll(".moments li")]
      .map((item) => ({ item, at: Date.parse(item.querySelector("time").dateTime) / 1e3 })).reverse();
    const shape = JSON.stringify([figures().map(({ id }) => id), data.depths.map(({ batches }) => batches)]);
    if (shape === drawn && charts.every(({ root }) => root.isConnected)) {
      // The same charts with more in them: the pointer and what was zoomed in on stay.
      for (const chart of charts) chart.setData([data.at_s, ...panels[chart.root.closest("figure").id]().data], !zoomed);
      charts.forEach(readOut);
      layMarks(charts[0]);
    } else draw();
    drawn = shape;
    numbers();
  };

  begin();
  document.addEventListener("refreshed", begin);
  document.addEventListener("toggle", numbers, true);
  dark.addEventListener("change", draw);
  let before = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === before || !charts.length) return;
    before = innerWidth;
    for (const chart of charts) chart.setSize({ width: width(), height: chart.height });
  });
})();
