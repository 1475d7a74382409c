// Charts: the specifications of charts.js with rows, in the colors of the light or dark theme.

const drawn = new Map();
const COLORS = { positive: "--positive", negative: "--negative", neutral: "--neutral", ink: "--ink", soft: "--soft", line: "--line" };

// A custom property keeps light-dark() unresolved; the computed color of an element does not.
function colors() {
  const probe = element("span");
  document.body.append(probe);
  const found = Object.fromEntries(Object.entries(COLORS).map(([name, property]) => {
    probe.style.color = `var(${property})`;
    return [name, getComputedStyle(probe).color];
  }));
  probe.remove();
  return found;
}

function themed(spec, palette) {
  return JSON.parse(JSON.stringify(spec), (key, value) =>
    typeof value === "string" && value.startsWith("$") ? (palette[value.slice(1)] ?? value) : value);
}

function config(palette) {
  const font = getComputedStyle(document.body).fontFamily;
  return {
    background: "transparent",
    font,
    view: { stroke: null },
    axis: { labelColor: palette.ink, titleColor: palette.soft, titleFontWeight: 400, gridColor: palette.line, domainColor: palette.line, tickColor: palette.line, labelFontSize: 13, titleFontSize: 12.5, labelPadding: 6 },
    axisQuantitative: { labelColor: palette.soft, labelFontSize: 12, domain: false, ticks: false },
    axisTemporal: { labelColor: palette.soft, labelFontSize: 12 },
  };
}

async function draw(id, name, rows, onSelect) {
  const place = byId(id);
  drawn.get(id)?.view?.finalize();
  const chart = { name, rows, onSelect };
  drawn.set(id, chart);
  const palette = colors();
  const spec = { ...themed(specs[name], palette), config: config(palette), padding: 4, autosize: { type: "fit-x", contains: "padding" }, data: { values: rows } };
  const compiled = vegaLite.compile(spec, { logger: vega.logger(vega.None) }).spec;
  const view = new vega.View(vega.parse(compiled, null, { ast: true }), {
    expr: capsarInterpreter, renderer: "svg", container: place, hover: true, logLevel: vega.Error, tooltip: showTip, loader: noLoader,
  });
  if (onSelect) view.addEventListener("click", (event, item) => item && item.datum && onSelect(item.datum));
  chart.view = view;
  await view.runAsync();
  place.dataset.drawn = "yes";
}

const noLoader = { load: () => Promise.reject(new Error("loading is disabled")), sanitize: () => Promise.reject(new Error("links are disabled")) };

function showTip(handler, event, item, value) {
  const tip = byId("tooltip");
  const home = document.querySelector("dialog[open]") ?? document.body;
  if (tip.parentNode !== home) home.append(tip);
  tip.hidden = value === undefined || value === null || value === "";
  if (tip.hidden) return;
  tip.textContent = String(value);
  const { clientX, clientY } = event;
  tip.style.left = `${Math.min(clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
}

function redrawAll() {
  for (const [id, { name, rows, onSelect }] of [...drawn]) draw(id, name, rows, onSelect);
}

function clearChart(id) {
  drawn.get(id)?.view?.finalize();
  drawn.delete(id);
  byId(id).replaceChildren();
}

function trendRows(where) {
  return content.periods.starts.map((start, index) => [start, where.by_period[index]])
    .filter(([, cell]) => cell.mentions)
    .map(([start, cell]) => ({
      start: `${start}T00:00:00`, // local time, as on the axes
      ...Object.fromEntries(["negative", "positive"].flatMap((one) => [[one, cell[one][0]], [`${one}_low`, cell[one][1]], [`${one}_high`, cell[one][2]]])),
      tip: `${periodName(start)}, ${size(cell)}\n${shareText(cell)}`,
    }));
}

function groupRows(where) {
  return content.groups.names.map((group, index) => [group, where.by_group[index]])
    .filter(([, cell]) => cell.mentions)
    .map(([group, cell]) => ({
      group,
      ...Object.fromEntries(["negative", "positive"].flatMap((one) => [[one, cell[one][0]], [`${one}_low`, cell[one][1]], [`${one}_high`, cell[one][2]]])),
      few: few(cell),
      tip: `${group}, ${size(cell)}\n${shareText(cell)}`,
    }));
}
