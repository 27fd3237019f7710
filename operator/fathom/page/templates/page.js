// Draws the history that the page holds as JSON; the table below the charts says the same.
"use strict";
(() => {
  const told = JSON.parse(document.getElementById("history").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const shown = (_, value) => (value == null ? "–" : value.toLocaleString("en"));
  const stepped = uPlot.paths.stepped({ align: 1 });
  // Lines that lie on one another: each shows in the gaps of those above it.
  const dashes = [[], [14, 6], [8, 6], [3, 5], [14, 5, 3, 5], [1, 4]];
  const height = 180;
  let charts = [];

  const short = told.at.at(-1) - told.at[0] < 900;
  const clock = (at) => new Date(at * 1e3).toISOString().slice(11, short ? 19 : 16);
  const line = (label, index, more = {}) => ({
    label, stroke: colour("--c" + index), width: 2, value: shown, points: { show: told.at.length < 40 }, ...more,
  });
  const axis = (more = {}) => ({
    stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") }, ...more,
  });

  // Where the depth was decided: a mark in every chart.
  const marks = (u) => {
    const { ctx } = u;
    ctx.save();
    ctx.strokeStyle = colour("--dim");
    ctx.setLineDash([4, 4]);
    for (const at of told.decisions) {
      const x = u.valToPos(at, "x", true);
      if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, u.bbox.top);
      ctx.lineTo(x, u.bbox.top + u.bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  };

  const plot = (id, series, columns, axes, scales = {}) => {
    const place = document.getElementById(id);
    const options = {
      width: place.clientWidth, height,
      tzDate: (at) => uPlot.tzDate(new Date(at * 1e3), "Etc/UTC"),
      cursor: { sync: { key: "time" } },
      series: [{ label: "UTC", value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" }, ...series],
      axes: [axis({ values: (_, times) => times.map(clock) }), ...axes], scales, hooks: { draw: [marks] },
    };
    charts.push(new uPlot(options, [told.at, ...columns], place));
  };

  const draw = () => {
    charts.forEach((chart) => chart.destroy());
    charts = [];
    plot("depth",
      told.depths.map((each, i) => line(each.batches, i, { paths: stepped, dash: dashes[i] })),
      told.depths.map((each) => each.depths),
      [axis({ incrs: [1, 2, 5, 10] })], { y: { range: (_, low, high) => [0, Math.max(1, high) + 1] } });
    plot("traffic",
      [line("tokens/s", 0), line("requests per step", 1, { scale: "batch" })],
      [told.tokens_per_second, told.mean_batch],
      [axis(), axis({ scale: "batch", side: 1, grid: { show: false } })],
      { y: { range: (_, low, high) => [0, (high || 1) * 1.1] },
        batch: { range: (_, low, high) => [0, (high || 1) * 1.1] } });
    plot("acceptance", [line("acceptance length", 2)], [told.acceptance_length], [axis()],
      { y: { range: (_, low, high) => [1, Math.max(2, (high || 1) * 1.05)] } });
  };

  draw();
  dark.addEventListener("change", draw);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    for (const chart of charts) {
      chart.setSize({ width: chart.root.parentElement.clientWidth, height });
    }
  });
})();
