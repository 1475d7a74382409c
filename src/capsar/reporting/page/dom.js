"use strict";
// Elements and formatting. All content becomes text nodes, never markup.

const byId = (id) => document.getElementById(id);
const content = JSON.parse(byId("content").textContent);

function element(name, options = {}, ...children) {
  const { classes = [], text, style = {}, ...properties } = options;
  const made = Object.assign(document.createElement(name), properties);
  made.classList.add(...classes);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(style)) made.style.setProperty(key, value);
  made.append(...children);
  return made;
}

// A name from the data, in any writing direction.
const named = (text) => element("bdi", { text });

const whole = new Intl.NumberFormat("en");
const count = (number) => whole.format(number);
const percent = (share) => `${Math.round(share * 100)} %`;
const points = (share) => {
  const rounded = Math.round(share * 100);
  return (rounded > 0 ? "+" : rounded < 0 ? "−" : "") + Math.abs(rounded);
};
const range = ([, low, high]) => `${Math.round(low * 100)}\u2060–\u2060${Math.round(high * 100)}`;
const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;
const lowConfidence = ({ low_confidence: low, mentions }) => (content.confidence.unknown < content.totals.mentions ? percent(low / mentions) : "–");
const qValue = (q) => (q < 0.001 ? "q < .001" : `q = ${q.toFixed(3).replace(/^0/, "")}`);

const POLARITIES = ["negative", "neutral", "positive"];
const SIGNIFICANT = 0.05;
const few = (cell) => cell.reviews < content.min_reviews;
const size = (cell) => `${plural(cell.mentions, "mention")} in ${plural(cell.reviews, "review")}${few(cell) ? ", too few to compare" : ""}`;

function periodName(start) {
  const day = new Date(`${start}T00:00:00Z`);
  const unit = content.periods.unit;
  const format = (parts) => new Intl.DateTimeFormat("en", { timeZone: "UTC", ...parts }).format(day);
  if (unit === "year") return format({ year: "numeric" });
  if (unit === "quarter") return `Q${Math.floor(day.getUTCMonth() / 3) + 1} ${day.getUTCFullYear()}`;
  if (unit === "month") return format({ month: "short", year: "numeric" });
  return format({ day: "numeric", month: "short", year: "numeric" });
}
