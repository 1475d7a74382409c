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

// Effects on the rating, with intervals.
const effectOf = (field) => quantity(field, { format: "+", tickCount: 7 });
const driversChart = layered({ step: 30 }, {
  y: nominal("name", { labelLimit: 160, grid: true, labelFontWeight: 600 }),
  color: choose("datum.polarity === 'negative'", "$negative", "$positive"),
}, [
  { mark: { type: "rule", strokeWidth: 5, strokeCap: "round", opacity: 0.35 }, encoding: { x: effectOf("low"), x2: { field: "high" } } },
  { mark: { type: "point", filled: true, size: 90, opacity: 1, cursor: "pointer" }, encoding: { x: effectOf("value") } },
  { mark: { type: "rule", aria: false }, data: { values: [{}] }, encoding: { x: { datum: 0 }, y: null, tooltip: null, color: { value: "$soft" } } },
]);

// Shares of one topic in each group, with intervals.
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

const specs = { trend: trendChart, drivers: driversChart, dots: dotsChart, confidence: confidenceChart };
