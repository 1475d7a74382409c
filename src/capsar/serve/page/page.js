// What happens on the page: ask, show, pick, share.

import { Refused, ask, useKey } from "./api.js";
import { characters, element, showCapsules, showReview, showShading, sureName, sureness } from "./render.js";

const EXAMPLES = [
  {
    name: "A dinner",
    text: "The soup arrived cold and the waiter was rude, but the grilled octopus was superb. We loved our table by the window; the menu changes every week.",
    aspects: "soup, waiter, grilled octopus, table by the window, menu",
  },
  {
    name: "A laptop",
    text: "Gorgeous screen and a keyboard I could type on all day. The battery, sadly, gives up after three hours and the fan never stops.",
    aspects: "screen, keyboard, battery, fan",
  },
  {
    name: "A hotel",
    text: "We booked the room for the pool. The pool was closed, the bed was wonderful, and breakfast is served until ten.",
  },
  {
    name: "A grudge",
    text: "Nobody told us the kitchen closes at nine. The manager apologised, the dessert was free, and it tasted of nothing.",
  },
];

const at = (id) => document.getElementById(id);
let limit = Infinity;
let turn = 0; // answers to older questions are not shown
let shownFor = null; // { text, document, explanation, polarity }

function tell(message, { problem = false } = {}) {
  at("status").textContent = message;
  at("status").classList.toggle("problem", problem);
}

function fail(error) {
  if (!(error instanceof Refused)) throw error;
  if (error.status === 401) {
    at("key-row").hidden = false;
    at("key").focus();
  }
  tell(error.message, { problem: true });
}

function showSize() {
  const size = characters(at("text").value).length;
  const known = Number.isFinite(limit) ? ` / ${limit.toLocaleString("en")}` : "";
  at("size").textContent = `${size.toLocaleString("en")}${known}`;
  at("size").classList.toggle("over", size > limit);
  return size;
}

// A browser may take ten seconds to lay out a megabyte, so what is far too long is not let in.
function isFarTooLong(text) {
  if (text.length <= 4 * limit) return false;
  const size = text.length.toLocaleString("en");
  tell(`A text may have ${limit.toLocaleString("en")} characters; this one has ${size}.`, { problem: true });
  return true;
}

function givenAspects() {
  return at("aspects").value.split(",").map((aspect) => aspect.trim()).filter(Boolean);
}

async function analyze() {
  const text = at("text").value.toWellFormed?.() ?? at("text").value;
  if (!text.trim()) {
    tell("Write or paste a review first.", { problem: true });
    at("text").focus();
    return;
  }
  if (showSize() > limit) {
    tell(`A text may have ${limit.toLocaleString("en")} characters.`, { problem: true });
    return;
  }
  const aspects = givenAspects();
  const path = aspects.length ? "/v1/classify" : "/v1/analyze";
  const content = aspects.length ? { text, aspects } : { text };
  turn += 1;
  const mine = turn;
  at("answer").setAttribute("aria-busy", "true");
  tell("Reading …");
  try {
    const onWait = (seconds) => tell(`The service is busy; asking again in ${seconds} s.`);
    const found = await ask(path, content, { onWait });
    if (mine !== turn) return;
    shownFor = { text, document: found };
    show(path, content, found);
    await open(surest(found.aspects));
  } catch (error) {
    if (mine === turn) fail(error);
  } finally {
    if (mine === turn) at("answer").removeAttribute("aria-busy");
  }
}

// Where to begin: at the surest feeling, if there is any.
function surest(aspects) {
  const felt = aspects.some(({ polarity }) => polarity !== "neutral");
  const sure = aspects.map((aspect) => (felt && aspect.polarity === "neutral" ? -1 : sureness(aspect)));
  return sure.indexOf(Math.max(...sure));
}

function show(path, content, found) {
  showReview(at("review"), at("others"), found.text, found.aspects, open);
  at("sure-name").textContent = sureName(found.aspects[0]);
  at("answer").hidden = false;
  const number = found.aspects.length;
  tell(number === 0 ? "No aspect was found." : `${number} aspect${number === 1 ? "" : "s"}.`);
  const body = JSON.stringify(content).replaceAll("'", String.raw`'\''`);
  at("request").textContent = `curl -H 'content-type: application/json' ${location.origin}${path} \\\n  -d '${body}'`;
  at("json").textContent = JSON.stringify(found, null, 2);
  at("shared").textContent = "";
  history.replaceState(null, "", fragment(content));
}

// Open the capsules as they are for one aspect, or (-1) for the whole text.
async function open(index) {
  const { text, document: found } = shownFor;
  const aspect = found.aspects[index];
  for (const button of at("answer").querySelectorAll(".mark")) {
    button.setAttribute("aria-pressed", String(button.dataset.index === String(index)));
  }
  at("whole").setAttribute("aria-pressed", String(!aspect));
  const content = aspect ? { text, aspect: { start: aspect.start, end: aspect.end } } : { text };
  const asked = shownFor;
  try {
    asked.explanation = await ask("/v1/explain", content);
  } catch (error) {
    fail(error);
    return;
  }
  if (asked !== shownFor) return;
  const { lengths } = asked.explanation;
  const longest = Object.keys(lengths).reduce((a, b) => (lengths[b] > lengths[a] ? b : a));
  at("opened-title").replaceChildren(
    "Inside the capsules",
    ...(aspect ? [" of “", element("bdi", { text: aspect.text }), "”"] : []),
  );
  pick(aspect?.polarity ?? longest);
}

function pick(polarity) {
  const { explanation } = shownFor;
  const focused = at("capsules").contains(document.activeElement);
  showCapsules(at("capsules"), explanation.lengths, polarity, pick);
  if (focused) at("capsules").querySelector(":checked").focus();
  // The likeness of any two words is well above nothing: shade from the least to the most.
  showShading(at("about"), at("about-top"), explanation, explanation.about[polarity], polarity, { fromLeast: true });
  showShading(at("because"), at("because-top"), explanation, explanation.because[polarity], polarity, { fromLeast: false });
}

function fragment(content) {
  const given = new URLSearchParams({ text: content.text });
  if (content.aspects) given.set("aspects", content.aspects.join(", "));
  return `#${given}`;
}

function readFragment() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (!given.has("text") || isFarTooLong(given.get("text"))) return;
  at("text").value = given.get("text");
  at("aspects").value = given.get("aspects") ?? "";
  showSize();
  analyze();
}

async function share() {
  try {
    await navigator.clipboard.writeText(location.href);
    at("shared").textContent = "Copied. The text is in the link.";
  } catch {
    at("shared").textContent = "The link is in the address bar: copy it from there.";
  }
}

async function start() {
  for (const { name, text, aspects = "" } of EXAMPLES) {
    const button = element("button", { type: "button", text: name });
    button.addEventListener("click", () => {
      at("text").value = text;
      at("aspects").value = aspects;
      analyze();
    });
    at("examples").append(button);
  }
  at("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    useKey(at("key").value);
    analyze();
  });
  at("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("ask").requestSubmit();
  });
  at("text").addEventListener("input", showSize);
  for (const [name, carrier] of [["paste", "clipboardData"], ["drop", "dataTransfer"]]) {
    at("text").addEventListener(name, (event) => {
      if (isFarTooLong(event[carrier]?.getData("text/plain") ?? "")) event.preventDefault();
    });
  }
  at("whole").addEventListener("click", () => open(-1));
  at("share").addEventListener("click", share);
  window.addEventListener("hashchange", readFragment);
  showSize();
  try {
    const served = await ask("/v1/models");
    at("model").textContent = served.models[0].name;
    limit = served.limits.text_chars;
    showSize();
  } catch (error) {
    fail(error);
  }
  readFragment();
}

start();
