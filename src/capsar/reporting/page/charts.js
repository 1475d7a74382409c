// Vega-Lite specifications without data. `draw.js` adds the rows and replaces colors such as "$positive".

const tooltip = { field: "tip", type: "nominal" };
const nominal = (field, axis) => ({ field, type: "nominal", sort: null, title: null, axis: { ticks: false, ...axis } });
const quantity = (field, axis, scale = {}) => ({ field, type: "quantitative", title: null, axis, scale });
const shareOf = (field) => quantity(field, { format: "%", tickCount: 5 }, { domain: [0, 1] });
const choose = (test, then, otherwise) => ({ condition: { test, value: then }, value: otherwise });
const faded = (opacity) => choose("datum.few", opacity * 0.35, opacity);
const layered = (height, encoding, layer) => ({ width: "container", height, encoding: { ...encoding, tooltip }, layer });

// Shares by period, with bands for intervals.
const trendChart = layered(190, { x: { field: "start", type: "temporal", title: null, axis: { grid: false, labelOverlap: true, tickCount: 6 } } },
  ["negative", "positive"].flatMap((polarity) => [
    { mark: { type: "area", color: `$${polarity}`, opacity: 0.16 }, encoding: { y: shareOf(`${polarity}_low`), y2: { field: `${polarity}_high` } } },
    { mark: { type: "line", color: `$${polarity}`, strokeWidth: 2.5 }, encoding: { y: shareOf(polarity) } },
    { mark: { type: "point", color: `$${polarity}`, filled: true, size: 34, opacity: 1 }, encoding: { y: shareOf(polarity) } },
  ]));

// Aspects by groups, colored by net share.
const gridChart = layered({ step: 32 }, {
  x: nominal("group", { orient: "top", labelAngle: 0, labelLimit: 110, domain: false }),
  y: nominal("name", { labelLimit: 150, domain: false }),
}, [
  {
    mark: { type: "rect", cornerRadius: 4, stroke: "$card", strokeWidth: 3, cursor: "pointer" },
    encoding: {
      color: { field: "net", type: "quantitative", legend: null, scale: { domain: [-1, 0, 1], range: ["$negative", "$ground", "$positive"], clamp: true, interpolate: "lab" } },
      opacity: faded(1),
    },
  },
  { mark: { type: "text", fontSize: 12.5, cursor: "pointer" }, encoding: { text: { field: "label", type: "nominal" }, color: choose("abs(datum.net) > 0.55 && !datum.few", "$on_tone", "$ink") } },
]);

// Shares of one aspect in each group, with intervals.
const dotsChart = layered({ step: 26 }, { y: nominal("group", { labelLimit: 130 }) },
  ["negative", "positive"].flatMap((polarity) => [
    { mark: { type: "rule", color: `$${polarity}`, strokeWidth: 5, strokeCap: "round" }, encoding: { x: shareOf(`${polarity}_low`), x2: { field: `${polarity}_high` }, opacity: faded(0.28) } },
    { mark: { type: "point", color: `$${polarity}`, filled: true, size: 80 }, encoding: { x: shareOf(polarity), opacity: faded(1) } },
  ]));

// Histogram of confidences; low ones stand out.
const confidenceChart = {
  width: "container",
  height: 130,
  mark: { type: "bar", binSpacing: 1 },
  encoding: {
    x: { field: "low", type: "quantitative", bin: "binned", title: "confidence", axis: { tickCount: 6 } },
    x2: { field: "high" },
    y: quantity("share", { format: "%", tickCount: 3 }),
    color: choose("datum.low_confidence", "$negative", "$neutral"),
    tooltip,
  },
};

const specs = { trend: trendChart, grid: gridChart, dots: dotsChart, confidence: confidenceChart };
