// Renders texts, aspect marks and word scores. Input is inserted as text nodes, never as markup.

const SIGNS = { positive: "+", neutral: "○", negative: "−" };
const TOP_WORDS = 5;
const IS_WORD = /[\p{L}\p{N}]/u; // punctuation has scores as well, but is not shaded

export function element(name, options = {}, ...children) {
  const { classes = [], text, ...properties } = options;
  const made = Object.assign(document.createElement(name), properties);
  made.classList.add(...classes);
  if (text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
}

// The service counts code points, JavaScript counts UTF-16 units.
export function characters(text) {
  return Array.from(text);
}

export function confidence(aspect) {
  return aspect.confidence ?? aspect.scores[aspect.polarity];
}

const ORDER = ["negative", "positive", "neutral"];

// One row per aspect: its name, the phrases that carry the sentiment, and the confidence.
export function showFound(place, aspects, onPick) {
  const rows = aspects.map((aspect, index) => [aspect, index]);
  rows.sort(([a], [b]) => ORDER.indexOf(a.polarity) - ORDER.indexOf(b.polarity));
  place.replaceChildren(...rows.map(([aspect, index]) => foundRow(aspect, index, onPick)));
}

function foundRow(aspect, index, onPick) {
  const phrases = (aspect.opinions ?? []).flatMap(({ text }, number) => [
    number ? ", " : "",
    element("q", {}, element("bdi", { text })),
  ]);
  const value = confidence(aspect);
  const button = element(
    "button",
    { type: "button", classes: ["pick", aspect.polarity] },
    sign(aspect.polarity),
    element("b", {}, element("bdi", { text: aspect.text })),
    element("span", { classes: ["reason"] }, ...(phrases.length ? phrases : [aspect.polarity])),
    element("span", { classes: ["value"], text: formatConfidence(aspect, value) }),
  );
  button.title = `${aspect.polarity}, ${confidenceName(aspect)} ${formatConfidence(aspect, value)}`;
  watch(button, index, onPick);
  return element("li", {}, button);
}

export function showReview(place, others, text, aspects, onPick) {
  const letters = characters(text);
  const phrases = aspects.flatMap(({ opinions = [], polarity }, index) =>
    opinions.map(({ start, end }) => ({ start, end, polarity, index })),
  );
  const parts = [];
  const overlapping = [];
  let position = 0;
  const inOrder = aspects.map((aspect, index) => [aspect, index]);
  inOrder.sort(([a], [b]) => a.start - b.start || b.end - a.end);
  for (const [aspect, index] of inOrder) {
    if (aspect.start < position) {
      overlapping.push(mark(aspect, index, onPick));
      continue;
    }
    parts.push(...withPhrases(letters, position, aspect.start, phrases), mark(aspect, index, onPick));
    position = aspect.end;
  }
  parts.push(...withPhrases(letters, position, letters.length, phrases));
  place.replaceChildren(...parts);
  others.hidden = overlapping.length === 0;
  others.replaceChildren(element("span", { classes: ["hint"], text: "Overlapping aspects:" }), ...overlapping);
}

// The text between two aspects, with opinion phrases underlined.
function withPhrases(letters, start, end, phrases) {
  const inside = phrases.filter((phrase) => phrase.start < end && start < phrase.end);
  const edges = inside.flatMap((phrase) => [Math.max(phrase.start, start), Math.min(phrase.end, end)]);
  const bounds = [...new Set([start, ...edges, end])].sort((a, b) => a - b);
  return bounds.slice(1).map((bound, number) => {
    const begin = bounds[number];
    const text = letters.slice(begin, bound).join("");
    const owners = inside.filter((phrase) => phrase.start <= begin && bound <= phrase.end);
    if (!owners.length) return text;
    const made = element("span", { classes: ["phrase", owners[0].polarity], text });
    made.dataset.owners = owners.map(({ index }) => index).join(" ");
    return made;
  });
}

// Show which aspect is selected, with its phrases.
export function select(place, index) {
  for (const button of place.querySelectorAll("[data-index]")) {
    button.setAttribute("aria-pressed", String(button.dataset.index === String(index)));
  }
  for (const phrase of place.querySelectorAll(".phrase")) {
    phrase.classList.toggle("chosen", phrase.dataset.owners.split(" ").includes(String(index)));
  }
}

function watch(button, index, onPick) {
  button.setAttribute("aria-pressed", "false");
  button.dataset.index = String(index);
  button.addEventListener("click", () => onPick(index));
}

function mark(aspect, index, onPick) {
  const value = confidence(aspect);
  const button = element(
    "button",
    { type: "button", classes: ["mark", aspect.polarity] },
    element("bdi", { text: aspect.text }),
    sign(aspect.polarity),
    element("span", { classes: ["bar"] }),
  );
  if (aspect.abstained) button.classList.add("abstained");
  button.style.setProperty("--confidence", String(Math.min(1, Math.max(0, value))));
  const label = `${aspect.polarity}, ${confidenceName(aspect)} ${formatConfidence(aspect, value)}`;
  button.title = label;
  button.setAttribute("aria-label", `${aspect.text}: ${label}`);
  watch(button, index, onPick);
  return button;
}

export function confidenceName(aspect) {
  return typeof aspect?.confidence === "number" ? "confidence" : "capsule length";
}

function formatConfidence(aspect, value) {
  return typeof aspect.confidence === "number" ? `${Math.round(100 * value)} %` : value.toFixed(2);
}

function sign(polarity) {
  const made = element("span", { classes: ["sign", polarity], text: SIGNS[polarity] });
  made.setAttribute("aria-hidden", "true");
  return made;
}

export function showCapsules(place, lengths, selected, onPick) {
  const legend = place.querySelector("legend");
  const rows = Object.entries(lengths).map(([polarity, length]) => {
    const input = element("input", { type: "radio", name: "capsule", value: polarity });
    input.checked = polarity === selected;
    input.addEventListener("change", () => onPick(polarity));
    const track = element("span", { classes: ["track"] });
    track.style.setProperty("--length", String(length));
    const value = element("span", { classes: ["value"], text: length.toFixed(2) });
    const row = element("label", { classes: ["capsule", polarity] }, input, sign(polarity), polarity, value, track);
    return row;
  });
  place.replaceChildren(legend, ...rows);
}

export function showScores(place, top, explanation, scores, polarity, { fromLowest }) {
  const letters = characters(explanation.text);
  const words = explanation.words.map(([start, end]) => letters.slice(start, end).join(""));
  const pairs = words.map((word, index) => [word, scores[index]]).filter(([word]) => IS_WORD.test(word));
  const values = pairs.map(([, score]) => score);
  const lowest = fromLowest ? values.reduce((a, b) => Math.min(a, b), Infinity) : 0;
  const highest = values.reduce((a, b) => Math.max(a, b), lowest + 1e-9);
  const parts = [];
  let position = 0;
  explanation.words.forEach(([start, end], index) => {
    parts.push(...between(letters, position, start));
    const word = element("span", { classes: ["word", polarity], text: words[index] });
    const relative = Math.max(0, (scores[index] - lowest) / (highest - lowest));
    const strength = IS_WORD.test(words[index]) ? Math.min(1, relative) : 0;
    word.style.setProperty("--strength", String(strength ** 1.6));
    word.title = scores[index].toFixed(2);
    parts.push(word);
    position = end;
  });
  parts.push(...between(letters, position, letters.length));
  place.replaceChildren(...parts);
  place.scrollTop = 0;
  showTop(top, pairs);
}

// The text between words; sentences that the model did not read for this result are dimmed.
function between(letters, start, end) {
  const text = letters.slice(start, end).join("");
  return text.trim() ? [element("span", { classes: ["unread"], text })] : [text];
}

function showTop(place, pairs) {
  const best = [...pairs].sort(([, a], [, b]) => b - a).slice(0, TOP_WORDS);
  const rows = best.map(([word, score]) =>
    element("li", {}, element("b", {}, element("bdi", { text: word })), ` ${score.toFixed(2)}`),
  );
  place.replaceChildren(...rows);
}
