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

export function showReview(place, others, text, aspects, onPick) {
  const letters = characters(text);
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
    parts.push(letters.slice(position, aspect.start).join(""), mark(aspect, index, onPick));
    position = aspect.end;
  }
  parts.push(letters.slice(position).join(""));
  place.replaceChildren(...parts);
  others.hidden = overlapping.length === 0;
  others.replaceChildren(element("span", { classes: ["hint"], text: "Overlapping aspects:" }), ...overlapping);
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
  button.setAttribute("aria-pressed", "false");
  button.dataset.index = String(index);
  button.addEventListener("click", () => onPick(index));
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
