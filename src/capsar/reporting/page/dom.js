"use strict";
// Elements and words. Everything from outside becomes a text node, never markup.

const byId = (id) => document.getElementById(id);
const content = JSON.parse(byId("content").textContent);
const specs = JSON.parse(byId("charts").textContent);

function element(name, options = {}, ...children) {
  const { classes = [], text, style = {}, ...properties } = options;
  const made = Object.assign(document.createElement(name), properties);
  made.classList.add(...classes);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(style)) made.style.setProperty(key, value);
  made.append(...children);
  return made;
}

// A name of somebody's own choosing, which may run in any direction.
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
const chanceOf = (q) => (q < 0.001 ? "q < .001" : `q = ${q.toFixed(3).replace(/^0/, "")}`);

const POLARITIES = ["negative", "neutral", "positive"];
const SIGNS = { positive: "+", neutral: "○", negative: "−" };
const CLEAR = 0.05;
const isCorrected = content.overall.corrected;
const AS_TOLD = "as told";
const few = (cell) => cell.reviews < content.fewest_reviews;
const size = (cell) => `${plural(cell.mentions, "mention")} in ${plural(cell.reviews, "review")}${few(cell) ? ", which is few" : ""}`;
const marked = (cell) => (isCorrected && cell.mentions && !cell.corrected ? ` (${AS_TOLD})` : "");

function periodName(start) {
  const day = new Date(`${start}T00:00:00Z`);
  const unit = content.periods.unit;
  const told = (form) => new Intl.DateTimeFormat("en", { timeZone: "UTC", ...form }).format(day);
  if (unit === "year") return told({ year: "numeric" });
  if (unit === "quarter") return `Q${Math.floor(day.getUTCMonth() / 3) + 1} ${day.getUTCFullYear()}`;
  if (unit === "month") return told({ month: "short", year: "numeric" });
  return told({ day: "numeric", month: "short", year: "numeric" });
}
