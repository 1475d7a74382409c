// The behavior of the page: analyze, show, explain, share.

import { RequestError, request, useKey } from "./api.js";
import {
  characters, confidence, confidenceName, element, select, showCapsules, showFound, showReview, showScores,
} from "./render.js";

const EXAMPLES = [
  {
    name: "Restaurant",
    text: "The soup arrived cold and the waiter was rude, but the grilled octopus was superb. We loved our table by the window; the menu changes every week.",
  },
  {
    name: "Laptop",
    text: "Gorgeous screen and a keyboard I could type on all day. The battery, sadly, gives up after three hours and the fan never stops.",
  },
  {
    name: "Hotel",
    text: "We booked the room for the pool. The pool was closed, the bed was wonderful, and breakfast is served until ten.",
  },
  {
    name: "Mixed",
    text: "Nobody told us the kitchen closes at nine. The manager apologized, the dessert was free, and it tasted of nothing.",
  },
];

const at = (id) => document.getElementById(id);
let limit = Infinity;
let latest = 0; // number of the latest request; responses to older ones are ignored
let shown = null; // { text, document, index, explanation }

function setStatus(message, { problem = false } = {}) {
  at("status").textContent = message;
  at("status").classList.toggle("problem", problem);
}

function fail(error) {
  if (!(error instanceof RequestError)) throw error;
  if (error.status === 401) {
    at("key-row").hidden = false;
    at("key").focus();
  }
  setStatus(error.message, { problem: true });
}

// Old results must not stand below an error.
function clear() {
  latest += 1;
  shown = null;
  at("result").hidden = true;
  at("result").removeAttribute("aria-busy");
}

function showSize() {
  const size = characters(at("text").value).length;
  const suffix = Number.isFinite(limit) ? ` / ${limit.toLocaleString("en")}` : "";
  at("size").textContent = `${size.toLocaleString("en")}${suffix}`;
  at("size").classList.toggle("over", size > limit);
  return size;
}

// A browser may need ten seconds to lay out a megabyte, so a much too long text is not inserted.
function isFarTooLong(text) {
  if (text.length <= 4 * limit) return false;
  const size = text.length.toLocaleString("en");
  setStatus(`The limit is ${limit.toLocaleString("en")} characters; this text has ${size}.`, { problem: true });
  return true;
}

function givenAspects() {
  return at("aspects").value.split(",").map((aspect) => aspect.trim()).filter(Boolean);
}

async function analyze() {
  const text = at("text").value.toWellFormed?.() ?? at("text").value;
  if (!text.trim()) {
    clear();
    setStatus("Enter a review first.", { problem: true });
    at("text").focus();
    return;
  }
  if (showSize() > limit) {
    clear();
    setStatus(`The limit is ${limit.toLocaleString("en")} characters.`, { problem: true });
    return;
  }
  const aspects = givenAspects();
  const path = aspects.length ? "v1/classify" : "v1/analyze";
  const content = aspects.length ? { text, aspects } : { text };
  latest += 1;
  const own = latest;
  at("result").setAttribute("aria-busy", "true");
  setStatus("Analyzing …");
  try {
    const onWait = (seconds) => setStatus(`The service is busy; retrying in ${seconds} s.`);
    const found = await request(path, content, { onWait });
    if (own !== latest) return;
    shown = { text, document: found };
    show(path, content, found);
    await pick(mostConfident(found.aspects));
  } catch (error) {
    if (own !== latest) return;
    clear();
    fail(error);
  } finally {
    if (own === latest) at("result").removeAttribute("aria-busy");
  }
}

// The aspect to select first: the one with the highest confidence; neutral only if all are neutral.
function mostConfident(aspects) {
  const isPolar = aspects.some(({ polarity }) => polarity !== "neutral");
  const values = aspects.map((aspect) => (isPolar && aspect.polarity === "neutral" ? -1 : confidence(aspect)));
  return values.indexOf(Math.max(...values));
}

function show(path, content, found) {
  showFound(at("found"), found.aspects, pick);
  showReview(at("review"), at("others"), found.text, found.aspects, pick);
  const name = confidenceName(found.aspects[0]);
  at("confidence-name").textContent = name === "confidence" ? `% ${name}` : name;
  at("result").hidden = false;
  const number = found.aspects.length;
  setStatus(number === 0 ? "No aspects found." : `${number} aspect${number === 1 ? "" : "s"}.`);
  const body = JSON.stringify(content).replaceAll("'", String.raw`'\''`);
  at("request").textContent = `curl -H 'content-type: application/json' ${new URL(path, location.href)} \\\n  -d '${body}'`;
  at("json").textContent = JSON.stringify(found, null, 2);
  at("shared").textContent = "";
  history.replaceState(null, "", fragment(content));
}

// Select one aspect, or (-1) the whole text.
async function pick(index) {
  shown.index = index;
  select(at("result"), index);
  at("whole").setAttribute("aria-pressed", String(index < 0));
  at("explanation").hidden = true; // until that of this aspect is here
  if (at("why").open) await explain();
}

// Explain the prediction for the selected aspect, or for the whole text.
async function explain() {
  const { text, document: found, index } = shown;
  const aspect = found.aspects[index];
  const content = aspect ? { text, aspect: { start: aspect.start, end: aspect.end } } : { text };
  const current = shown;
  let explanation;
  try {
    explanation = await request("v1/explain", content);
  } catch (error) {
    if (current === shown && current.index === index) fail(error);
    return;
  }
  if (current !== shown || current.index !== index) return;
  at("explanation").hidden = false;
  current.explanation = explanation;
  const { lengths } = explanation;
  const longest = Object.keys(lengths).reduce((a, b) => (lengths[b] > lengths[a] ? b : a));
  at("explanation-title").replaceChildren(
    "Explanation of ",
    ...(aspect ? ["“", element("bdi", { text: aspect.text }), "”"] : ["the whole text"]),
  );
  showPolarity(aspect?.polarity ?? longest);
}

function showPolarity(polarity) {
  const { explanation } = shown;
  const focused = at("capsules").contains(document.activeElement);
  showCapsules(at("capsules"), explanation.lengths, polarity, showPolarity);
  if (focused) at("capsules").querySelector(":checked").focus();
  // Aspect scores have no fixed range: shade from the lowest to the highest.
  const { aspect_scores: scores, importance } = explanation;
  showScores(at("importance"), at("importance-top"), explanation, importance[polarity], polarity, { fromLowest: false });
  showScores(at("aspect-scores"), at("aspect-scores-top"), explanation, scores[polarity], polarity, { fromLowest: true });
}

function fragment(content) {
  const parameters = new URLSearchParams({ text: content.text });
  if (content.aspects) parameters.set("aspects", content.aspects.join(", "));
  return `#${parameters}`;
}

function readFragment() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  if (!parameters.has("text") || isFarTooLong(parameters.get("text"))) return;
  at("text").value = parameters.get("text");
  at("aspects").value = parameters.get("aspects") ?? "";
  showSize();
  analyze();
}

async function share() {
  try {
    await navigator.clipboard.writeText(location.href);
    at("shared").textContent = "Copied. The link contains the text.";
  } catch {
    at("shared").textContent = "Copy the link from the address bar.";
  }
}

// The model and its limits, which may need a key.
async function showModel() {
  try {
    const served = await request("v1/models");
    at("model").textContent = served.models[0].name;
    limit = served.limits.text_chars;
    showSize();
  } catch (error) {
    fail(error);
  }
}

async function start() {
  for (const { name, text } of EXAMPLES) {
    const button = element("button", { type: "button", text: name });
    button.addEventListener("click", () => {
      at("text").value = text;
      at("aspects").value = "";
      analyze();
    });
    at("examples").append(button);
  }
  at("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    useKey(at("key").value);
    if (!Number.isFinite(limit)) await showModel();
    analyze();
  });
  at("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("form").requestSubmit();
  });
  at("text").addEventListener("input", showSize);
  for (const [name, carrier] of [["paste", "clipboardData"], ["drop", "dataTransfer"]]) {
    at("text").addEventListener(name, (event) => {
      if (isFarTooLong(event[carrier]?.getData("text/plain") ?? "")) event.preventDefault();
    });
  }
  at("whole").addEventListener("click", () => pick(-1));
  at("why").addEventListener("toggle", () => at("why").open && shown && explain());
  at("share").addEventListener("click", share);
  window.addEventListener("hashchange", readFragment);
  showSize();
  await showModel();
  readFragment();
}

start();
