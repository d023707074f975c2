// Plots the walk rate, the delivery rate and the chunk time of a job from the live events since the page
// was opened. The table below has the same numbers, one row for every ten seconds.
(() => {
  "use strict";
  const place = document.querySelector("[data-rates]");
  if (!place || typeof uPlot === "undefined") return;
  const job = place.dataset.rates;
  const zone = document.body.dataset.zone;
  const offset = Number(place.dataset.offset); // of the server's zone, in seconds east of UTC
  const keep = 3600, rowEvery = 10, mostRows = 360;
  const at = [], walk = [], chunk = [], delivery = [];
  const now = { walk: null, chunk: null, delivery: null };
  let plot = null, lastRow = 0;

  // An instant in the page's zone: a Date whose local fields are the zone's.
  const inZone = (seconds) => {
    const date = new Date(seconds * 1000);
    if (zone) {
      try { return uPlot.tzDate(date, zone); } catch { /* the browser does not know the zone */ }
    }
    return new Date((seconds + offset + date.getTimezoneOffset() * 60) * 1000);
  };
  const two = (n) => String(n).padStart(2, "0");
  const clock = (seconds) => {
    const date = inZone(seconds);
    return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  };
  const number = (value) => (value === null || value === undefined ? "-" : Math.round(value).toLocaleString("en"));
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function draw() {
    if (plot) plot.destroy();
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const series = (label, name, dash, scale = "y") => ({ label, dash, scale, stroke: colour(name), width: 2, points: { show: false }, value: (_, value) => number(value), spanGaps: false });
    plot = new uPlot({
      width: place.clientWidth, height: 200, tzDate: inZone, cursor: { drag: { x: false, y: false } },
      scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] }, ms: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] } },
      axes: [
        { ...axis, values: (_, splits) => splits.map(clock), space: 80 }, { ...axis, size: 64, values: (_, splits) => splits.map(number) },
        { ...axis, scale: "ms", side: 1, show: place.clientWidth > 560, grid: { show: false }, size: 64, values: (_, splits) => splits.map((value) => number(value) + " ms") },
      ],
      series: [{ label: "at", value: (_, seconds) => (seconds === null ? "-" : clock(seconds)) }, series("channels/s of the walk", "--accent"), series("ms a chunk", "--wait", [2, 4], "ms"), series("messages/s delivered", "--go", [6, 3])],
    }, [at, walk, chunk, delivery], place);
  }

  function row(seconds) {
    const body = document.querySelector("[data-rates-rows]");
    if (!body || seconds - lastRow < rowEvery) return;
    lastRow = seconds;
    const line = document.createElement("tr");
    for (const [i, text] of [clock(seconds), number(now.walk), number(now.chunk), number(now.delivery)].entries()) {
      const cell = document.createElement("td");
      cell.textContent = text;
      if (i > 0) cell.className = "number";
      line.append(cell);
    }
    body.prepend(line);
    while (body.children.length > mostRows) body.lastElementChild.remove();
  }

  document.addEventListener("belfry:live", (message) => {
    const { at: moment, cells = {} } = message.detail;
    const seconds = Date.parse(moment) / 1000;
    for (const [name, text] of Object.entries(cells)) {
      if (name === job + ".walk-rate") now.walk = text === "" ? null : Number(text);
      if (name === job + ".chunk-ms") now.chunk = text === "" ? null : Number(text);
      if (name === job + ".delivery-rate") now.delivery = text === "" ? null : Number(text);
    }
    if (!(seconds > (at.at(-1) ?? 0)) || (now.walk === null && now.delivery === null && at.length === 0)) return;
    at.push(seconds); walk.push(now.walk); chunk.push(now.chunk); delivery.push(now.delivery);
    while (at.length > keep) { for (const one of [at, walk, chunk, delivery]) one.shift(); }
    place.closest("section").hidden = false;
    if (plot) plot.setData([at, walk, chunk, delivery]); else draw();
    row(seconds);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (plot) draw(); });
  new ResizeObserver(() => { if (plot && place.clientWidth > 0) plot.setSize({ width: place.clientWidth, height: 200 }); }).observe(place);
})();
